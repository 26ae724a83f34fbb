//! Dense layers, in f32 and by tensor cores.

use half::bf16;
use uform::Result;
use uform::device::Argument;

use super::Found;
use crate::gpu::{ABSENT, Gpu, at, count};
use crate::numbers::{BF16, F32, off, rounded, values};

fn activated(x: f64, activation: u32) -> f64 {
    match activation {
        1 => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        2 => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        3 => x.max(0.0),
        4 => x.tanh(),
        5 => x / (1.0 + (-x).exp()),
        _ => x,
    }
}

/// The error function by its series (Abramowitz and Stegun, 7.1.6), enough for what is asked here.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// A dense layer's inputs.
pub(super) struct Layer {
    pub(super) rows: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    pub(super) residual: Vec<f32>,
    shape: [usize; 3],
}

impl Layer {
    pub(super) fn new(shape @ [rows, width, depth]: [usize; 3]) -> Layer {
        let exact = |values: Vec<f32>| {
            let halves = values
                .into_iter()
                .map(|value| bf16::from_f32(value).to_f32());
            halves.collect::<Vec<_>>()
        };
        Layer {
            rows: exact(values(6, rows * depth)),
            weights: exact(values(7, width * depth)),
            bias: values(8, width),
            residual: values(9, rows * width),
            shape,
        }
    }

    fn expected(&self, activation: u32, is_bare: bool) -> Vec<f64> {
        let [rows, width, depth] = self.shape;
        let one = |place: usize| {
            let (row, column) = (place / width, place % width);
            let left = &self.rows[row * depth..][..depth];
            let right = &self.weights[column * depth..][..depth];
            let pairs = left.iter().zip(right);
            let dot: f64 = pairs
                .map(|(one, other)| f64::from(*one) * f64::from(*other))
                .sum();
            match is_bare {
                true => activated(dot, activation),
                false => {
                    let biased = dot + f64::from(self.bias[column]);
                    activated(biased, activation) + f64::from(self.residual[place])
                }
            }
        };
        (0..rows * width).map(one).collect()
    }
}

const SHAPES: [[usize; 3]; 4] = [[1, 64, 64], [5, 200, 40], [70, 72, 104], [130, 136, 32]];

pub(super) fn dense_f32(gpu: &Gpu) -> Found {
    let mut worst: f64 = 0.0;
    for (activation, shape) in (0..6).zip(SHAPES.into_iter().cycle()) {
        let layer = Layer::new(shape);
        let [rows, width, depth] = shape;
        let is_bare = activation == 2;
        let out = gpu.device.allocate(4 * rows * width)?;
        let [bias, residual] = [gpu.floats(&layer.bias)?, gpu.floats(&layer.residual)?];
        let grid = [width.div_ceil(64) as u32, rows.div_ceil(64) as u32, 1];
        gpu.run(
            "dense_f32",
            grid,
            256,
            0,
            &[
                at(&gpu.floats(&layer.rows)?),
                at(&gpu.floats(&layer.weights)?),
                if is_bare { ABSENT } else { at(&bias) },
                if is_bare { ABSENT } else { at(&residual) },
                Argument::U32(activation),
                count(rows),
                count(width),
                count(depth),
                at(&out),
            ],
        )?;
        worst = worst.max(off(&gpu.read(&out)?, &layer.expected(activation, is_bare)) / F32);
    }
    Ok(worst)
}

/// Both sizes of blocks: what each gives in f32, and what in bf16.
pub(super) fn products(
    gpu: &Gpu,
    layer: &Layer,
    activation: u32,
    is_bare: bool,
    is_large: bool,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let [rows, width, depth] = layer.shape;
    let (name, block, shared_bytes, tile) = match is_large {
        false => ("dense_bf16", 128, 30_720, 64),
        true => ("dense_bf16_large", 256, 67_584, 128),
    };
    let out = gpu.device.allocate(4 * rows * width)?;
    let operand = gpu.device.allocate(2 * rows * width)?;
    let [bias, residual] = [gpu.floats(&layer.bias)?, gpu.floats(&layer.residual)?];
    let grid = [width.div_ceil(tile) as u32, rows.div_ceil(tile) as u32, 1];
    gpu.run(
        name,
        grid,
        block,
        shared_bytes,
        &[
            at(&gpu.halves(&rounded(&layer.rows))?),
            at(&gpu.halves(&rounded(&layer.weights))?),
            if is_bare { ABSENT } else { at(&bias) },
            if is_bare { ABSENT } else { at(&residual) },
            Argument::U32(activation),
            count(rows),
            count(width),
            count(depth),
            at(&out),
            at(&operand),
        ],
    )?;
    Ok((gpu.read(&out)?, gpu.read_halves(&operand)?))
}

pub(super) fn dense_bf16(gpu: &Gpu) -> Found {
    let mut worst: f64 = 0.0;
    for (activation, shape) in (0..6).zip(SHAPES.into_iter().cycle()) {
        let layer = Layer::new(shape);
        let is_bare = activation == 2;
        let expected = layer.expected(activation, is_bare);
        for is_large in [false, true] {
            let (out, operand) = products(gpu, &layer, activation, is_bare, is_large)?;
            // The factors are bf16 already, and sums are f32.
            worst = worst.max(off(&out, &expected) / F32);
            worst = worst.max(off(&operand, &expected) / BF16);
        }
    }
    Ok(worst)
}
