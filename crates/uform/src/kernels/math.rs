//! The curves of activations and softmax, on vectors.
//!
//! Every coefficient below was fitted for this file: minimax by iteratively re-weighted
//! least squares in a Chebyshev basis (Lawson's algorithm) in f64, then rounded to f32. The
//! errors named are measured maxima over dense f32 inputs against f64, evaluation included;
//! the tests hold every class to them.
//!
//! NaN goes in and comes out: a clamp passes its argument second, which is what
//! [`Simd::max`] and [`Simd::min`] return when either is NaN.

use super::simd::Simd;

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
pub(super) const GELU_SCALE: f32 = 0.068_587_106;
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
    -0.006_596_441_9,
    0.003_496_665_7,
    -0.001_296_715_5,
    0.001_017_036_4,
    -0.000_989_409_1,
    0.000_344_740_55,
];

/// √(2/π), from the tanh form of GELU (Hendrycks and Gimpel, 2016).
pub(super) const GELU_TANH_INNER: f32 = 0.797_884_6;
/// The cubic term of the tanh form of GELU.
pub(super) const GELU_TANH_CUBIC: f32 = 0.044_715;

/// e^x as `(p, scale)` with e^x = scale·(1 + p): x = n·ln 2 + r, scale = 2ⁿ, p = e^r − 1.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
unsafe fn exp_parts<V: Simd>(x: V) -> (V, V) {
    // SAFETY: handed on to the caller.
    unsafe {
        let x = V::splat(-EXP_LIMIT).max(x);
        let x = V::splat(EXP_LIMIT).min(x);
        let shifted = x.fma(V::splat(LOG2_E), V::splat(ROUNDER));
        let n = shifted.sub(V::splat(ROUNDER));
        let r = n.fma(V::splat(-LN_2_HIGH), x);
        let r = n.fma(V::splat(-LN_2_LOW), r);
        let p = r.mul(r).fma(horner(&EXP, r), r);
        (p, shifted.mantissa_to_exponent())
    }
}

/// Σ coefficients[i]·xⁱ.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
unsafe fn horner<V: Simd, const N: usize>(coefficients: &[f32; N], x: V) -> V {
    // SAFETY: handed on to the caller.
    unsafe {
        let mut value = V::splat(coefficients[N - 1]);
        for i in (0..N - 1).rev() {
            value = value.fma(x, V::splat(coefficients[i]));
        }
        value
    }
}

/// e^x; x is held to ±[`EXP_LIMIT`]. Relative error 1e-7.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
pub(super) unsafe fn exp<V: Simd>(x: V) -> V {
    // SAFETY: handed on to the caller.
    unsafe {
        let (p, scale) = exp_parts(x);
        p.fma(scale, scale)
    }
}

/// A function of one variable, on vectors.
pub(super) trait Curve {
    /// The function's value for each lane.
    ///
    /// # Safety
    /// The CPU has the class's instructions.
    unsafe fn at<V: Simd>(x: V) -> V;
}

/// x.
pub(super) struct Identity;

impl Curve for Identity {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        x
    }
}

/// x·Φ(x). Relative error 3e-7 for x > 0, absolute error 4e-7 for x ≤ 0; twice that where
/// multiply and add round apart (`serial`).
pub(super) struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe {
            // Held from below, x·Φ(x) stays negligible however negative x is.
            let x = V::splat(-GELU_LIMIT).max(x);
            let held = V::splat(GELU_LIMIT).min(x);
            let u = held.mul(held).fma(V::splat(GELU_SCALE), V::splat(-1.0));
            x.mul(held.fma(horner(&GELU, u), V::splat(0.5)))
        }
    }
}

/// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is x/(1 + e^−2z) with tanh's argument z.
/// Relative error 3e-7 plus what f32 loses in rounding z.
pub(super) struct GeluTanh;

impl Curve for GeluTanh {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe {
            let cubic = V::splat(-2.0 * GELU_TANH_INNER * GELU_TANH_CUBIC);
            let slope = x.mul(x).fma(cubic, V::splat(-2.0 * GELU_TANH_INNER));
            x.div(exp(x.mul(slope)).add(V::splat(1.0)))
        }
    }
}

/// max(x, 0).
pub(super) struct Relu;

impl Curve for Relu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { V::splat(0.0).max(x) }
    }
}

/// tanh x = (e^2x − 1)/(e^2x + 1), with e^2x − 1 to full relative precision near 0.
/// Relative error 2.5e-7.
pub(super) struct Tanh;

impl Curve for Tanh {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe {
            let (p, scale) = exp_parts(x.add(x));
            let less_one = p.fma(scale, scale.sub(V::splat(1.0)));
            less_one.div(less_one.add(V::splat(2.0)))
        }
    }
}

/// x/(1 + e^−x). Relative error 3e-7, and absolute error 2e-8 where e^−x is held.
pub(super) struct Silu;

impl Curve for Silu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { x.div(exp(V::splat(0.0).sub(x)).add(V::splat(1.0))) }
    }
}
