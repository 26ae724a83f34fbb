//! The embedding and the norms, a warp a row.

use uform::device::Argument;

use super::Found;
use crate::gpu::{ABSENT, Gpu, at, count};
use crate::numbers::{BF16, F32, off, values};

fn expected_norm(rows: &[f64], gain: &[f32], bias: &[f32], epsilon: f64) -> Vec<f64> {
    let hidden = gain.len();
    let norm = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / hidden as f64;
        let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / hidden as f64;
        let scale = 1.0 / (variance + epsilon).sqrt();
        let parts = row.iter().zip(gain.iter().zip(bias));
        parts
            .map(|(value, (gain, bias))| {
                (value - mean) * scale * f64::from(*gain) + f64::from(*bias)
            })
            .collect::<Vec<_>>()
    };
    rows.chunks(hidden).flat_map(norm).collect()
}

/// The embedding and the norm alone, with and without an operand in bf16.
pub(super) fn rows(gpu: &Gpu) -> Found {
    let mut worst: f64 = 0.0;
    for (tokens, hidden) in [(1, 64), (5, 384), (9, 40)] {
        let (gain, bias) = (values(1, hidden), values(2, hidden));
        let [words, places, kind] = [
            values(3, 7 * hidden),
            values(4, 9 * hidden),
            values(5, hidden),
        ];
        let ids: Vec<u32> = (0..tokens as u32).map(|token| token * 5 % 7).collect();
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let sum = |token: usize, at: usize| {
            let word = words[ids[token] as usize * hidden + at];
            f64::from(word) + f64::from(places[token * hidden + at]) + f64::from(kind[at])
        };
        let sums: Vec<f64> = (0..tokens * hidden)
            .map(|at| sum(at / hidden, at % hidden))
            .collect();
        let expected = expected_norm(&sums, &gain, &bias, 1e-12);
        let states = gpu.device.allocate(4 * tokens * hidden)?;
        let operand = gpu.device.allocate(2 * tokens * hidden)?;
        let [gain_there, bias_there] = [gpu.floats(&gain)?, gpu.floats(&bias)?];
        let grid = [tokens.div_ceil(4) as u32, 1, 1];
        gpu.run(
            "embed",
            grid,
            128,
            0,
            &[
                at(&gpu.words(&ids)?),
                at(&gpu.words(&positions)?),
                at(&gpu.floats(&words)?),
                at(&gpu.floats(&places)?),
                at(&gpu.floats(&kind)?),
                at(&gain_there),
                at(&bias_there),
                Argument::F32(1e-12),
                count(tokens),
                count(hidden),
                at(&states),
                at(&operand),
            ],
        )?;
        worst = worst.max(off(&gpu.read(&states)?, &expected) / F32);
        worst = worst.max(off(&gpu.read_halves(&operand)?, &expected) / BF16);
        // Of normed rows once more, with an epsilon that shows.
        gpu.run(
            "layer_norm",
            grid,
            128,
            0,
            &[
                at(&states),
                at(&gain_there),
                at(&bias_there),
                Argument::F32(0.1),
                count(tokens),
                count(hidden),
                ABSENT,
            ],
        )?;
        let again = expected_norm(&expected, &gain, &bias, 0.1);
        worst = worst.max(off(&gpu.read(&states)?, &again) / F32);
    }
    Ok(worst)
}
