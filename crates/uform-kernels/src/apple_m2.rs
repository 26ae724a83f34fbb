//! `apple-m2`: dense layers and attention of bf16 by BFMLAL, dense layers of i8 by SMMLA; all else
//! as on `aws-g2`.
//!
//! BFMLALB and BFMLALT are f32's fused multiply-add of the even and of the odd numbers of two
//! vectors, rounded by the same register (Arm, Architecture Reference Manual, "BFMLALB, BFMLALT"):
//! the two sums that the module `precision` writes down, to the bit. BFDOT and BFMMLA would be
//! faster and are not: they add each pair of products first, and without FEAT_EBF16 they round to
//! odd. Nor are the intrinsics of any of these in stable Rust: hence `asm!`.

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use super::attention::{Attention, AttentionTask};
use super::aws_g2::{self, V4};
use super::linear::Linear;
use super::operand::STEP_BYTES;
use super::packed::TILES_COLUMNS;
use super::vector::tiles::{SIDE, TileProduct, Tiles, column_words};
use super::{Kernels, vector};
use crate::cpu::CpuClass;

pub(super) static BF16: Kernels = Kernels {
    class: CpuClass::AppleM2,
    runs_here: || vector::detected!("bf16") && (aws_g2::TABLE.runs_here)(),
    linear: linear_bf16,
    attention: attention_bf16,
    ..aws_g2::BF16_TABLE
};

pub(super) static I8: Kernels = Kernels {
    class: CpuClass::AppleM2,
    runs_here: || vector::detected!("i8mm") && (aws_g2::TABLE.runs_here)(),
    linear: linear_i8,
    ..aws_g2::I8_TABLE
};

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "neon,bf16")]
unsafe fn linear_bf16(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::tiles::compute::<V4, Bfmlal>(layer, tiles, panels) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "neon,bf16")]
unsafe fn attention_bf16(job: &Attention<'_>, task: &AttentionTask, scratch: *mut f32) {
    // SAFETY: handed on to the caller.
    unsafe { vector::attention_bf16::compute::<V4, Bfmlal>(job, task, scratch) }
}

/// # Safety
/// As stated at [`Kernels`].
#[target_feature(enable = "neon,i8mm")]
unsafe fn linear_i8(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    // SAFETY: handed on to the caller.
    unsafe { vector::tiles::compute::<V4, Smmla>(layer, tiles, panels) }
}

/// Columns multiplied side by side: two vectors of sums.
const COLUMNS: usize = 8;

/// Groups of a row that one register holds.
const GROUPS: usize = 4;

/// bf16 by fused multiply-adds of even and odd numbers.
struct Bfmlal;

impl Tiles for Bfmlal {
    const INTEGERS: bool = false;

    #[inline(always)]
    unsafe fn begin() -> Self {
        Bfmlal
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: handed on to the caller.
        unsafe {
            for column in (0..TILES_COLUMNS).step_by(COLUMNS) {
                for row in (0..product.rows).step_by(4) {
                    match product.rows - row {
                        1 => bf16_rows::<1>(product, row, column),
                        2 => bf16_rows::<2>(product, row, column),
                        3 => bf16_rows::<3>(product, row, column),
                        _ => bf16_rows::<4>(product, row, column),
                    }
                }
            }
        }
    }
}

/// Sums of a step, of even and of odd inputs: two vectors a row.
struct Step<const ROWS: usize> {
    even: [[float32x4_t; 2]; ROWS],
    odd: [[float32x4_t; 2]; ROWS],
}

/// Some rows by [`COLUMNS`] columns.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn bf16_rows<const ROWS: usize>(product: &TileProduct, row: usize, column: usize) {
    let zero = [[vdupq_n_f32(0.0); 2]; ROWS];
    // SAFETY: rows and columns are within the product.
    unsafe {
        let left = product.left.add(row * product.left_stride);
        let mut sums = zero;
        for step in 0..product.steps {
            let right = product.right.add(step * SIDE * TILES_COLUMNS);
            let mut right = right.add(column_words(column)).cast::<u16>();
            let left = left.add(step * STEP_BYTES);
            let mut step = Step {
                even: zero,
                odd: zero,
            };
            for group in (0..SIDE).step_by(GROUPS) {
                let mut factors = [vdupq_n_u16(0); ROWS];
                for (row, factors) in factors.iter_mut().enumerate() {
                    *factors = vld1q_u16(left.add(row * product.left_stride + 4 * group).cast());
                }
                step.add_group::<0, 1>(&factors, right);
                step.add_group::<2, 3>(&factors, right.add(2 * SIDE));
                step.add_group::<4, 5>(&factors, right.add(4 * SIDE));
                step.add_group::<6, 7>(&factors, right.add(6 * SIDE));
                right = right.wrapping_add(2 * GROUPS * SIDE);
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = vaddq_f32(
                        *sum,
                        vaddq_f32(step.even[row][vector], step.odd[row][vector]),
                    );
                }
            }
        }
        for (place, sums) in sums.iter().enumerate() {
            let out = product.out.add((row + place) * TILES_COLUMNS + column);
            vst1q_f32(out, sums[0]);
            vst1q_f32(out.add(4), sums[1]);
        }
    }
}

impl<const ROWS: usize> Step<ROWS> {
    /// Adds the products of a group: numbers `EVEN` and `ODD` of each row's factors.
    ///
    /// # Safety
    /// The CPU has NEON's bf16; `right` has the group's words of [`COLUMNS`] columns.
    #[inline]
    #[target_feature(enable = "neon,bf16")]
    unsafe fn add_group<const EVEN: usize, const ODD: usize>(
        &mut self,
        factors: &[uint16x8_t; ROWS],
        right: *const u16,
    ) {
        // SAFETY: handed on to the caller; the instructions touch registers alone.
        unsafe {
            for vector in 0..2 {
                let weights = vld1q_u16(right.add(8 * vector));
                for (row, factors) in factors.iter().enumerate() {
                    asm!(
                        "bfmlalb {even:v}.4s, {weights:v}.8h, {factors:v}.h[{EVEN}]",
                        "bfmlalt {odd:v}.4s, {weights:v}.8h, {factors:v}.h[{ODD}]",
                        even = inout(vreg) self.even[row][vector],
                        odd = inout(vreg) self.odd[row][vector],
                        weights = in(vreg) weights,
                        // The encoding has four bits for it.
                        factors = in(vreg_low16) *factors,
                        EVEN = const EVEN,
                        ODD = const ODD,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
    }
}

/// i8 by matrices: two rows and two columns of eight numbers each.
struct Smmla;

impl Tiles for Smmla {
    const INTEGERS: bool = true;

    #[inline(always)]
    unsafe fn begin() -> Self {
        Smmla
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: handed on to the caller.
        unsafe {
            for column in (0..TILES_COLUMNS).step_by(COLUMNS) {
                for row in (0..product.rows).step_by(8) {
                    match (product.rows - row).div_ceil(2) {
                        1 => i8_rows::<1>(product, row, column),
                        2 => i8_rows::<2>(product, row, column),
                        3 => i8_rows::<3>(product, row, column),
                        _ => i8_rows::<4>(product, row, column),
                    }
                }
            }
        }
    }
}

/// Some pairs of rows by [`COLUMNS`] columns. Where the last pair has one row, it is multiplied
/// twice and stored once.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn i8_rows<const PAIRS: usize>(product: &TileProduct, row: usize, column: usize) {
    let last = product.rows - 1;
    // SAFETY: rows and columns are within the product; the asm touches registers alone.
    unsafe {
        let mut rows = [[product.left; 2]; PAIRS];
        for (place, row_bytes) in rows.as_flattened_mut().iter_mut().enumerate() {
            *row_bytes = product
                .left
                .add((row + place).min(last) * product.left_stride);
        }
        // Of a pair of rows and a pair of columns: row by row.
        let mut sums = [[vdupq_n_s32(0); COLUMNS / 2]; PAIRS];
        for step in 0..product.steps {
            let right = product.right.add(step * SIDE * TILES_COLUMNS);
            let right = right.add(column_words(column));
            for group in (0..SIDE).step_by(GROUPS) {
                let at = step * STEP_BYTES + 4 * group;
                // Of each pair of rows their first eight numbers, and their last eight.
                let mut factors = [[vdupq_n_u64(0); 2]; PAIRS];
                for (factors, [first, second]) in factors.iter_mut().zip(rows) {
                    let first = vreinterpretq_u64_u8(vld1q_u8(first.add(at)));
                    let second = vreinterpretq_u64_u8(vld1q_u8(second.add(at)));
                    *factors = [vzip1q_u64(first, second), vzip2q_u64(first, second)];
                }
                for half in 0..2 {
                    let right = right.add((group + 2 * half) * SIDE);
                    for vector in 0..2 {
                        let first = vld1q_u32(right.add(4 * vector));
                        let second = vld1q_u32(right.add(SIDE + 4 * vector));
                        let weights = [vzip1q_u32(first, second), vzip2q_u32(first, second)];
                        for (sums, factors) in sums.iter_mut().zip(&factors) {
                            for (pair, weights) in weights.into_iter().enumerate() {
                                asm!(
                                    "smmla {sums:v}.4s, {factors:v}.16b, {weights:v}.16b",
                                    sums = inout(vreg) sums[2 * vector + pair],
                                    factors = in(vreg) factors[half],
                                    weights = in(vreg) weights,
                                    options(pure, nomem, nostack, preserves_flags)
                                );
                            }
                        }
                    }
                }
            }
        }
        for (pair, sums) in sums.iter().enumerate() {
            let first = row + 2 * pair;
            for (vector, sums) in sums.as_chunks::<2>().0.iter().enumerate() {
                let [left, right] = sums.map(|sums| vreinterpretq_f64_s32(sums));
                let out = product.out.add(first * TILES_COLUMNS + column + 4 * vector);
                vst1q_f64(out.cast(), vzip1q_f64(left, right));
                if first < last {
                    vst1q_f64(out.add(TILES_COLUMNS).cast(), vzip2q_f64(left, right));
                }
            }
        }
    }
}
