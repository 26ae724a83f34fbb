//! Attention over texts of many lengths, in f32 and by tensor cores.

use half::bf16;
use uform::Result;

use super::Found;
use crate::gpu::{Gpu, at, count};
use crate::numbers::{BF16, F32, off, rounded, values};

/// A batch of texts of these lengths, in one projection.
pub(super) struct Texts {
    lengths: &'static [usize],
    heads: usize,
    size: usize,
    pub(super) projected: Vec<f32>,
}

impl Texts {
    pub(super) fn new(lengths: &'static [usize], heads: usize, size: usize) -> Texts {
        let tokens: usize = lengths.iter().sum();
        let projected = values(10, 3 * tokens * heads * size);
        // Large enough that weights differ.
        let projected = projected
            .iter()
            .map(|value| bf16::from_f32(3.0 * value).to_f32());
        Texts {
            lengths,
            heads,
            size,
            projected: projected.collect(),
        }
    }

    fn hidden(&self) -> usize {
        self.heads * self.size
    }

    /// First row, length and first query of each piece.
    fn pieces(&self, queries: usize) -> Vec<u32> {
        let mut first = 0;
        let mut pieces = Vec::new();
        for &length in self.lengths {
            for start in (0..length).step_by(queries) {
                pieces.extend([first as u32, length as u32, start as u32]);
            }
            first += length;
        }
        pieces
    }

    fn expected(&self) -> Vec<f64> {
        let (hidden, size) = (self.hidden(), self.size);
        let row = |token: usize, part: usize, head: usize| {
            let row = &self.projected[token * 3 * hidden + part * hidden + head * size..];
            row[..size].iter().map(|value| f64::from(*value))
        };
        let mut out = vec![0.0; self.projected.len() / 3];
        let mut first = 0;
        for &length in self.lengths {
            for (query, head) in
                (0..length).flat_map(|query| (0..self.heads).map(move |head| (query, head)))
            {
                let scores: Vec<f64> = (0..length)
                    .map(|key| {
                        let pairs = row(first + query, 0, head).zip(row(first + key, 1, head));
                        pairs.map(|(one, other)| one * other).sum::<f64>() / (size as f64).sqrt()
                    })
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
                for (key, score) in scores.iter().enumerate() {
                    let weight = (score - most).exp() / total;
                    let place = (first + query) * hidden + head * size;
                    for (sum, value) in out[place..].iter_mut().zip(row(first + key, 2, head)) {
                        *sum += weight * value;
                    }
                }
            }
            first += length;
        }
        out
    }

    pub(super) fn attended_f32(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let name = match self.size {
            0..=32 => "attend_f32_32",
            33..=64 => "attend_f32_64",
            _ => "attend_f32_128",
        };
        let pieces = self.pieces(16);
        let out = gpu.device.allocate(4 * self.projected.len() / 3)?;
        gpu.run(
            name,
            [pieces.len() as u32 / 3, self.heads as u32, 1],
            256,
            0,
            &[
                at(&gpu.floats(&self.projected)?),
                at(&gpu.words(&pieces)?),
                count(self.hidden()),
                count(self.size),
                at(&out),
            ],
        )?;
        gpu.read(&out)
    }

    pub(super) fn attended_bf16(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let (name, most) = match self.size {
            0..=32 => ("attend_bf16_32", 32),
            33..=64 => ("attend_bf16_64", 64),
            _ => ("attend_bf16_128", 128),
        };
        let pieces = self.pieces(64);
        let out = gpu.device.allocate(2 * self.projected.len() / 3)?;
        let grid = [pieces.len() as u32 / 3, self.heads as u32, 1];
        gpu.run(
            name,
            grid,
            128,
            192 * (2 * most + 16),
            &[
                at(&gpu.halves(&rounded(&self.projected))?),
                at(&gpu.words(&pieces)?),
                count(self.hidden()),
                count(self.size),
                at(&out),
            ],
        )?;
        gpu.read_halves(&out)
    }
}

const BATCHES: [(&[usize], usize, usize); 4] = [
    (&[1, 33, 65, 7], 2, 32),
    (&[5], 3, 16),
    (&[70, 2], 1, 64),
    (&[3, 66], 1, 104),
];

pub(super) fn attend_f32(gpu: &Gpu) -> Found {
    BATCHES
        .into_iter()
        .try_fold(0.0, |worst: f64, (lengths, heads, size)| {
            let texts = Texts::new(lengths, heads, size);
            Ok(worst.max(off(&texts.attended_f32(gpu)?, &texts.expected()) / F32))
        })
}

pub(super) fn attend_bf16(gpu: &Gpu) -> Found {
    BATCHES
        .into_iter()
        .try_fold(0.0, |worst: f64, (lengths, heads, size)| {
            let texts = Texts::new(lengths, heads, size);
            Ok(worst.max(off(&texts.attended_bf16(gpu)?, &texts.expected()) / BF16))
        })
}
