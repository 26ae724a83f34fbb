//! The GPU kernels, as they ship, interpreted by `fake-gpu` and compared with the same sums in f64.
//!
//! Each check is also run on kernels with planted mistakes, and must see them.

mod common;

use std::sync::Arc;

use common::fake::{Case, alone};
use common::numbers::values;
use half::bf16;
use uform::Result;
use uform::device::{Argument, Buffer, Code, Device, Module, Runtime, Shape, Stream, kernels};

const PTX: &str = include_str!("../src/device/kernels/uform.ptx");

const DEVICE: [Case<'static>; 1] = [Case {
    cuda: "H200:9.0:132:1024",
    hip: "",
    fault: "",
}];

/// A device with the kernels.
struct Gpu {
    device: Arc<Device>,
    stream: Stream,
    module: Arc<Module>,
}

impl Gpu {
    /// With the kernels as they ship.
    fn shipped() -> Gpu {
        let device = Device::open(Runtime::Cuda, 0).unwrap();
        Gpu {
            stream: device.stream().unwrap(),
            module: kernels::load(&device).unwrap(),
            device,
        }
    }

    fn on(index: u32, ptx: &str) -> Gpu {
        let device = Device::open(Runtime::Cuda, index).unwrap();
        let module = device.load(Code::Image(ptx.as_bytes())).unwrap();
        Gpu {
            stream: device.stream().unwrap(),
            module,
            device,
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.device.allocate(bytes.len())?;
        self.stream.upload(&mut buffer, 0, bytes)?;
        Ok(buffer)
    }

    fn floats(&self, values: &[f32]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn halves(&self, values: &[bf16]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn words(&self, values: &[u32]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    /// Launches, with so much dynamic shared memory, and waits.
    fn run(
        &self,
        name: &str,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        let kernel = self.module.kernel(name)?;
        kernel.allow_shared(shared_bytes)?;
        let shape = Shape {
            grid,
            block: [block, 1, 1],
            shared_bytes,
        };
        // SAFETY: the kernel's own arguments; waited for here.
        unsafe { self.stream.launch(&kernel, shape, arguments) }?;
        self.stream.wait()
    }

    fn read(&self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut bytes = vec![0; buffer.bytes()];
        self.stream.download(&mut bytes, buffer, 0)?;
        let (values, _) = bytes.as_chunks();
        Ok(values
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect())
    }

    fn read_halves(&self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut bytes = vec![0; buffer.bytes()];
        self.stream.download(&mut bytes, buffer, 0)?;
        let (values, _) = bytes.as_chunks();
        Ok(values
            .iter()
            .map(|bytes| bf16::from_le_bytes(*bytes).to_f32())
            .collect())
    }
}

fn at(buffer: &Buffer) -> Argument {
    Argument::Address(buffer.address())
}

const ABSENT: Argument = Argument::Address(0);

fn count(value: usize) -> Argument {
    Argument::U32(value as u32)
}

fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}

/// By how much found values are off at most, against the greatest expected or 1; no number is off by infinity.
fn off(found: &[f32], expected: &[f64]) -> f64 {
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

/// What a check finds: by how much it is off, or why it could not tell.
type Found = Result<f64>;

const F32: f64 = 2e-6;
const BF16: f64 = 8e-3;

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
fn rows(gpu: &Gpu) -> Found {
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
struct Layer {
    rows: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    shape: [usize; 3],
}

impl Layer {
    fn new(shape @ [rows, width, depth]: [usize; 3]) -> Layer {
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

fn dense_f32(gpu: &Gpu) -> Found {
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
fn products(
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

fn dense_bf16(gpu: &Gpu) -> Found {
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

/// A batch of texts of these lengths, in one projection.
struct Texts {
    lengths: &'static [usize],
    heads: usize,
    size: usize,
    projected: Vec<f32>,
}

impl Texts {
    fn new(lengths: &'static [usize], heads: usize, size: usize) -> Texts {
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

    fn attended_f32(&self, gpu: &Gpu) -> Result<Vec<f32>> {
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

    fn attended_bf16(&self, gpu: &Gpu) -> Result<Vec<f32>> {
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

fn attend_f32(gpu: &Gpu) -> Found {
    BATCHES
        .into_iter()
        .try_fold(0.0, |worst: f64, (lengths, heads, size)| {
            let texts = Texts::new(lengths, heads, size);
            Ok(worst.max(off(&texts.attended_f32(gpu)?, &texts.expected()) / F32))
        })
}

fn attend_bf16(gpu: &Gpu) -> Found {
    BATCHES
        .into_iter()
        .try_fold(0.0, |worst: f64, (lengths, heads, size)| {
            let texts = Texts::new(lengths, heads, size);
            Ok(worst.max(off(&texts.attended_bf16(gpu)?, &texts.expected()) / BF16))
        })
}

/// Every mode of pooling, with texts that have no tokens, or skip them all; then the end of it.
fn texts(gpu: &Gpu) -> Found {
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

type Check = fn(&Gpu) -> Found;

const CHECKS: [(&str, Check); 6] = [
    ("rows", rows),
    ("dense_f32", dense_f32),
    ("dense_bf16", dense_bf16),
    ("attend_f32", attend_f32),
    ("attend_bf16", attend_bf16),
    ("texts", texts),
];

#[test]
fn kernels_give_what_f64_gives() {
    alone("kernels_give_what_f64_gives", &DEVICE, |_| {
        let gpu = Gpu::shipped();
        for (name, check) in CHECKS {
            let found = check(&gpu).unwrap();
            assert!(
                found <= 1.0,
                "{name} is off by {found} times what it may be"
            );
        }
    });
}

#[test]
fn a_row_is_the_same_bits_alone_and_in_any_company() {
    alone(
        "a_row_is_the_same_bits_alone_and_in_any_company",
        &DEVICE,
        |_| {
            let gpu = Gpu::shipped();
            let all = Layer::new([130, 136, 104]);
            let mut one = Layer::new([1, 136, 104]);
            let row = 77;
            one.rows.copy_from_slice(&all.rows[row * 104..][..104]);
            one.residual
                .copy_from_slice(&all.residual[row * 136..][..136]);
            let (expected, _) = products(&gpu, &all, 1, false, true).unwrap();
            for is_large in [false, true] {
                let (found, _) = products(&gpu, &one, 1, false, is_large).unwrap();
                assert_eq!(found, expected[row * 136..][..136]);
            }

            let batch = Texts::new(&[5, 70, 9], 2, 32);
            let mut alone = Texts::new(&[70], 2, 32);
            alone
                .projected
                .copy_from_slice(&batch.projected[5 * 192..75 * 192]);
            let own = 5 * 64..75 * 64;
            let found = alone.attended_bf16(&gpu).unwrap();
            assert_eq!(found, batch.attended_bf16(&gpu).unwrap()[own.clone()]);
            let found = alone.attended_f32(&gpu).unwrap();
            assert_eq!(found, batch.attended_f32(&gpu).unwrap()[own]);
        },
    );
}

/// A mistake in a kernel: what stands instead of what, in each of the first so many places where it is.
struct Mistake {
    kernel: &'static str,
    check: Check,
    right: &'static str,
    wrong: &'static str,
    places: usize,
}

/// The kernels with one mistake each, as many as there are places for it.
fn mistaken(mistake: &Mistake) -> Vec<String> {
    let start = PTX.find(&format!(".entry {}(", mistake.kernel)).unwrap();
    let rest = &PTX[start..];
    let end = rest[1..]
        .find(".entry")
        .map_or(PTX.len(), |end| start + 1 + end);
    let places = PTX[start..end].match_indices(mistake.right);
    let kernels: Vec<String> = places
        .take(mistake.places)
        .map(|(at, right)| {
            let at = start + at;
            format!(
                "{}{}{}",
                &PTX[..at],
                mistake.wrong,
                &PTX[at + right.len()..]
            )
        })
        .collect();
    assert!(
        !kernels.is_empty(),
        "{} has no {}",
        mistake.kernel,
        mistake.right
    );
    kernels
}

#[test]
fn planted_mistakes_are_seen() {
    let mistake = |kernel, check: Check, right, wrong, places| Mistake {
        kernel,
        check,
        right,
        wrong,
        places,
    };
    let barrier = |kernel, check| mistake(kernel, check, "bar.sync \t0;", "", usize::MAX);
    let transposed = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
    let straight = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
    let mistakes = [
        barrier("dense_f32", dense_f32),
        barrier("dense_bf16", dense_bf16),
        barrier("dense_bf16_large", dense_bf16),
        barrier("attend_f32_32", attend_f32),
        barrier("attend_f32_128", attend_f32),
        barrier("attend_bf16_32", attend_bf16),
        barrier("attend_bf16_128", attend_bf16),
        barrier("finish", texts),
        // What was not waited for.
        mistake(
            "attend_bf16_64",
            attend_bf16,
            "wait_group 0;",
            "wait_group 1;",
            1,
        ),
        mistake(
            "dense_bf16",
            dense_bf16,
            "wait_group 1;",
            "wait_group 2;",
            1,
        ),
        // One row too many, one lane off, a matrix on its side, numbers of another type.
        mistake("embed", rows, "setp.ge.u32", "setp.gt.u32", 1),
        mistake("layer_norm", rows, "setp.ge.u32", "setp.gt.u32", 1),
        mistake("embed", rows, "shfl.sync.bfly.b32", "shfl.sync.up.b32", 2),
        mistake("attend_bf16_32", attend_bf16, transposed, straight, 2),
        mistake(
            "dense_bf16",
            dense_bf16,
            "f32.bf16.bf16.f32",
            "f32.f16.f16.f32",
            1,
        ),
    ];
    // A fault stays with its device.
    let mutants: Vec<(&Mistake, String)> = mistakes
        .iter()
        .flat_map(|mistake| mistaken(mistake).into_iter().map(move |ptx| (mistake, ptx)))
        .collect();
    let cuda = ["H200:9.0:132:1024"].repeat(mutants.len()).join(",");
    let cases = [Case {
        cuda: &cuda,
        ..Case::default()
    }];
    alone("planted_mistakes_are_seen", &cases, |_| {
        for (index, (mistake, ptx)) in mutants.iter().enumerate() {
            let found = (mistake.check)(&Gpu::on(index as u32, ptx));
            let is_seen = found.as_ref().map_or(true, |&off| off > 1.0);
            let Mistake { kernel, right, .. } = mistake;
            assert!(is_seen, "mutant {index}, {right} in {kernel}: {found:?}");
        }
    });
}
