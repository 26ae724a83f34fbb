//! A row is the same bits alone and in any company.

use super::Found;
use super::attention::Texts;
use super::dense::{Layer, products};
use crate::gpu::Gpu;

/// 0, or infinitely far off: bits are the same or are not.
pub(super) fn company(gpu: &Gpu) -> Found {
    let all = Layer::new([130, 136, 104]);
    let mut one = Layer::new([1, 136, 104]);
    let row = 77;
    one.rows.copy_from_slice(&all.rows[row * 104..][..104]);
    one.residual
        .copy_from_slice(&all.residual[row * 136..][..136]);
    let mut is_same = true;
    let (expected, _) = products(gpu, &all, 1, false, true)?;
    for is_large in [false, true] {
        let (found, _) = products(gpu, &one, 1, false, is_large)?;
        is_same &= found == expected[row * 136..][..136];
    }

    let batch = Texts::new(&[5, 70, 9], 2, 32);
    let mut alone = Texts::new(&[70], 2, 32);
    alone
        .projected
        .copy_from_slice(&batch.projected[5 * 192..75 * 192]);
    let own = 5 * 64..75 * 64;
    is_same &= alone.attended_bf16(gpu)? == batch.attended_bf16(gpu)?[own.clone()];
    is_same &= alone.attended_f32(gpu)? == batch.attended_f32(gpu)?[own];
    Ok(if is_same { 0.0 } else { f64::INFINITY })
}
