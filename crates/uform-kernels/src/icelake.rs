//! `intel-icelake`: dense layers of i8 by VNNI; all else as on `intel-skylake`.
//!
//! VPDPBUSD multiplies unsigned bytes by signed ones. Rows are offset by 128 to be unsigned,
//! which adds 128·Σ q of the weights to each sum: it begins at the weights' offsets, and is exact.

use std::arch::x86_64::*;
use std::ops::Range;

use super::linear::Linear;
use super::operand::STEP_BYTES;
use super::packed::TILES_COLUMNS;
use super::skylake::{self, Plain};
use super::vector::tiles::{TileProduct, Tiles};
use super::{Kernels, vector};
use crate::cpu::CpuClass;

pub(super) static I8: Kernels = Kernels {
    class: CpuClass::IntelIcelake,
    runs_here: || is_x86_feature_detected!("avx512vnni") && (skylake::TABLE.runs_here)(),
    linear,
    ..skylake::I8_TABLE
};

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn linear(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::tiles::compute::<Plain, Vnni>(layer, tiles, panels) }
}

/// Rows whose products are summed side by side.
const ROWS: usize = 8;

/// i8 by dot products of unsigned bytes.
struct Vnni;

impl Tiles for Vnni {
    const INTEGERS: bool = true;

    #[inline(always)]
    unsafe fn begin() -> Self {
        Vnni
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: handed on to the caller.
        unsafe {
            for row in (0..product.rows).step_by(ROWS) {
                match (product.rows - row).min(ROWS) {
                    1 => rows::<1>(product, row),
                    2 => rows::<2>(product, row),
                    3 => rows::<3>(product, row),
                    4 => rows::<4>(product, row),
                    5 => rows::<5>(product, row),
                    6 => rows::<6>(product, row),
                    7 => rows::<7>(product, row),
                    _ => rows::<ROWS>(product, row),
                }
            }
        }
    }
}

/// Some rows by a panel.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[inline]
#[target_feature(enable = "avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn rows<const ROWS: usize>(product: &TileProduct, row: usize) {
    // SAFETY: rows and columns are within the product.
    unsafe {
        let left = product.left.add(row * product.left_stride);
        let offsets = [
            _mm512_loadu_si512(product.offsets.cast()),
            _mm512_loadu_si512(product.offsets.add(16).cast()),
        ];
        let mut sums = [offsets; ROWS];
        for step in 0..product.steps {
            let right = product.right.add(step * 16 * TILES_COLUMNS);
            for group in 0..16 {
                let right = right.add(16 * group);
                let weights = [
                    _mm512_loadu_si512(right.cast()),
                    _mm512_loadu_si512(right.add(256).cast()),
                ];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let word = left.add(row * product.left_stride + step * STEP_BYTES + 4 * group);
                    let factors = word.cast::<i32>().read_unaligned() ^ 0x8080_8080_u32 as i32;
                    let factors = _mm512_set1_epi32(factors);
                    sums[0] = _mm512_dpbusd_epi32(sums[0], factors, weights[0]);
                    sums[1] = _mm512_dpbusd_epi32(sums[1], factors, weights[1]);
                }
            }
        }
        for (place, sums) in sums.iter().enumerate() {
            let out = product.out.add((row + place) * TILES_COLUMNS);
            _mm512_storeu_si512(out.cast(), sums[0]);
            _mm512_storeu_si512(out.add(16).cast(), sums[1]);
        }
    }
}
