//! Layer norm and embedding on vectors.

use std::ops::Range;

use super::convert::convert_row;
use super::{Simd, load_up_to, store_up_to, total};
use crate::rows::{Embedded, Norm, Normed};

/// Layer norm of the given rows.
///
/// # Safety
/// The CPU has the class's instructions, the rows are within the batch, and nobody else
/// touches them.
#[inline(always)]
pub(crate) unsafe fn layer_norm<V: Simd>(normed: &Normed<'_>, rows: Range<usize>) {
    for row in rows {
        // SAFETY: the row is within the batch and this task's alone.
        unsafe {
            let values = normed.rows.at(row * normed.norm.hidden());
            normalise::<V>(values, &normed.norm);
            if let Some(into) = &normed.into {
                convert_row::<V>(values, into, row);
            }
        }
    }
}

/// Embedding of the given tokens.
///
/// # Safety
/// As for [`layer_norm`]; ids and positions are within their tables.
#[inline(always)]
pub(crate) unsafe fn embed<V: Simd>(embedded: &Embedded<'_>, rows: Range<usize>) {
    let hidden = embedded.normed.norm.hidden();
    let tables = &embedded.tables;
    for row in rows {
        let word = embedded.ids[row] as usize * hidden;
        let place = embedded.positions[row] as usize * hidden;
        // SAFETY: the caller vouches for the tables; `count` elements from `at` on are within
        // a row of each of them, and of `out`.
        unsafe {
            let out = embedded.normed.rows.at(row * hidden);
            for at in (0..hidden).step_by(V::LANES) {
                let count = V::LANES.min(hidden - at);
                let sum = load_up_to::<V>(tables.words.as_ptr().add(word + at), count)
                    .add(load_up_to(tables.kind.as_ptr().add(at), count))
                    .add(load_up_to(tables.places.as_ptr().add(place + at), count));
                store_up_to(sum, out.add(at), count);
            }
            normalise::<V>(out, &embedded.normed.norm);
            if let Some(into) = &embedded.normed.into {
                convert_row::<V>(out, into, row);
            }
        }
    }
}

/// Layer norm of one row, in place: three passes while it is in the nearest cache.
///
/// # Safety
/// The CPU has the class's instructions; `row` has the norm's length and no other user.
#[inline(always)]
unsafe fn normalise<V: Simd>(row: *mut f32, norm: &Norm<'_>) {
    let hidden = norm.hidden();
    // SAFETY: `count` elements from `at` on are within the row, the gain and the bias.
    unsafe {
        let zero = V::splat(0.0);
        let mut sums = [zero; 4];
        let mut at = 0;
        while at < hidden {
            for sum in &mut sums {
                if at < hidden {
                    let count = V::LANES.min(hidden - at);
                    *sum = sum.add(load_up_to(row.add(at), count));
                    at += V::LANES;
                }
            }
        }
        let mean = V::splat(total(sums) / hidden as f32);

        let mut squares = [zero; 4];
        let mut at = 0;
        while at < hidden {
            for square in &mut squares {
                if at < hidden {
                    let count = V::LANES.min(hidden - at);
                    let off = load_up_to::<V>(row.add(at), count).sub(mean);
                    let off = off.first_or(count, zero);
                    *square = off.fma(off, *square);
                    at += V::LANES;
                }
            }
        }
        let variance = total(squares) / hidden as f32;
        let scale = V::splat(1.0 / (variance + norm.epsilon).sqrt());

        for at in (0..hidden).step_by(V::LANES) {
            let count = V::LANES.min(hidden - at);
            let gain = load_up_to::<V>(norm.gain.as_ptr().add(at), count).mul(scale);
            let bias = load_up_to(norm.bias.as_ptr().add(at), count);
            let off = load_up_to::<V>(row.add(at), count).sub(mean);
            store_up_to(off.fma(gain, bias), row.add(at), count);
        }
    }
}
