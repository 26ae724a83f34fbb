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
//! same bits. GELU is the exact form's to 4e-5 there and in i8, a fiftieth of what the rounding takes.
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
//! when the row is there. With m the largest magnitude of an output's weights, their
//! scale is s = m/127 and their numbers are q = round(x·(127/m)), to nearest even, in f32; m below
//! [`I8_LEAST`] counts as zero, with s = 0 and all q = 0.
//!
//! Rows are done alike, but for outliers. Transformers have a few numbers a hundred times the
//! others, at the start of every text above all, beside which the others would round to nothing
//! (Dettmers et al. 2022, "LLM.int8()", arXiv 2208.07339). With a the smallest of eight maxima,
//! each of the magnitudes whose places are the same modulo 8, the first [`I8_APART`] numbers of a row
//! above [`I8_LIMIT`]·a are kept apart. The row's m is the largest magnitude of the others,
//! or 2^−8 of the largest of all if that is more; all numbers are rounded as above, those
//! apart too, to integers below 2¹⁵.
//!
//! A dense layer is `f32(Σ q_row·q_weight)·(s_row·s_weight)`, then `+ bias`: the sum is exact,
//! in 32-bit integers, and every other step is rounded by itself. All classes compute
//! the same bits.
//!
//! Weights have outliers too: single inputs of a feed-forward half. The model balances them
//! with what comes in, by powers of two ([`balance`]), which changes nothing but the rounding.

use std::f32::consts::SQRT_2;

use super::operand::Tail;
use crate::cpu::CpuClass;
use crate::{Error, Result, quoted};

/// The least magnitude a bf16 number keeps: 2^−50.
pub(super) const BF16_LEAST: f32 = f32::from_bits((127 - 50) << 23);

/// The least magnitude a row in i8 may have as its largest: 2^−100.
pub(super) const I8_LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// How many numbers of a row may be kept apart.
pub(super) const I8_APART: usize = 4;

/// How far above the ordinary a number is kept apart.
pub(super) const I8_LIMIT: f32 = 5.0;

/// Places of a row that differ by a multiple of this share a maximum.
pub(super) const I8_MAXIMA: usize = 8;

/// Numbers of a row that are looked at together for outliers.
const BLOCK: usize = 16;

/// The least factor of [`balance`]; the largest is its inverse.
const BALANCE_LEAST: f32 = 1.0 / 256.0;

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
    /// [`Precision::auto`].
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for any other word, naming those that would do.
    pub fn parse(word: &str) -> Result<Option<Precision>> {
        if word == "auto" {
            return Ok(None);
        }
        let found = Precision::ALL.into_iter().find(|one| one.word() == word);
        found.map(Some).ok_or_else(|| {
            Error::invalid(format!(
                "precision: {} is not known; it is one of \"auto\", \"f32\", \"bf16\", \"i8\"",
                quoted::text(word)
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

/// The scale of some numbers, and the factor they take on their way to integers; `largest` are the
/// bits of the largest magnitude, NaN being larger than any number. Numbers that are not finite
/// have the scale NaN, which no sum hides.
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

/// The scale of one output's weights, and the factor they take on their way to integers.
#[inline(always)]
pub(super) fn i8_weights(weights: &[f32]) -> (f32, f32) {
    let magnitudes = weights.iter().map(|weight| weight.abs().to_bits());
    i8_scale(magnitudes.fold(0, u32::max))
}

/// Quantizes one output's weights, all of them finite, into as many numbers, as packing for i8
/// would, and returns their scale: 0 where all count as zero.
///
/// # Panics
/// When there are fewer numbers than weights.
pub fn quantize(weights: &[f32], numbers: &mut [i8]) -> f32 {
    let (scale, factor) = i8_weights(weights);
    for (number, weight) in numbers[..weights.len()].iter_mut().zip(weights) {
        *number = to_i8(*weight, factor);
    }
    scale
}

/// The integer of one number of a row; `factor` comes from [`i8_scale`].
#[inline(always)]
pub(super) fn to_i8(value: f32, factor: f32) -> i8 {
    to_integer(value, factor) as i8
}

/// As [`to_i8`], for integers below 2²².
#[inline(always)]
fn to_integer(value: f32, factor: f32) -> i32 {
    let bits = (value * factor + I8_ROUNDER).to_bits();
    bits.wrapping_sub(I8_ROUNDER.to_bits()) as i32
}

/// What goes with a row, and the factor its numbers take on their way to integers; `maxima` are
/// the bits of the largest magnitudes, by place modulo 8.
#[inline(always)]
pub(super) fn i8_row(values: &[f32], maxima: [u32; I8_MAXIMA]) -> (Tail, f32) {
    let largest = maxima.into_iter().fold(0, u32::max);
    let ordinary = f32::from_bits(maxima.into_iter().fold(u32::MAX, u32::min));
    let (scale, factor) = i8_scale(largest);
    // Also false for NaN.
    if factor != 0.0 && f32::from_bits(largest) > I8_LIMIT * ordinary {
        return i8_row_with_outliers(values, largest, I8_LIMIT * ordinary);
    }
    let tail = Tail {
        scale,
        ..Tail::default()
    };
    (tail, factor)
}

/// [`i8_row`] of a row with numbers above the limit.
fn i8_row_with_outliers(values: &[f32], largest: u32, limit: f32) -> (Tail, f32) {
    let magnitude = |value: &f32| value.to_bits() & 0x7fff_ffff;
    let limit = limit.to_bits();
    let mut tail = Tail::default();
    let mut rest = 0;
    for (block, values) in values.chunks(BLOCK).enumerate() {
        let most = values.iter().map(magnitude).fold(0, u32::max);
        if most <= limit {
            rest = rest.max(most);
            continue;
        }
        for (place, value) in values.iter().enumerate() {
            let count = tail.count as usize;
            if magnitude(value) > limit && count < I8_APART {
                tail.apart[count].input = (block * BLOCK + place) as u32;
                tail.count += 1;
            } else {
                rest = rest.max(magnitude(value));
            }
        }
    }
    let least = f32::from_bits(largest) / 256.0;
    let (scale, factor) = match f32::from_bits(rest) {
        rest if rest < least => (least / I8_LARGEST, I8_LARGEST / least),
        rest => (rest / I8_LARGEST, I8_LARGEST / rest),
    };
    tail.scale = scale;
    for apart in &mut tail.apart[..tail.count as usize] {
        apart.number = to_integer(values[apart.input as usize], factor);
    }
    (tail, factor)
}

/// Factors, one an input, that the numbers going into a dense layer are multiplied by and its
/// weights divided by, so that no input has weights far larger than the others: with r an
/// input's root mean square over the outputs, the nearest power of two, on the scale of
/// logarithms, to √(r/r̄), r̄ being the median of all r; beyond 2^±8 it is 1. The root leaves half of
/// what stands out on each side. (Xiao et al. 2022, "SmoothQuant", arXiv 2211.10438, shares it out
/// by statistics of what comes in, too; here numbers of a row kept apart take their place.)
///
/// `weights` is `[outputs][inputs]`.
pub fn balance(weights: &[f32], inputs: usize) -> Vec<f32> {
    let mut squares = vec![0.0f32; inputs];
    for row in weights.chunks_exact(inputs) {
        for (square, weight) in squares.iter_mut().zip(row) {
            *square += weight * weight;
        }
    }
    let mut sorted = squares.clone();
    let (_, median, _) = sorted.select_nth_unstable_by(inputs / 2, f32::total_cmp);
    let median = *median;
    for square in &mut squares {
        let ratio = (*square / median).sqrt().sqrt();
        // From ratios that are not numbers, or not of any use as a factor, none is made.
        *square = match (BALANCE_LEAST..=1.0 / BALANCE_LEAST).contains(&ratio) {
            // The exponent of √2·ratio, cut, is that of the ratio, rounded.
            true => f32::from_bits((ratio * SQRT_2).to_bits() & 0x7f80_0000),
            false => 1.0,
        };
    }
    squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn precisions_have_their_words() {
        assert_eq!(Precision::parse("auto").unwrap(), None);
        for precision in Precision::ALL {
            let parsed = Precision::parse(precision.word()).unwrap();
            assert_eq!(parsed, Some(precision));
        }
        for word in ["", "F32", "int8", "fp16", "f32 "] {
            let error = Precision::parse(word).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            let words = "\"auto\", \"f32\", \"bf16\", \"i8\"";
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

    /// A row of ones but for the given numbers, and what goes with it.
    fn tail_of(numbers: &[(usize, f32)]) -> Tail {
        let mut values = [1.0; 40];
        for (place, number) in numbers {
            values[*place] = *number;
        }
        let mut maxima = [0; I8_MAXIMA];
        for (place, value) in values.iter().enumerate() {
            let maximum = &mut maxima[place % I8_MAXIMA];
            *maximum = value.abs().to_bits().max(*maximum);
        }
        i8_row(&values, maxima).0
    }

    #[test]
    fn the_first_numbers_above_the_limit_are_kept_apart() {
        let numbers = |tail: &Tail| -> Vec<(u32, i32)> {
            let apart = tail.apart().iter();
            apart.map(|apart| (apart.input, apart.number)).collect()
        };
        let none = tail_of(&[(7, I8_LIMIT)]);
        assert_eq!((none.scale, numbers(&none)), (I8_LIMIT / 127.0, vec![]));

        let two = tail_of(&[(3, -100.0), (39, 6.0), (5, 4.0)]);
        assert_eq!(two.scale, 4.0 / 127.0);
        assert_eq!(numbers(&two), [(3, -3175), (39, 190)]);

        let many = tail_of(&[(0, 8.0), (1, 9.0), (2, 10.0), (19, -11.0), (20, 12.0)]);
        assert_eq!(many.scale, 12.0 / 127.0);
        assert_eq!(numbers(&many), [(0, 85), (1, 95), (2, 106), (19, -116)]);

        // However large, a number apart has 15 bits and a sign.
        let huge = tail_of(&[(17, -3e38)]);
        assert_eq!(numbers(&huge), [(17, -127 * 256)]);
        assert_eq!(huge.scale, 3e38 / 256.0 / 127.0);

        for number in [f32::NAN, f32::INFINITY] {
            let tail = tail_of(&[(1, number), (2, 10.0)]);
            assert!(tail.scale.is_nan() && tail.apart().is_empty());
        }
    }

    #[test]
    fn factors_balance_what_stands_out_alone() {
        let (inputs, outputs) = (9, 5);
        let mut weights = vec![0.1; outputs * inputs];
        assert_eq!(balance(&weights, inputs), [1.0; 9]);
        for row in weights.chunks_exact_mut(inputs) {
            row[1] = -0.1 * 16.0;
            row[2] = 0.1 / 16.0;
            row[3] = 0.0;
            row[4] = 0.1 * 7.9;
            row[5] = 1e30;
        }
        let factors = balance(&weights, inputs);
        assert_eq!(factors, [1.0, 4.0, 0.25, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(balance(&[0.0; 6], 3), [1.0; 3]);
    }
}
