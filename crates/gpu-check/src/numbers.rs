//! Numbers that look like chance, and how far others are from them.

use half::bf16;

/// Numbers between −1 and 1 that look like chance, the same for a seed.
pub(crate) fn values(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

pub(crate) fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}

/// By how much found values are off at most, against the greatest expected or 1; no number is off by infinity.
pub(crate) fn off(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let most = expected
        .iter()
        .fold(1.0, |most: f64, value| most.max(value.abs()));
    let pairs = found.iter().zip(expected);
    pairs.fold(0.0, |off: f64, (found, expected)| {
        match (f64::from(*found) - expected).abs() / most {
            wrong if wrong.is_nan() => f64::INFINITY,
            wrong => off.max(wrong),
        }
    })
}

/// By how much a value in f32 may be off.
pub(crate) const F32: f64 = 2e-6;
/// By how much one rounded to bf16 may be.
pub(crate) const BF16: f64 = 8e-3;
