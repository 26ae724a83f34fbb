//! Models of every kind the engine reads, beside sentence-transformers on the same files.
//!
//! `tests/fixtures/variants.py` made the folders: pooling modes, activations, number
//! formats, dense heads, prompts and Matryoshka cuts, with random weights.

#![cfg(feature = "native")]

use std::fs;
use std::path::Path;

use serde_json::Value;
use uform::executor::Executor;
use uform::hardware::CpuClass;
use uform::kernels::{Kernels, Precision};
use uform::model::{EncodeOptions, Model, ModelOptions, Texts};

/// How near each vector must come to the reference's, and how near its length: these models'
/// random weights are harder on rounding than trained ones.
fn bars(precision: Precision) -> (f64, f64) {
    match precision {
        Precision::F32 => (0.99999, 1e-4),
        Precision::Bf16 => (0.9995, 1e-2),
        Precision::I8 => (0.995, 5e-2),
    }
}

fn floats(values: &Value) -> Vec<f32> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap() as f32).collect()
}

fn options(given: &Value) -> EncodeOptions {
    let text = |key: &str| given[key].as_str().map(str::to_owned);
    EncodeOptions {
        normalize: given["normalize"].as_bool(),
        dimensions: given["dimensions"].as_u64(),
        prompt: text("prompt"),
        prompt_text: text("promptText"),
        ..Default::default()
    }
}

/// The cosine of two vectors, and how far their lengths differ.
fn compare(ours: &[f32], theirs: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    let (mine, other) = (dot(ours, ours).sqrt(), dot(theirs, theirs).sqrt());
    (dot(ours, theirs) / (mine * other), mine / other - 1.0)
}

fn check(folder: &Path, class: CpuClass, precision: Precision) -> usize {
    let executor = Executor::inline();
    let (least_cosine, most_off) = bars(precision);
    let model = Model::load_ram(
        folder,
        &ModelOptions {
            cpu_class: Some(class),
            precision: Some(precision),
            ..ModelOptions::default()
        },
        &executor,
    )
    .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let file = fs::read_to_string(folder.join("vectors.json")).unwrap();
    let expected: Value = serde_json::from_str(&file).unwrap();
    let texts: Vec<_> = expected["texts"].as_array().unwrap().iter().collect();
    let texts = Texts::from_iter(texts.iter().map(|text| text.as_str().unwrap()));
    let calls = expected["calls"].as_array().unwrap();
    for call in calls {
        let found = model
            .encode_text(&executor, &texts, &options(&call["options"]))
            .unwrap();
        for (index, theirs) in call["vectors"].as_array().unwrap().iter().enumerate() {
            let theirs = floats(theirs);
            assert_eq!(theirs.len(), found.dimensions);
            let (cosine, length) = compare(found.row(index), &theirs);
            assert!(
                cosine >= least_cosine && length.abs() < most_off,
                "{} on {class} in {precision:?}, {}, {:?}: cosine {cosine}, length off by {length}",
                folder.display(),
                call["options"],
                texts.get(index),
            );
        }
    }
    calls.len() * texts.len()
}

#[test]
fn models_of_every_kind_have_the_references_vectors() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/variants");
    let mut compared = 0;
    for folder in fs::read_dir(folders).unwrap() {
        let folder = folder.unwrap().path();
        for class in CpuClass::COMPILED {
            if class.runs_here().is_err() {
                continue;
            }
            for precision in Precision::ALL {
                if Kernels::of(*class, precision).class() == *class {
                    compared += check(&folder, *class, precision);
                }
            }
        }
    }
    assert!(compared >= 6 * 5, "only {compared} vectors were compared");
}
