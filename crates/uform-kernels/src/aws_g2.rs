//! `aws-g2`: NEON alone. 32 registers of 4 lanes: tiles of 6 rows by 4 vectors.
//!
//! A broadcast from memory takes a turn of the vector units there, so four numbers of each row are
//! loaded at once and multiplied by lane. That is a register a row beside the sums: 24 for sums, 6
//! for rows and 2 for weights are all there are. 8 rows by 2 vectors would load as little, but its
//! 16 sums are only just the additions that four units of latency 4 have under way; and
//! a step of 4 vectors is a cache line of weights.

use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

use super::attention::{Attention, AttentionTask};
use super::linear::Linear;
use super::operand::Conversion;
use super::packed::TILES_COLUMNS;
use super::precision::BF16_LEAST;
use super::rows::{Embedded, Normed};
use super::vector::tile::{LINE, Product};
use super::vector::tiles::{TILES_ROWS, VectorBf16, VectorI8};
use super::vector::{self, Simd};
use super::{Kernels, Precision};
use crate::cpu::CpuClass;

vector::class!(V4, CpuClass::AwsG2, ["neon"]);

/// Four lanes.
#[derive(Clone, Copy)]
pub(super) struct V4(float32x4_t);

/// Numbers of a row that are loaded at once.
const DEPTH: usize = 4;

/// Weights are asked for this many steps ahead.
const AHEAD: usize = 24;

/// Four ones and four zeros: any count of leading ones is a window of it.
static LEADING: [u32; 8] = [u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0, 0, 0, 0];

/// All bits in the first `count` lanes, at most 4.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn leading(count: usize) -> uint32x4_t {
    debug_assert!(count <= 4);
    // SAFETY: four elements from 4 − count on are within the 8.
    unsafe { vld1q_u32(LEADING.as_ptr().add(4 - count)) }
}

/// One step of `k`: adds to each sum the product of its column and lane `LANE` of its row's factors.
///
/// # Safety
/// The CPU has NEON, and `right` has the tile's vectors.
#[inline(always)]
unsafe fn step<const LANE: i32, const VECTORS: usize, const ROWS: usize>(
    sums: &mut [[float32x4_t; VECTORS]; ROWS],
    factors: &[float32x4_t; ROWS],
    right: *const f32,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        for vector in 0..VECTORS {
            let column = vld1q_f32(right.add(4 * vector));
            for (sums, factors) in sums.iter_mut().zip(factors) {
                sums[vector] = vfmaq_laneq_f32::<LANE>(sums[vector], column, *factors);
            }
        }
    }
}

/// Asks for a cache line, at any address, into the nearest cache.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn prefetch(from: *const f32) {
    // SAFETY: it changes nothing but caches, and takes any address.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) from, options(nostack, readonly, preserves_flags))
    }
}

// SAFETY of every block below: the caller vouches for NEON and for the pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for V4 {
    const LANES: usize = 4;
    const TILE_ROWS: usize = 6;
    const TILE_VECTORS: usize = 4;
    const TILE_STEPS: usize = DEPTH;
    const WORD_ROWS: usize = 3;
    const ZERO: Self = V4(unsafe { std::mem::zeroed() });

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { V4(vdupq_n_f32(value)) }
    }
    #[inline(always)]
    unsafe fn prefetch_later(from: *const f32) {
        unsafe {
            asm!("prfm pldl2keep, [{}]", in(reg) from, options(nostack, readonly, preserves_flags))
        }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { V4(vld1q_f32(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        unsafe {
            let zero = vdup_n_f32(0.0);
            V4(match count {
                0 => vcombine_f32(zero, zero),
                1 => vcombine_f32(vld1_lane_f32::<0>(from, zero), zero),
                2 => vcombine_f32(vld1_f32(from), zero),
                3 => vcombine_f32(vld1_f32(from), vld1_lane_f32::<0>(from.add(2), zero)),
                _ => vld1q_f32(from),
            })
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { vst1q_f32(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        unsafe {
            match count {
                0 => {}
                1 => vst1q_lane_f32::<0>(to, self.0),
                2 => vst1_f32(to, vget_low_f32(self.0)),
                3 => {
                    vst1_f32(to, vget_low_f32(self.0));
                    vst1q_lane_f32::<2>(to.add(2), self.0);
                }
                _ => vst1q_f32(to, self.0),
            }
        }
    }
    #[inline(always)]
    unsafe fn first_or(self, count: usize, rest: Self) -> Self {
        unsafe { V4(vbslq_f32(leading(count), self.0, rest.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { V4(vaddq_f32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { V4(vsubq_f32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { V4(vmulq_f32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { V4(vdivq_f32(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, term: Self) -> Self {
        unsafe { V4(vfmaq_f32(term.0, self.0, factor.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // FMAX returns NaN when either is.
        unsafe { V4(vbslq_f32(vcgtq_f32(self.0, other.0), self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { V4(vbslq_f32(vcltq_f32(self.0, other.0), self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mantissa_to_exponent(self) -> Self {
        unsafe {
            V4(vreinterpretq_f32_u32(vshlq_n_u32::<23>(
                vreinterpretq_u32_f32(self.0),
            )))
        }
    }
    #[inline(always)]
    unsafe fn halves(self) -> (Self, Self) {
        unsafe {
            let words = vreinterpretq_u32_f32(self.0);
            let even = vshlq_n_u32::<16>(words);
            let odd = vandq_u32(words, vdupq_n_u32(0xffff_0000));
            (
                V4(vreinterpretq_f32_u32(even)),
                V4(vreinterpretq_f32_u32(odd)),
            )
        }
    }
    #[inline(always)]
    unsafe fn join(even: *const u16, odd: *const u16) -> Self {
        unsafe {
            let (even, odd) = (vmovl_u16(vld1_u16(even)), vmovl_u16(vld1_u16(odd)));
            let words = vorrq_u32(even, vshlq_n_u32::<16>(odd));
            V4(vreinterpretq_f32_u32(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let bits = vreinterpretq_u32_f32(self.0);
            let last = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let half = vaddq_u32(last, vdupq_n_u32(0x7fff));
            // Adding a half could make a NaN a number.
            let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
            let number = vceqq_f32(self.0, self.0);
            let rounded = vbslq_u32(number, vaddq_u32(bits, half), quiet);
            let tiny = vcaltq_f32(self.0, vdupq_n_f32(BF16_LEAST));
            let kept = vbicq_u32(rounded, tiny);
            vst1_u16(to, vshrn_n_u32::<16>(kept));
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(self, left: Self, right: Self) -> Self {
        unsafe {
            let (left, right) = (vreinterpretq_s8_f32(left.0), vreinterpretq_s8_f32(right.0));
            // Sums of pairs of 32-bit numbers, which are those of a lane's four bytes by halves.
            let low = vpaddlq_s16(vmull_s8(vget_low_s8(left), vget_low_s8(right)));
            let high = vpaddlq_s16(vmull_high_s8(left, right));
            let sum = vaddq_s32(vreinterpretq_s32_f32(self.0), vpaddq_s32(low, high));
            V4(vreinterpretq_f32_s32(sum))
        }
    }
    #[inline(always)]
    unsafe fn add_byte_product(self, factor: i32, right: Self, byte: usize) -> Self {
        unsafe {
            let up = vdupq_n_s32(24 - 8 * byte as i32);
            let high = vshlq_s32(vreinterpretq_s32_f32(right.0), up);
            let signed = vshrq_n_s32::<24>(high);
            let sum = vmlaq_n_s32(vreinterpretq_s32_f32(self.0), signed, factor);
            V4(vreinterpretq_f32_s32(sum))
        }
    }
    #[inline(always)]
    unsafe fn integers_to_floats(self) -> Self {
        unsafe { V4(vcvtq_f32_s32(vreinterpretq_s32_f32(self.0))) }
    }
    #[inline(always)]
    unsafe fn larger_magnitude(self, other: Self) -> Self {
        unsafe {
            let other = vreinterpretq_u32_f32(vabsq_f32(other.0));
            let larger = vmaxq_u32(vreinterpretq_u32_f32(self.0), other);
            V4(vreinterpretq_f32_u32(larger))
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8) {
        unsafe {
            let words = vmovn_u32(vreinterpretq_u32_f32(self.0));
            let bytes = vmovn_u16(vcombine_u16(words, words));
            let four = vget_lane_u32::<0>(vreinterpret_u32_u8(bytes));
            to.cast::<u32>().write_unaligned(four);
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { vpadds_f32(vadd_f32(vget_low_f32(self.0), vget_high_f32(self.0))) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe { vmaxvq_f32(self.0) }
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
            let mut r = [vdupq_n_f32(0.0); 4];
            for (row, value) in r.iter_mut().enumerate() {
                if row < rows {
                    *value = vector::load_up_to::<V4>(from.add(row * stride), columns).0;
                }
            }
            // Pairs of rows, then both pairs.
            let pairs = [
                vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])),
                vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1])),
                vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])),
                vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3])),
            ];
            let transposed = [
                vzip1q_f64(pairs[0], pairs[2]),
                vzip1q_f64(pairs[1], pairs[3]),
                vzip2q_f64(pairs[0], pairs[2]),
                vzip2q_f64(pairs[1], pairs[3]),
            ];
            for (column, value) in transposed.into_iter().enumerate() {
                if column < columns {
                    vst1q_f32(to.add(column * to_stride), vreinterpretq_f32_f64(value));
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn tile<const VECTORS: usize, const ROWS: usize>(product: &Product) {
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); VECTORS]; ROWS];
            let (mut left, mut right) = (product.left, product.right);
            let stride = 4 * VECTORS;
            let ahead = AHEAD * stride;
            for k in (0..product.depth / DEPTH * DEPTH).step_by(DEPTH) {
                if k < product.next_lines {
                    for line in k..k + DEPTH {
                        Self::prefetch_later(product.next.wrapping_add(line * LINE));
                    }
                }
                let mut factors = [vdupq_n_f32(0.0); ROWS];
                for (row, factors) in factors.iter_mut().enumerate() {
                    *factors = vld1q_f32(left.add(row * product.left_stride));
                }
                prefetch(right.wrapping_add(ahead));
                step::<0, VECTORS, ROWS>(&mut sums, &factors, right);
                right = right.add(stride);
                prefetch(right.wrapping_add(ahead));
                step::<1, VECTORS, ROWS>(&mut sums, &factors, right);
                right = right.add(stride);
                prefetch(right.wrapping_add(ahead));
                step::<2, VECTORS, ROWS>(&mut sums, &factors, right);
                right = right.add(stride);
                prefetch(right.wrapping_add(ahead));
                step::<3, VECTORS, ROWS>(&mut sums, &factors, right);
                right = right.add(stride);
                left = left.add(DEPTH);
            }
            for _ in 0..product.depth % DEPTH {
                let mut factors = [vdupq_n_f32(0.0); ROWS];
                for (row, factors) in factors.iter_mut().enumerate() {
                    *factors = vdupq_n_f32(*left.add(row * product.left_stride));
                }
                step::<0, VECTORS, ROWS>(&mut sums, &factors, right);
                right = right.add(stride);
                left = left.add(1);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    let out = product.out.add(row * product.out_stride + 4 * vector);
                    vst1q_f32(out, *sum);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn product(tile: &Product) {
        unsafe { product(tile) }
    }
}
