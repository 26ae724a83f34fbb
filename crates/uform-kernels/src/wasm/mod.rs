//! `wasm32-v128` and `wasm64-extended`: WebAssembly's vectors of 128 bits. An engine has 16 registers of
//! 4 lanes to give on x86-64, but one: tiles of 6 rows by 2 vectors at most, beside which there is room for two
//! vectors and a number. Fewer sums side by side wait for each other. Engines keep the order of
//! instructions, so compilers have to (`xtask wasm` tells them), or there would be no such room.
//!
//! Whether a module uses relaxed SIMD is chosen when it is built, since an engine loads all of a
//! module or nothing. With it f32 is multiplied and added in one instruction, which engines round once
//! where the processor can, and without it in two: one module on one machine computes the same
//! bits in every engine that chooses alike, as those of one family do.

#[cfg(target_arch = "wasm32")]
use std::arch::wasm32::*;
#[cfg(target_arch = "wasm64")]
use std::arch::wasm64::*;
use std::hint::black_box;
use std::ops::Range;

use dot::Dot;

use super::attention::{Attention, AttentionTask};
use super::linear::Linear;
use super::operand::Conversion;
use super::packed::TILES_COLUMNS;
use super::precision::BF16_LEAST;
use super::rows::{Embedded, Normed};
use super::vector::tile::Product;
use super::vector::tiles::{TILES_ROWS, VectorBf16};
use super::vector::{self, Simd};
use super::{Kernels, Precision};
use crate::cpu::CpuClass;

/// The class of this build.
const CLASS: CpuClass = match cfg!(target_arch = "wasm64") {
    true => CpuClass::Wasm64Extended,
    false => CpuClass::Wasm32V128,
};

mod dot;

vector::class!(V4, CLASS, ["simd128"], Dot);

/// Whether the module uses relaxed SIMD. Compilers then take the instruction behind `f32x4_pmax`
/// (`a < b ? b : a`, which is one of a processor's) for the relaxed one, which may lose a NaN.
const RELAXED: bool = cfg!(target_feature = "relaxed-simd");

/// Four lanes.
#[derive(Clone, Copy)]
struct V4(v128);

/// All bits in the first `count` lanes.
#[inline(always)]
fn leading(count: usize) -> v128 {
    i32x4_gt(i32x4_splat(count as i32), i32x4(0, 1, 2, 3))
}

// SAFETY of every block below: the module has simd128, and the caller vouches for the pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for V4 {
    const LANES: usize = 4;
    // Products that are not added at once take a register more.
    const TILE_ROWS: usize = if RELAXED { 6 } else { 4 };
    const TILE_VECTORS: usize = 2;
    const TILE_STEPS: usize = 1;
    const WORD_ROWS: usize = 3;
    const FINISH_ROWS: usize = 3;
    const ZERO: Self = V4(f32x4(0.0, 0.0, 0.0, 0.0));

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        V4(f32x4_splat(value))
    }
    /// Engines make a constant from immediates, in four instructions; a load takes one. Measured: a
    /// third of GELU.
    #[inline(always)]
    fn kept<const N: usize>(numbers: &'static [f32; N]) -> &'static [f32; N] {
        black_box(numbers)
    }
    #[inline(always)]
    unsafe fn prefetch_later(_: *const f32) {}
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { V4(v128_load(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        unsafe {
            V4(match count {
                0 => Self::ZERO.0,
                1 => v128_load32_zero(from.cast()),
                2 => v128_load64_zero(from.cast()),
                3 => v128_load32_lane::<2>(v128_load64_zero(from.cast()), from.add(2).cast()),
                _ => v128_load(from.cast()),
            })
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { v128_store(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        unsafe {
            match count {
                0 => {}
                1 => v128_store32_lane::<0>(self.0, to.cast()),
                2 => v128_store64_lane::<0>(self.0, to.cast()),
                3 => {
                    v128_store64_lane::<0>(self.0, to.cast());
                    v128_store32_lane::<2>(self.0, to.add(2).cast());
                }
                _ => v128_store(to.cast(), self.0),
            }
        }
    }
    #[inline(always)]
    unsafe fn first_or(self, count: usize, rest: Self) -> Self {
        V4(v128_bitselect(self.0, rest.0, leading(count)))
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        V4(f32x4_add(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        V4(f32x4_sub(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        V4(f32x4_mul(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        V4(f32x4_div(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, term: Self) -> Self {
        #[cfg(target_feature = "relaxed-simd")]
        return V4(f32x4_relaxed_madd(self.0, factor.0, term.0));
        #[cfg(not(target_feature = "relaxed-simd"))]
        V4(f32x4_add(f32x4_mul(self.0, factor.0), term.0))
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        V4(if RELAXED {
            v128_bitselect(self.0, other.0, f32x4_gt(self.0, other.0))
        } else {
            f32x4_pmax(other.0, self.0)
        })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        V4(if RELAXED {
            v128_bitselect(self.0, other.0, f32x4_lt(self.0, other.0))
        } else {
            f32x4_pmin(other.0, self.0)
        })
    }
    #[cfg(target_feature = "relaxed-simd")]
    #[inline(always)]
    unsafe fn max_of_numbers(self, other: Self) -> Self {
        V4(f32x4_relaxed_max(self.0, other.0))
    }
    #[cfg(target_feature = "relaxed-simd")]
    #[inline(always)]
    unsafe fn min_of_numbers(self, other: Self) -> Self {
        V4(f32x4_relaxed_min(self.0, other.0))
    }
    #[inline(always)]
    unsafe fn mantissa_to_exponent(self) -> Self {
        V4(i32x4_shl(self.0, 23))
    }
    #[inline(always)]
    unsafe fn halves(self) -> (Self, Self) {
        let odd = v128_and(self.0, i32x4_splat(-65536));
        (V4(i32x4_shl(self.0, 16)), V4(odd))
    }
    #[inline(always)]
    unsafe fn join(even: *const u16, odd: *const u16) -> Self {
        unsafe {
            let even = i32x4_load_extend_u16x4(even);
            let odd = i32x4_load_extend_u16x4(odd);
            V4(v128_or(even, i32x4_shl(odd, 16)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let bits = self.0;
            let high = u32x4_shr(bits, 16);
            let magnitude = v128_and(bits, i32x4_splat(0x7fff_ffff));
            let half = i32x4_add(v128_and(high, i32x4_splat(1)), i32x4_splat(0x7fff));
            let rounded = u32x4_shr(i32x4_add(bits, half), 16);
            // Adding a half could make a NaN a number.
            let quiet = v128_or(high, i32x4_splat(0x40));
            let nan = i32x4_gt(magnitude, i32x4_splat(f32::INFINITY.to_bits() as i32));
            let rounded = v128_bitselect(quiet, rounded, nan);
            let tiny = i32x4_lt(magnitude, i32x4_splat(BF16_LEAST.to_bits() as i32));
            let kept = v128_andnot(rounded, tiny);
            v128_store64_lane::<0>(u16x8_narrow_i32x4(kept, kept), to.cast());
        }
    }
    #[inline(always)]
    unsafe fn add_byte_product(self, factor: i32, right: Self, byte: usize) -> Self {
        let high = i32x4_shl(right.0, 24 - 8 * byte as u32);
        let product = i32x4_mul(i32x4_shr(high, 24), i32x4_splat(factor));
        V4(i32x4_add(self.0, product))
    }
    #[inline(always)]
    unsafe fn integers_to_floats(self) -> Self {
        V4(f32x4_convert_i32x4(self.0))
    }
    #[inline(always)]
    unsafe fn larger_magnitude(self, other: Self) -> Self {
        let other = v128_and(other.0, i32x4_splat(0x7fff_ffff));
        V4(i32x4_max(self.0, other))
    }
    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8) {
        unsafe {
            let bytes =
                i8x16_shuffle::<0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12>(self.0, self.0);
            v128_store32_lane::<0>(bytes, to.cast());
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes_of_four(four: [Self; 4], to: *mut u8) {
        // Of each pair of 16 bits the lower ones, and of those of each pair of bytes.
        let halves = [[four[0].0, four[1].0], [four[2].0, four[3].0]]
            .map(|[one, next]| i16x8_shuffle::<0, 2, 4, 6, 8, 10, 12, 14>(one, next));
        let bytes = i8x16_shuffle::<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(
            halves[0], halves[1],
        );
        unsafe { v128_store(to.cast(), bytes) };
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let two = f32x4_add(self.0, i32x4_shuffle::<2, 3, 2, 3>(self.0, self.0));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let two = f32x4_pmax(self.0, i32x4_shuffle::<2, 3, 2, 3>(self.0, self.0));
        let one = f32x4_pmax(two, i32x4_shuffle::<1, 1, 1, 1>(two, two));
        f32x4_extract_lane::<0>(one)
    }
    #[inline(always)]
    unsafe fn transpose(
        from: *const f32,
        stride: usize,
        rows: usize,
        columns: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        unsafe {
            let mut r = [Self::ZERO.0; 4];
            for (row, value) in r.iter_mut().enumerate() {
                if row < rows {
                    *value = vector::load_up_to::<V4>(from.add(row * stride), columns).0;
                }
            }
            // Pairs of rows, then all four.
            let t = [
                i32x4_shuffle::<0, 4, 1, 5>(r[0], r[1]),
                i32x4_shuffle::<2, 6, 3, 7>(r[0], r[1]),
                i32x4_shuffle::<0, 4, 1, 5>(r[2], r[3]),
                i32x4_shuffle::<2, 6, 3, 7>(r[2], r[3]),
            ];
            let r = [
                i32x4_shuffle::<0, 1, 4, 5>(t[0], t[2]),
                i32x4_shuffle::<2, 3, 6, 7>(t[0], t[2]),
                i32x4_shuffle::<0, 1, 4, 5>(t[1], t[3]),
                i32x4_shuffle::<2, 3, 6, 7>(t[1], t[3]),
            ];
            for (column, value) in r.iter().enumerate() {
                if column < columns {
                    v128_store(to.add(column * to_stride).cast(), *value);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn product(tile: &Product) {
        unsafe { product(tile) }
    }
}
