//! `intel-haswell`: AVX2 and FMA. 16 registers of 8 lanes: tiles of 6 rows by 2 vectors.

use std::arch::x86_64::*;
use std::ops::Range;

use super::attention::{Attention, AttentionTask};
use super::linear::Linear;
use super::operand::Conversion;
use super::packed::TILES_COLUMNS;
use super::precision::BF16_LEAST;
use super::rows::{Embedded, Normed};
use super::vector::tile::Product;
use super::vector::tiles::{TILES_ROWS, VectorBf16, VectorI8};
use super::vector::{self, Simd};
use super::{Kernels, Precision};
use crate::cpu::CpuClass;

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
    const TILE_STEPS: usize = 4;
    const WORD_ROWS: usize = 3;
    const ZERO: Self = V8(unsafe { std::mem::zeroed() });

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { V8(_mm256_set1_ps(value)) }
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
    unsafe fn halves(self) -> (Self, Self) {
        unsafe {
            let words = _mm256_castps_si256(self.0);
            let even = _mm256_slli_epi32::<16>(words);
            let odd = _mm256_and_si256(words, _mm256_set1_epi32(-65536));
            (V8(_mm256_castsi256_ps(even)), V8(_mm256_castsi256_ps(odd)))
        }
    }
    #[inline(always)]
    unsafe fn join(even: *const u16, odd: *const u16) -> Self {
        unsafe {
            let even = _mm256_cvtepu16_epi32(_mm_loadu_si128(even.cast()));
            let odd = _mm256_cvtepu16_epi32(_mm_loadu_si128(odd.cast()));
            let words = _mm256_or_si256(even, _mm256_slli_epi32::<16>(odd));
            V8(_mm256_castsi256_ps(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff));
            let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
            // Adding a half could make a NaN a number.
            let quiet = _mm256_or_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x40));
            let infinite = _mm256_set1_epi32(f32::INFINITY.to_bits() as i32);
            let nan = _mm256_cmpgt_epi32(magnitude, infinite);
            let rounded = _mm256_blendv_epi8(rounded, quiet, nan);
            let least = _mm256_set1_epi32(BF16_LEAST.to_bits() as i32);
            let tiny = _mm256_cmpgt_epi32(least, magnitude);
            let kept = _mm256_andnot_si256(tiny, rounded);
            let packed = _mm_packus_epi32(
                _mm256_castsi256_si128(kept),
                _mm256_extracti128_si256::<1>(kept),
            );
            _mm_storeu_si128(to.cast(), packed);
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(self, left: Self, right: Self) -> Self {
        unsafe {
            let (left, right) = (_mm256_castps_si256(left.0), _mm256_castps_si256(right.0));
            // Bytes 0 and 2 as two numbers of 16 bits, then bytes 1 and 3.
            let even = _mm256_madd_epi16(
                _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(left)),
                _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(right)),
            );
            let odd =
                _mm256_madd_epi16(_mm256_srai_epi16::<8>(left), _mm256_srai_epi16::<8>(right));
            let sum = _mm256_add_epi32(_mm256_castps_si256(self.0), even);
            let sum = _mm256_add_epi32(sum, odd);
            V8(_mm256_castsi256_ps(sum))
        }
    }
    #[inline(always)]
    unsafe fn add_byte_product(self, factor: i32, right: Self, byte: usize) -> Self {
        unsafe {
            let up = _mm_cvtsi32_si128(24 - 8 * byte as i32);
            let high = _mm256_sll_epi32(_mm256_castps_si256(right.0), up);
            let signed = _mm256_srai_epi32::<24>(high);
            let product = _mm256_mullo_epi32(signed, _mm256_set1_epi32(factor));
            let sum = _mm256_add_epi32(_mm256_castps_si256(self.0), product);
            V8(_mm256_castsi256_ps(sum))
        }
    }
    #[inline(always)]
    unsafe fn integers_to_floats(self) -> Self {
        unsafe { V8(_mm256_cvtepi32_ps(_mm256_castps_si256(self.0))) }
    }
    #[inline(always)]
    unsafe fn larger_magnitude(self, other: Self) -> Self {
        unsafe {
            let other = _mm256_castps_si256(other.0);
            let other = _mm256_and_si256(other, _mm256_set1_epi32(0x7fff_ffff));
            V8(_mm256_castsi256_ps(_mm256_max_epi32(
                _mm256_castps_si256(self.0),
                other,
            )))
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8) {
        unsafe {
            let low = _mm256_and_si256(_mm256_castps_si256(self.0), _mm256_set1_epi32(0xff));
            let words = _mm_packus_epi32(
                _mm256_castsi256_si128(low),
                _mm256_extracti128_si256::<1>(low),
            );
            _mm_storel_epi64(to.cast(), _mm_packus_epi16(words, words));
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
