//! From token vectors to a vector a text.

use uform::device::Argument;

use super::Found;
use crate::gpu::{Gpu, at, count};
use crate::numbers::{F32, off, values};

/// Every mode of pooling, with texts that have no tokens, or skip them all; then the end of it.
pub(super) fn texts(gpu: &Gpu) -> Found {
    let hidden = 300;
    let starts = [0u32, 4, 4, 5, 12];
    let skip = [1u32, 0, 3, 0];
    let states = values(11, 12 * hidden);
    let mut worst: f64 = 0.0;
    for mode in 0..6 {
        let mut expected = Vec::new();
        for text in 0..4 {
            let (first, end) = (starts[text] as usize, starts[text + 1] as usize);
            let from = (first + skip[text] as usize).min(end);
            for at in 0..hidden {
                let state = |token: usize| f64::from(states[token * hidden + at]);
                let kept = (end - from) as f64;
                let sum: f64 = (from..end).map(state).sum();
                expected.push(match mode {
                    _ if first == end => 0.0,
                    1 => state(first),
                    3 => state(end - 1),
                    _ if from == end => 0.0,
                    0 => sum / kept,
                    2 => (from..end).map(state).fold(f64::NEG_INFINITY, f64::max),
                    4 => sum / kept.sqrt(),
                    _ => {
                        let weight = |token: usize| (token - from + 1) as f64;
                        let sum: f64 = (from..end).map(|token| weight(token) * state(token)).sum();
                        sum / (from..end).map(weight).sum::<f64>()
                    }
                });
            }
        }
        let pooled = gpu.device.allocate(4 * 4 * hidden)?;
        gpu.run(
            "pool",
            [4, 1, 1],
            256,
            0,
            &[
                at(&gpu.floats(&states)?),
                at(&gpu.words(&starts)?),
                at(&gpu.words(&skip)?),
                Argument::U32(mode),
                count(hidden),
                at(&pooled),
            ],
        )?;
        worst = worst.max(off(&gpu.read(&pooled)?, &expected) / F32);

        let dimensions = 270;
        for normalizes in [false, true] {
            let out = gpu.device.allocate(4 * 4 * dimensions)?;
            gpu.run(
                "finish",
                [4, 1, 1],
                256,
                0,
                &[
                    at(&pooled),
                    count(hidden),
                    count(dimensions),
                    Argument::U32(normalizes.into()),
                    at(&out),
                ],
            )?;
            let cut = expected.chunks(hidden).flat_map(|vector| {
                let vector = &vector[..dimensions];
                let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
                let length = if normalizes { length.max(1e-12) } else { 1.0 };
                vector.iter().map(move |value| value / length)
            });
            let cut: Vec<f64> = cut.collect();
            worst = worst.max(off(&gpu.read(&out)?, &cut) / F32);
        }
    }
    Ok(worst)
}
