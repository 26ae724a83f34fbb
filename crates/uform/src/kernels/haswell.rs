//! `intel-haswell`: AVX2 and FMA. 16 registers of 8 lanes: tiles of 6 rows by 2 vectors.

use std::arch::x86_64::*;
use std::ops::Range;

use super::Kernels;
use super::attention::{Attention, Piece};
use super::linear::Linear;
use super::rows::{Embedded, Normed};
use super::vector::tile::Product;
use super::vector::{self, Simd};
use crate::hardware::CpuClass;

vector::class!(V8, CpuClass::IntelHaswell, ["avx2", "fma"]);

/// Eight lanes.
#[derive(Clone, Copy)]
struct V8(__m256);

/// Eight ones and eight zeros: any count of leading ones is a window of it.
static LEADING: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// All bits in the first `count` lanes, at most 8.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn leading(count: usize) -> __m256i {
    debug_assert!(count <= 8);
    // SAFETY: eight elements from 8 − count on are within the 16.
    unsafe { _mm256_loadu_si256(LEADING.as_ptr().add(8 - count).cast()) }
}

// SAFETY of every block below: the caller vouches for AVX2 and FMA, and for the pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for V8 {
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;
    const TILE_VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { V8(_mm256_set1_ps(value)) }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn prefetch_later(from: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { V8(_mm256_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        unsafe { V8(_mm256_maskload_ps(from, leading(count))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        unsafe { _mm256_maskstore_ps(to, leading(count), self.0) }
    }
    #[inline(always)]
    unsafe fn first_or(self, count: usize, rest: Self) -> Self {
        unsafe {
            V8(_mm256_blendv_ps(
                rest.0,
                self.0,
                _mm256_castsi256_ps(leading(count)),
            ))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { V8(_mm256_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { V8(_mm256_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { V8(_mm256_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { V8(_mm256_div_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, term: Self) -> Self {
        unsafe { V8(_mm256_fmadd_ps(self.0, factor.0, term.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { V8(_mm256_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { V8(_mm256_min_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mantissa_to_exponent(self) -> Self {
        unsafe {
            V8(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(
                _mm256_castps_si256(self.0),
            )))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe {
            let four = _mm_add_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe {
            let four = _mm_max_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
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
            let mut r = [_mm256_setzero_ps(); 8];
            for (row, value) in r.iter_mut().enumerate() {
                if row < rows {
                    *value = vector::load_up_to::<V8>(from.add(row * stride), columns).0;
                }
            }
            // Pairs of rows, then fours within each half, then the halves.
            let mut t = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..2 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                r[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
                r[4 * i + 1] = _mm256_shuffle_ps::<0xEE>(a, c);
                r[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                r[4 * i + 3] = _mm256_shuffle_ps::<0xEE>(b, d);
            }
            for i in 0..4 {
                t[i] = _mm256_permute2f128_ps::<0x20>(r[i], r[i + 4]);
                t[i + 4] = _mm256_permute2f128_ps::<0x31>(r[i], r[i + 4]);
            }
            for (column, value) in t.iter().enumerate() {
                if column < columns {
                    _mm256_storeu_ps(to.add(column * to_stride), *value);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn product(tile: &Product) {
        unsafe { product(tile) }
    }
}
