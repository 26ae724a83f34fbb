//! Token vectors to one vector a text.
//!
//! The six modes and their arithmetic are those of sentence-transformers'
//! `Pooling` module, over the tokens a text really has: there is no padding to mask.

use crate::model::settings::pooling_mode::Pooling;

/// Pools the token vectors of one text.
///
/// - `tokens`: `[tokens][hidden]`, the last layer's output for this text.
/// - `skip`: how many leading tokens take no part (a prompt the model pools without).
///   The `cls` and `last` modes pick a token by its place and ignore it.
/// - `out`: `[hidden]`. All zeros when there is no token, or every one is skipped.
pub(in crate::model) fn pool(mode: Pooling, tokens: &[f32], skip: usize, out: &mut [f32]) {
    let hidden = out.len();
    let count = tokens.len() / hidden;
    let rows = tokens.chunks_exact(hidden).enumerate().skip(skip);
    out.fill(0.0);
    // A tokenizer without special tokens makes nothing of an empty text.
    if tokens.is_empty() {
        return;
    }
    match mode {
        Pooling::Cls => out.copy_from_slice(&tokens[..hidden]),
        Pooling::Last => out.copy_from_slice(&tokens[tokens.len() - hidden..]),
        Pooling::Max => {
            for (place, (_, row)) in rows.enumerate() {
                for (best, value) in out.iter_mut().zip(row) {
                    *best = if place == 0 { *value } else { best.max(*value) };
                }
            }
        }
        Pooling::Mean | Pooling::MeanSqrt => {
            rows.for_each(|(_, row)| add_scaled(out, row, 1.0));
            let kept = count.saturating_sub(skip) as f32;
            let divisor = if mode == Pooling::Mean {
                kept
            } else {
                kept.sqrt()
            };
            divide(out, divisor);
        }
        Pooling::WeightedMean => {
            let mut total = 0.0;
            for (place, row) in rows {
                let weight = (place + 1) as f32;
                add_scaled(out, row, weight);
                total += weight;
            }
            divide(out, total);
        }
    }
}

/// Scales a vector to length one; one of length zero stays as it is.
pub(in crate::model) fn normalize(vector: &mut [f32]) {
    // Eight running sums: a fixed order that the compiler can keep in vector registers.
    let mut sums = [0.0f32; 8];
    for part in vector.chunks(8) {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += value * value;
        }
    }
    // sentence-transformers normalises with torch's default floor for the length.
    let length = sums.iter().sum::<f32>().sqrt().max(1e-12);
    divide(vector, length);
}

fn add_scaled(sums: &mut [f32], row: &[f32], weight: f32) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += weight * value;
    }
}

fn divide(vector: &mut [f32], divisor: f32) {
    if divisor > 0.0 {
        vector.iter_mut().for_each(|value| *value /= divisor);
    }
}

#[cfg(test)]
mod tests {
    use super::{normalize, pool};
    use crate::model::Pooling;

    #[test]
    fn each_mode_does_what_its_name_says() {
        let tokens = [1.0, -4.0, 3.0, -2.0, 5.0, -9.0];
        let root = 3f32.sqrt();
        for (mode, skip, expected) in [
            (Pooling::Cls, 0, [1.0, -4.0]),
            (Pooling::Last, 0, [5.0, -9.0]),
            (Pooling::Max, 0, [5.0, -2.0]),
            (Pooling::Mean, 0, [3.0, -5.0]),
            (Pooling::MeanSqrt, 0, [9.0 / root, -15.0 / root]),
            (Pooling::WeightedMean, 0, [22.0 / 6.0, -35.0 / 6.0]),
            (Pooling::Cls, 2, [1.0, -4.0]),
            (Pooling::Max, 1, [5.0, -2.0]),
            (Pooling::Mean, 1, [4.0, -5.5]),
            (Pooling::WeightedMean, 2, [5.0, -9.0]),
            (Pooling::Mean, 3, [0.0, 0.0]),
            (Pooling::Max, 3, [0.0, 0.0]),
        ] {
            let mut out = [f32::NAN; 2];
            pool(mode, &tokens, skip, &mut out);
            for (value, right) in out.iter().zip(expected) {
                assert!(
                    (value - right).abs() < 1e-5,
                    "{mode:?} without {skip}: {out:?}"
                );
            }
        }
    }

    #[test]
    fn a_text_without_tokens_pools_to_zeros() {
        for mode in Pooling::ALL {
            let mut out = [f32::NAN; 2];
            pool(mode, &[], 0, &mut out);
            assert_eq!(out, [0.0; 2], "{mode:?}");
        }
    }

    #[test]
    fn a_vector_of_zeros_survives_normalising() {
        let mut zeros = [0.0; 5];
        normalize(&mut zeros);
        assert_eq!(zeros, [0.0; 5]);
        let mut vector = [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0];
        normalize(&mut vector);
        assert!((vector[0] - 0.6).abs() < 1e-6 && (vector[8] - 0.8).abs() < 1e-6);
    }
}
