//! `intel-skylake`: AVX-512 F, BW, DQ and VL. 32 registers of 16 lanes: tiles of 8 rows by 3 vectors.

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

vector::class!(
    Plain,
    CpuClass::IntelSkylake,
    ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"]
);

/// Sixteen lanes. `BF16`: the CPU has AVX-512 BF16 as well.
#[derive(Clone, Copy)]
pub(super) struct V16<const BF16: bool>(__m512);

/// Sixteen lanes on this class.
pub(super) type Plain = V16<false>;

/// The first `count` lanes, at most 16.
#[inline(always)]
fn leading(count: usize) -> __mmask16 {
    debug_assert!(count <= 16);
    ((1u32 << count) - 1) as __mmask16
}

// SAFETY of every block below: the caller vouches for AVX-512 and for the pointers.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<const BF16: bool> Simd for V16<BF16> {
    const LANES: usize = 16;
    const TILE_ROWS: usize = 8;
    const TILE_VECTORS: usize = 3;
    const TILE_STEPS: usize = 4;
    const WORD_ROWS: usize = 6;
    const ZERO: Self = V16(unsafe { std::mem::zeroed() });

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { V16(_mm512_set1_ps(value)) }
    }
    #[inline(always)]
    unsafe fn prefetch_later(from: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { V16(_mm512_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        unsafe { V16(_mm512_maskz_loadu_ps(leading(count), from)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        unsafe { _mm512_mask_storeu_ps(to, leading(count), self.0) }
    }
    #[inline(always)]
    unsafe fn first_or(self, count: usize, rest: Self) -> Self {
        unsafe { V16(_mm512_mask_blend_ps(leading(count), rest.0, self.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { V16(_mm512_add_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { V16(_mm512_sub_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { V16(_mm512_mul_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        unsafe { V16(_mm512_div_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, term: Self) -> Self {
        unsafe { V16(_mm512_fmadd_ps(self.0, factor.0, term.0)) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        unsafe { V16(_mm512_max_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        unsafe { V16(_mm512_min_ps(self.0, other.0)) }
    }
    #[inline(always)]
    unsafe fn mantissa_to_exponent(self) -> Self {
        unsafe {
            V16(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(
                _mm512_castps_si512(self.0),
            )))
        }
    }
    #[inline(always)]
    unsafe fn halves(self) -> (Self, Self) {
        unsafe {
            let words = _mm512_castps_si512(self.0);
            let even = _mm512_slli_epi32::<16>(words);
            let odd = _mm512_and_si512(words, _mm512_set1_epi32(-65536));
            (
                V16(_mm512_castsi512_ps(even)),
                V16(_mm512_castsi512_ps(odd)),
            )
        }
    }
    #[inline(always)]
    unsafe fn join(even: *const u16, odd: *const u16) -> Self {
        unsafe {
            let even = _mm512_cvtepu16_epi32(_mm256_loadu_si256(even.cast()));
            let odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256(odd.cast()));
            let words = _mm512_or_si512(even, _mm512_slli_epi32::<16>(odd));
            V16(_mm512_castsi512_ps(words))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let magnitude = _mm512_abs_ps(self.0);
            let least = _mm512_set1_ps(BF16_LEAST);
            let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(magnitude, least);
            if BF16 {
                let rounded = _mm512_maskz_cvtneps_pbh(kept, self.0);
                to.cast::<__m256bh>().write_unaligned(rounded);
                return;
            }
            let bits = _mm512_castps_si512(self.0);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, half);
            // Adding a half could make a NaN a number.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm512_set1_epi32(0x40_0000);
            let rounded = _mm512_mask_or_epi32(rounded, nan, bits, quiet);
            let high = _mm512_maskz_srli_epi32::<16>(kept, rounded);
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(high));
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(self, left: Self, right: Self) -> Self {
        unsafe {
            let (left, right) = (_mm512_castps_si512(left.0), _mm512_castps_si512(right.0));
            // Bytes 0 and 2 as two numbers of 16 bits, then bytes 1 and 3.
            let even = _mm512_madd_epi16(
                _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(left)),
                _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(right)),
            );
            let odd =
                _mm512_madd_epi16(_mm512_srai_epi16::<8>(left), _mm512_srai_epi16::<8>(right));
            let sum = _mm512_add_epi32(_mm512_castps_si512(self.0), even);
            let sum = _mm512_add_epi32(sum, odd);
            V16(_mm512_castsi512_ps(sum))
        }
    }
    #[inline(always)]
    unsafe fn add_byte_product(self, factor: i32, right: Self, byte: usize) -> Self {
        unsafe {
            let up = _mm_cvtsi32_si128(24 - 8 * byte as i32);
            let high = _mm512_sll_epi32(_mm512_castps_si512(right.0), up);
            let signed = _mm512_srai_epi32::<24>(high);
            let product = _mm512_mullo_epi32(signed, _mm512_set1_epi32(factor));
            let sum = _mm512_add_epi32(_mm512_castps_si512(self.0), product);
            V16(_mm512_castsi512_ps(sum))
        }
    }
    #[inline(always)]
    unsafe fn integers_to_floats(self) -> Self {
        unsafe { V16(_mm512_cvtepi32_ps(_mm512_castps_si512(self.0))) }
    }
    #[inline(always)]
    unsafe fn larger_magnitude(self, other: Self) -> Self {
        unsafe {
            let other = _mm512_castps_si512(_mm512_abs_ps(other.0));
            V16(_mm512_castsi512_ps(_mm512_max_epi32(
                _mm512_castps_si512(self.0),
                other,
            )))
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(self, to: *mut u8) {
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_castps_si512(self.0))) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(
                _mm512_castps512_ps256(self.0),
                _mm512_extractf32x8_ps::<1>(self.0),
            );
            let four = _mm_add_ps(
                _mm256_castps256_ps128(eight),
                _mm256_extractf128_ps::<1>(eight),
            );
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe {
            let eight = _mm256_max_ps(
                _mm512_castps512_ps256(self.0),
                _mm512_extractf32x8_ps::<1>(self.0),
            );
            let four = _mm_max_ps(
                _mm256_castps256_ps128(eight),
                _mm256_extractf128_ps::<1>(eight),
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
            let mut r = [_mm512_setzero_ps(); 16];
            for (row, value) in r.iter_mut().enumerate() {
                if row < rows {
                    *value = vector::load_up_to::<Self>(from.add(row * stride), columns).0;
                }
            }
            // Pairs of rows, then fours within each quarter, then the quarters, twice.
            let mut t = [_mm512_setzero_ps(); 16];
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..4 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                r[4 * i] = _mm512_shuffle_ps::<0x44>(a, c);
                r[4 * i + 1] = _mm512_shuffle_ps::<0xEE>(a, c);
                r[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b, d);
                r[4 * i + 3] = _mm512_shuffle_ps::<0xEE>(b, d);
            }
            // r[4·i + j] holds columns j, j + 4, j + 8 and j + 12 of rows 4·i to 4·i + 3.
            for j in 0..4 {
                let low = _mm512_shuffle_f32x4::<0x88>(r[j], r[j + 4]);
                let high = _mm512_shuffle_f32x4::<0xDD>(r[j], r[j + 4]);
                let low_rest = _mm512_shuffle_f32x4::<0x88>(r[j + 8], r[j + 12]);
                let high_rest = _mm512_shuffle_f32x4::<0xDD>(r[j + 8], r[j + 12]);
                t[j] = _mm512_shuffle_f32x4::<0x88>(low, low_rest);
                t[j + 4] = _mm512_shuffle_f32x4::<0x88>(high, high_rest);
                t[j + 8] = _mm512_shuffle_f32x4::<0xDD>(low, low_rest);
                t[j + 12] = _mm512_shuffle_f32x4::<0xDD>(high, high_rest);
            }
            for (column, value) in t.iter().enumerate() {
                if column < columns {
                    _mm512_storeu_ps(to.add(column * to_stride), *value);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn product(tile: &Product) {
        unsafe { product(tile) }
    }
}
