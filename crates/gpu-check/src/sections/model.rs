//! A whole model on the device, beside the same on the CPU: its vectors, and how fast they come.

use std::time::Instant;

use uform::device::{Runtime, devices};
use uform::executor::Executor;
use uform::kernels::Precision;
use uform::model::{EncodeOptions, Model, ModelOptions, Texts, VramModelOptions};
use uform::placement::{RamOptions, VramOptions};
use uform::{Error, Result};

use super::Context;
use crate::Report;

/// How near a vector must be to that of the CPU in f32, by its cosine.
const LEAST: [(Precision, f64); 2] = [(Precision::F32, 0.999_999), (Precision::Bf16, 0.9999)];

const WORDS: [&str; 12] = [
    "red", "bicycle", "the", "sea", "is", "blue", "music", "of", "green", "trees", "a", "winter",
];

pub(super) fn run(context: &Context, report: &mut Report) -> Result<()> {
    if !context.model.join("config.json").is_file() {
        report.skip(format!("there is no model in {}", context.model.display()));
        return Ok(());
    }
    // NVIDIA's devices are listed first, so that a position among them is an ordinal.
    let listed = devices(Runtime::Cuda);
    let place = listed
        .iter()
        .position(|device| device.index == context.device);
    let options = VramOptions {
        devices: vec![place.unwrap_or(listed.len()) as u32],
        ..VramOptions::default()
    };
    let gpu = Executor::for_vram(&options)?;
    let cpu = Executor::for_ram(&RamOptions::default())?;
    let f32 = ModelOptions {
        precision: Some(Precision::F32),
        ..ModelOptions::default()
    };
    let on_cpu = Model::load_ram(&context.model, &f32, &cpu)?;
    let lengths: &[usize] = match context.is_small {
        true => &[3],
        false => &[1, 2, 30, 63, 64, 65, 128, 250, 300, 7],
    };
    let texts: Vec<String> = lengths.iter().map(|&length| text(length)).collect();
    let batch = Texts::from_iter(&texts);
    let expected = on_cpu.encode_text(&cpu, &batch, &EncodeOptions::default())?;
    for (precision, least) in LEAST {
        let word = precision.word();
        let options = VramModelOptions {
            precision: Some(precision),
            ..VramModelOptions::default()
        };
        let start = Instant::now();
        let model = Model::load_vram(&context.model, &options, &gpu)?;
        let milliseconds = start.elapsed().as_millis();
        report.rate(format!("{word}: the model loads in {milliseconds} ms"));
        let found = encoded(&model, &gpu, &batch)?;
        let nearest = (0..expected.rows).map(|row| cosine(found.row(row), expected.row(row)));
        let worst = nearest.fold(1.0, least_of);
        report.judge(
            worst >= least,
            format!("{word}: cosines to the CPU's vectors are {worst:.8} or more"),
        );
        if !context.is_small {
            let is_same = texts
                .iter()
                .enumerate()
                .try_fold(true, |is_same, (row, text)| {
                    let alone = encoded(&model, &gpu, &Texts::from_iter([text]))?;
                    Ok::<_, Error>(is_same && alone.row(0) == found.row(row))
                })?;
            report.judge(
                is_same,
                format!("{word}: the same bits alone and in a batch"),
            );
            for (count, length) in [
                (1, 16),
                (64, 16),
                (1024, 16),
                (4096, 32),
                (1024, 128),
                (256, 250),
            ] {
                speed(&model, &gpu, (count, length), word, report)?;
            }
        }
    }
    if !context.is_small {
        speed(&on_cpu, &cpu, (1024, 16), "the CPU, f32", report)?;
    }
    Ok(())
}

/// A text of so many words.
fn text(words: usize) -> String {
    let chosen = (0..words).map(|at| WORDS[(at * 7 + words) % WORDS.len()]);
    chosen.collect::<Vec<_>>().join(" ")
}

fn encoded(model: &Model, gpu: &Executor, texts: &Texts) -> Result<uform::model::Embeddings> {
    let options = EncodeOptions::default();
    model.encode_text_vram(gpu, texts, &options)?.to_host()
}

fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        let pairs = one.iter().zip(other);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// The lesser; no number where one is none.
fn least_of(one: f64, other: f64) -> f64 {
    match one.is_nan() || other.is_nan() {
        true => f64::NAN,
        false => one.min(other),
    }
}

/// Texts and tokens a second, of the fastest of a few calls.
fn speed(
    model: &Model,
    executor: &Executor,
    (count, length): (usize, usize),
    what: &str,
    report: &Report,
) -> Result<()> {
    let text = text(length);
    let texts = Texts::from_iter(std::iter::repeat_n(&text, count));
    let options = EncodeOptions::default();
    let mut best = f64::INFINITY;
    let mut tokens = 0;
    let begin = Instant::now();
    // The first call makes room, and warms up.
    for round in 0..20 {
        let start = Instant::now();
        tokens = match executor.devices() {
            Some(_) => {
                let found = model.encode_text_vram(executor, &texts, &options)?;
                found.to_host()?.tokens.iter().sum::<u32>()
            }
            None => model
                .encode_text(executor, &texts, &options)?
                .tokens
                .iter()
                .sum(),
        };
        if round > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
        if round > 1 && begin.elapsed().as_secs() > 4 {
            break;
        }
    }
    report.rate(format!(
        "{what}: {count} texts of {length} words in {:.2} ms: {:.0} texts and {:.0} tokens a second",
        1e3 * best,
        count as f64 / best,
        f64::from(tokens) / best
    ));
    Ok(())
}
