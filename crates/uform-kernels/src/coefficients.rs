//! The numbers behind the curves of activations and softmax.
//!
//! All were fitted for this file: minimax by iteratively re-weighted least squares in a
//! Chebyshev basis (Lawson's algorithm) in f64, then rounded to f32. What the curves
//! make of them is checked on every class against f64, over dense inputs.

/// Beyond this |x|, e^x is held: its neighbours' 2ⁿ stay normal numbers.
pub(super) const EXP_LIMIT: f32 = 87.0;
/// 1/ln 2.
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// Adding this to a small number leaves its nearest integer plus the bias of an
/// `f32`'s exponent in the low bits of the mantissa.
pub(super) const ROUNDER: f32 = 12_582_912.0 + 127.0;
/// The leading 10 bits of ln 2: a multiple by an integer below 2¹³ is exact.
pub(super) const LN_2_HIGH: f32 = 0.693_359_4;
/// ln 2 less [`LN_2_HIGH`].
pub(super) const LN_2_LOW: f32 = -2.121_944_4e-4;
/// q of e^r ≈ 1 + r + r²·q(r) on |r| ≤ ½·ln 2, ascending; relative error 3.1e-9 before rounding.
pub(super) const EXP: [f32; 5] = [
    0.499_999_94,
    0.166_665_21,
    0.041_668_39,
    0.008_368_717,
    0.001_381_459_9,
];

/// Beyond this |x|, Φ(x) is 0 or 1 for our purpose: x·Φ(x) is below 1.8e-7 there.
pub(super) const GELU_LIMIT: f32 = 5.4;
/// Maps x² on 0..=[`GELU_LIMIT`]² to −1..=1: the factor, before subtracting 1.
pub(super) const GELU_SCALE: f32 = 2.0 / (GELU_LIMIT * GELU_LIMIT);
/// R of Φ(x) ≈ ½ + x·R(u), u = [`GELU_SCALE`]·x² − 1, ascending; Φ is the normal distribution.
pub(super) const GELU: [f32; 15] = [
    0.130_928_11,
    -0.065_328_01,
    0.048_499_443,
    -0.039_208_35,
    0.032_119_807,
    -0.025_731_57,
    0.019_620_09,
    -0.014_024_1,
    0.009_741_285,
    -0.006_596_442,
    0.003_496_665_7,
    -0.001_296_715_5,
    0.001_017_036_4,
    -0.000_989_409,
    0.000_344_740_55,
];

/// [`GELU_LIMIT`] of what is rounded to bf16 or i8: x·Φ(x) is below 4.6e-5 there.
pub(super) const GELU_BF16_LIMIT: f32 = 4.25;
/// [`GELU_SCALE`] of what is rounded to bf16.
pub(super) const GELU_BF16_SCALE: f32 = 2.0 / (GELU_BF16_LIMIT * GELU_BF16_LIMIT);
/// R of Φ(x) ≈ ½ + x·R(u) as in [`GELU`], of fewer terms: fitted to the least of the larger of
/// x·Φ(x)'s error and half its relative error for x > 0, 1.8e-5 before rounding.
pub(super) const GELU_BF16: [f32; 9] = [
    0.165_934_8,
    -0.080_775_74,
    0.055_734_83,
    -0.039_192_25,
    0.025_329_722,
    -0.014_525_525,
    0.009_172_585,
    -0.006_108_994,
    0.002_076_079_6,
];

/// √(2/π), from the tanh form of GELU (Hendrycks and Gimpel, 2016).
pub(super) const GELU_TANH_INNER: f32 = 0.797_884_6;
/// The cubic term of the tanh form of GELU.
pub(super) const GELU_TANH_CUBIC: f32 = 0.044_715;
