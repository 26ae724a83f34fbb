//! The number formats dense layers multiply in, and how each rounds.
//!
//! The products of the encoder's dense layers are in the precision, and in bf16 those of
//! attention. What is between them (the residual stream, norms, softmax, activations) is f32 in all
//! three.
//!
//! # `bf16`
//!
//! Weights and rows are rounded to bfloat16, to nearest even; magnitudes below
//! [`BF16_LEAST`] become zero, so that no product and no sum of products is ever a
//! subnormal number. Inputs are taken 32 at a time, padded with zeros to a whole number. Within
//! such a step the products of inputs 0, 2, 4 … are added up from zero in order, those of inputs
//! 1, 3, 5 … as well, each product exact and each addition rounded to nearest even in f32; then
//! `sum += even + odd`. That is what the instruction TDPBF16PS does (Intel, Software Developer's
//! Manual, volume 2), which a test holds against this text. A class without it computes the
//! same bits. GELU is the exact form's to 4e-5 there, a fiftieth of what the rounding takes.
//!
//! Attention's two products are such sums as well. Queries, keys and values are rounded as they leave
//! their dense layer, bias included. A score is the sum over a head's columns, and stays f32; of a
//! query's scores s, the weights are e^((s − the largest)/√(head size)), added up in f32 and then
//! rounded to bfloat16 each. The context is the sum over the text's keys of weights and values,
//! times the reciprocal of the weights' sum before rounding; it is rounded once, as the next layer's
//! row. Inputs of a step are a text's own keys, counted from its first.
//!
//! # `i8`
//!
//! Symmetric, one scale an output of the weights and one a row of the input, the latter found
//! when the row is there. With m the largest magnitude of a row (of an output's weights), its
//! scale is s = m/127 and its numbers are q = round(x·(127/m)), to nearest even, in f32; m below
//! [`I8_LEAST`] counts as zero, with s = 0 and all q = 0. A dense layer is
//! `f32(Σ q_row·q_weight)·(s_row·s_weight)`, then `+ bias`: the sum is exact, in 32-bit
//! integers, and every other step is rounded by itself. All classes compute the same bits.

use crate::hardware::CpuClass;
use crate::{Error, Result};

/// The least magnitude a bf16 number keeps: 2^−50.
pub(super) const BF16_LEAST: f32 = f32::from_bits((127 - 50) << 23);

/// The least magnitude a row in i8 may have as its largest: 2^−100.
pub(super) const I8_LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// The largest number of an i8 row.
pub(super) const I8_LARGEST: f32 = 127.0;

/// Adding this to a number below 2²² leaves the nearest integer in the low bits.
pub(super) const I8_ROUNDER: f32 = 12_582_912.0;

/// The number format in which dense layers multiply; the module says how each rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// IEEE 754 single precision.
    F32,
    /// bfloat16 numbers, f32 sums.
    Bf16,
    /// 8-bit integers with scales, 32-bit integer sums.
    I8,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::I8];

    /// The precision a caller's word stands for; `None` for `"auto"`, which is
    /// [`Precision::auto`]. i8 has no word yet: one scale a row is too coarse for rows with a
    /// number a hundred times the others, which MiniLM has at the start of every text.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for any other word, naming those that would do.
    pub fn parse(word: &str) -> Result<Option<Precision>> {
        if word == "auto" {
            return Ok(None);
        }
        let offered = [Precision::F32, Precision::Bf16];
        let found = offered.into_iter().find(|one| one.word() == word);
        found.map(Some).ok_or_else(|| {
            Error::invalid(format!(
                "precision: {word:?} is not known; it is one of \"auto\", \"f32\", \"bf16\""
            ))
        })
    }

    /// What `"auto"` means on a class: bf16 where it is multiplied in matrix units, else f32.
    pub fn auto(class: CpuClass) -> Precision {
        let mut chain = std::iter::successors(Some(class), |class| class.falls_to());
        match chain.any(|class| class == CpuClass::IntelSapphire) {
            true => Precision::Bf16,
            false => Precision::F32,
        }
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::I8 => "i8",
        }
    }
}

/// The nearest bfloat16's bits, as the module describes.
#[inline(always)]
pub(super) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    if magnitude < BF16_LEAST.to_bits() {
        0
    } else if magnitude > f32::INFINITY.to_bits() {
        (bits >> 16) as u16 | 0x40
    } else {
        rounded
    }
}

/// A row's scale, and the factor its numbers take on their way to integers; `largest` are the
/// bits of its largest magnitude, NaN being larger than any number. A row that is not finite
/// has the scale NaN, which no sum hides.
#[inline(always)]
pub(super) fn i8_scale(largest: u32) -> (f32, f32) {
    let largest = f32::from_bits(largest);
    if largest < I8_LEAST {
        (0.0, 0.0)
    } else if largest < f32::INFINITY {
        (largest / I8_LARGEST, I8_LARGEST / largest)
    } else {
        (f32::NAN, 0.0)
    }
}

/// The integer of one number of a row; `factor` comes from [`i8_scale`].
#[inline(always)]
pub(super) fn to_i8(value: f32, factor: f32) -> i8 {
    (value * factor + I8_ROUNDER).to_bits() as u8 as i8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn precisions_have_their_words() {
        assert_eq!(Precision::parse("auto").unwrap(), None);
        for precision in [Precision::F32, Precision::Bf16] {
            let parsed = Precision::parse(precision.word()).unwrap();
            assert_eq!(parsed, Some(precision));
        }
        for word in ["", "F32", "i8", "fp16", "f32 "] {
            let error = Precision::parse(word).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            let words = "\"auto\", \"f32\", \"bf16\"";
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn auto_is_bf16_where_tiles_multiply_it() {
        use CpuClass::*;
        for class in CpuClass::ALL {
            let tiles = matches!(class, IntelSapphire | IntelGranite | IntelDiamond);
            let expected = if tiles {
                Precision::Bf16
            } else {
                Precision::F32
            };
            assert_eq!(Precision::auto(class), expected, "{class}");
        }
    }

    #[test]
    fn bf16_is_the_nearest_and_tiny_numbers_are_zero() {
        for step in 0..200_000u32 {
            let value = f32::from_bits(step.wrapping_mul(2_654_435_761));
            let found = to_bf16(value);
            if value.abs() < BF16_LEAST {
                assert_eq!(found, 0, "{value}");
            } else {
                assert_eq!(found, half::bf16::from_f32(value).to_bits(), "{value}");
            }
        }
        for nan in [0x7fff_ffff, 0xffff_ffff, 0x7f80_0001, 0xffc0_0000] {
            assert!(half::bf16::from_bits(to_bf16(f32::from_bits(nan))).is_nan());
        }
    }

    #[test]
    fn i8_reaches_from_end_to_end() {
        for largest in [1e-29, 0.1, 1.0 / 3.0, 7.77, 1e30] {
            let (scale, factor) = i8_scale(f32::to_bits(largest));
            assert_eq!(to_i8(largest, factor), 127);
            assert_eq!(to_i8(-largest, factor), -127);
            assert_eq!(to_i8(0.0, factor), 0);
            assert_eq!(scale, largest / 127.0);
        }
        assert_eq!(i8_scale(0), (0.0, 0.0));
        assert!(i8_scale(f32::INFINITY.to_bits()).0.is_nan());
        assert!(i8_scale(f32::NAN.to_bits()).0.is_nan());
    }
}
