//! The curves of activations and softmax.
//!
//! The errors named are maxima over dense f32 inputs against f64, evaluation in f32 included;
//! the tests hold every class to them.
//!
//! NaN goes in and comes out: a clamp passes its argument second, which is what
//! [`Simd::max`] and [`Simd::min`] return when either is NaN.

use super::Simd;
use crate::coefficients::*;

/// e^x as `(p, scale)` with e^x = scale·(1 + p): x = n·ln 2 + r, scale = 2ⁿ, p = e^r − 1.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
unsafe fn exp_parts<V: Simd>(x: V) -> (V, V) {
    // SAFETY: handed on to the caller.
    unsafe {
        let x = V::splat(-EXP_LIMIT).max(x);
        exp_parts_of_held(V::splat(EXP_LIMIT).min(x), V::kept(&EXP))
    }
}

/// As [`exp_parts`], of x within ±[`EXP_LIMIT`].
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
unsafe fn exp_parts_of_held<V: Simd>(x: V, terms: &[f32; 5]) -> (V, V) {
    // SAFETY: handed on to the caller.
    unsafe {
        let shifted = x.fma(V::splat(LOG2_E), V::splat(ROUNDER));
        let n = shifted.sub(V::splat(ROUNDER));
        let r = n.fma(V::splat(-LN_2_HIGH), x);
        let r = n.fma(V::splat(-LN_2_LOW), r);
        let p = r.mul(r).fma(horner(terms, r), r);
        (p, shifted.mantissa_to_exponent())
    }
}

/// `Σ coefficients[i]·xⁱ`.
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
pub(crate) unsafe fn exp<V: Simd>(x: V) -> V {
    // SAFETY: handed on to the caller.
    unsafe {
        let (p, scale) = exp_parts(x);
        p.fma(scale, scale)
    }
}

/// [`exp`] of numbers that are not above 0, some vectors of them, with less to hold.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
pub(crate) unsafe fn exp_of_negative<V: Simd, const N: usize>(mut x: [V; N]) -> [V; N] {
    let terms = V::kept(&EXP);
    // SAFETY: handed on to the caller.
    unsafe {
        for value in &mut x {
            let (p, scale) = exp_parts_of_held(V::splat(-EXP_LIMIT).max(*value), terms);
            *value = p.fma(scale, scale);
        }
        x
    }
}

/// A function of one variable, on vectors.
pub(crate) trait Curve {
    /// The function's value for each lane.
    ///
    /// # Safety
    /// The CPU has the class's instructions.
    unsafe fn at<V: Simd>(x: V) -> V;

    /// The same for some vectors.
    ///
    /// # Safety
    /// As for [`at`](Curve::at).
    #[inline(always)]
    unsafe fn each<V: Simd, const N: usize>(mut x: [V; N]) -> [V; N] {
        for value in &mut x {
            // SAFETY: handed on to the caller.
            *value = unsafe { Self::at(*value) };
        }
        x
    }
}

/// x.
pub(crate) struct Identity;

impl Curve for Identity {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        x
    }
}

/// x·Φ(x). Relative error 3e-7 for x > 0, absolute error 4e-7 for x ≤ 0; twice that where
/// multiply and add round apart (`serial`).
pub(crate) struct Gelu;

impl Curve for Gelu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { Self::each([x])[0] }
    }

    #[inline(always)]
    unsafe fn each<V: Simd, const N: usize>(x: [V; N]) -> [V; N] {
        // SAFETY: handed on to the caller.
        unsafe { gelu(x, GELU_LIMIT, GELU_SCALE, &GELU) }
    }
}

/// x·Φ(x) for the precisions bf16, which rounds it by up to 2e-3 of itself, and i8, which rounds it more. Relative error 4e-5 for
/// x > 0, absolute error 3e-5 for x ≤ 0, and 4.6e-5 beyond x = −4.25.
pub(crate) struct GeluBf16;

impl Curve for GeluBf16 {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { Self::each([x])[0] }
    }

    #[inline(always)]
    unsafe fn each<V: Simd, const N: usize>(x: [V; N]) -> [V; N] {
        // SAFETY: handed on to the caller.
        unsafe { gelu(x, GELU_BF16_LIMIT, GELU_BF16_SCALE, &GELU_BF16) }
    }
}

/// x·Φ(x), with Φ as `coefficients` describes. All vectors take a step before the next one, so that
/// a constant is read once.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
unsafe fn gelu<V: Simd, const TERMS: usize, const N: usize>(
    mut x: [V; N],
    limit: f32,
    scale: f32,
    terms: &'static [f32; TERMS],
) -> [V; N] {
    // SAFETY: handed on to the caller.
    unsafe {
        let (mut held, mut u) = (x, x);
        for at in 0..N {
            // Held from below, x·Φ(x) stays negligible however negative x is.
            x[at] = V::splat(-limit).max(x[at]);
            held[at] = V::splat(limit).min_of_numbers(x[at]);
            u[at] = held[at].mul(held[at]).fma(V::splat(scale), V::splat(-1.0));
        }
        let terms = V::kept(terms);
        let mut value = [V::splat(terms[TERMS - 1]); N];
        for term in terms[..TERMS - 1].iter().rev() {
            for (value, u) in value.iter_mut().zip(u) {
                *value = value.fma(u, V::splat(*term));
            }
        }
        for at in 0..N {
            x[at] = x[at].mul(held[at].fma(value[at], V::splat(0.5)));
        }
        x
    }
}

/// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is x/(1 + e^−2z) with tanh's argument z.
/// Relative error 3e-7 plus what f32 loses in rounding z.
pub(crate) struct GeluTanh;

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
pub(crate) struct Relu;

impl Curve for Relu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { V::splat(0.0).max(x) }
    }
}

/// tanh x = (e^2x − 1)/(e^2x + 1), with e^2x − 1 to full relative precision near 0.
/// Relative error 2.5e-7.
pub(crate) struct Tanh;

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
pub(crate) struct Silu;

impl Curve for Silu {
    #[inline(always)]
    unsafe fn at<V: Simd>(x: V) -> V {
        // SAFETY: handed on to the caller.
        unsafe { x.div(exp(V::splat(0.0).sub(x)).add(V::splat(1.0))) }
    }
}
