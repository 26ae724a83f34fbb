//! Models in the memory of GPUs: executors that drive them, loading, and calls, on the stand-ins for the
//! vendors' drivers that `fake-gpu` has.

#![cfg(feature = "native")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use common::fake::{Case, alone};
use common::tiny::{SMALL, Tiny};
use serde_json::json;
use uform::device::{BorrowedStream, Device, Runtime};
use uform::executor::{Control, Executor, ExecutorKind, Mood};
use uform::hardware::GpuClass;
use uform::kernels::Precision;
use uform::model::files::Memory;
use uform::model::{
    DeviceEmbeddings, EncodeOptions, Model, ModelOptions, Pooling, Residency, Texts, Truncate,
    VramModelOptions,
};
use uform::placement::VramOptions;
use uform::{Error, Result, Status};

const ONE: &str = "H200:9.0:132:1024";
const AMD: &str = "MI300X:gfx942:304:1024";

fn cuda(devices: &str) -> [Case<'_>; 1] {
    [Case {
        cuda: devices,
        ..Case::default()
    }]
}

fn source(tiny: &Tiny) -> Memory {
    let files = tiny.files.iter();
    Memory::new(files.map(|(name, bytes)| (name.clone(), bytes.clone().into())).collect::<BTreeMap<_, _>>())
}

fn driving(devices: &[u32]) -> Executor {
    let options = VramOptions {
        devices: devices.to_vec(),
        ..VramOptions::default()
    };
    Executor::for_vram(&options).unwrap()
}

fn in_precision(precision: Precision) -> VramModelOptions {
    VramModelOptions {
        precision: Some(precision),
        ..VramModelOptions::default()
    }
}

fn load(tiny: &Tiny, precision: Precision, executor: &Executor) -> Result<Model> {
    Model::load_vram_from(&source(tiny), &in_precision(precision), executor)
}

fn on_host(tiny: &Tiny, texts: &Texts, options: &EncodeOptions) -> Vec<Vec<f32>> {
    let executor = Executor::inline();
    let load = ModelOptions {
        precision: Some(Precision::F32),
        ..ModelOptions::default()
    };
    let model = Model::load_from(&source(tiny), &load, &executor).unwrap();
    let found = model.encode_text(&executor, texts, options).unwrap();
    (0..found.rows).map(|row| found.row(row).to_vec()).collect()
}

fn rows(found: &DeviceEmbeddings) -> Vec<Vec<f32>> {
    let host = found.to_host().unwrap();
    assert_eq!((host.rows, host.dimensions), (found.rows(), found.dimensions()));
    assert_eq!((&*host.tokens, &*host.truncated), (found.tokens(), found.truncated()));
    (0..host.rows).map(|row| host.row(row).to_vec()).collect()
}

/// A text of so many words.
fn words(count: usize) -> String {
    let words = ["red", "bicycle", "the", "sea", "is", "blue", "green", "tree", "!"];
    let chosen = (0..count).map(|at| words[at * 7 % words.len()]);
    chosen.collect::<Vec<_>>().join(" ")
}

/// The cosine of two vectors; none where there is no number.
fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |one: &[f32], other: &[f32]| -> f64 {
        let pairs = one.iter().zip(other);
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    assert_eq!(one.len(), other.len());
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// Whether vectors are as near as a precision brings them, in direction and length.
fn assert_near(found: &[Vec<f32>], expected: &[Vec<f32>], precision: Precision, what: &str) {
    assert_eq!(found.len(), expected.len());
    let least = match precision {
        Precision::F32 => 0.999_999,
        _ => 0.9999,
    };
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = cosine(found, expected);
        let length = |vector: &[f32]| vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let longer = length(found) / length(expected);
        assert!(
            near >= least && (longer - 1.0).abs() < 1.0 - least.min(0.99),
            "{what}, {precision:?}, text {at}: cosine {near}, {longer} times as long"
        );
    }
}

const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

#[test]
fn vectors_are_the_hosts_on_any_number_of_devices() {
    let eight = [ONE; 8].join(",");
    alone("vectors_are_the_hosts_on_any_number_of_devices", &cuda(&eight), |_| {
        let tiny = Tiny::of(SMALL);
        let texts: Vec<String> = [0, 5, 510, 1, 63, 9, 64, 2, 100, 17].map(words).into();
        let texts = Texts::from_iter(texts);
        let expected = on_host(&tiny, &texts, &EncodeOptions::default());
        for precision in PRECISIONS {
            let mut first = None;
            for devices in [&[0][..], &[3, 1], &[0, 1, 2, 3, 4, 5, 6, 7]] {
                let executor = driving(devices);
                let model = load(&tiny, precision, &executor).unwrap();
                assert_eq!(model.describe().devices, devices);
                let found = model
                    .encode_text_vram(&executor, &texts, &EncodeOptions::default())
                    .unwrap();
                let parts = found.parts();
                assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), texts.len());
                assert!(parts.iter().all(|part| devices.contains(&part.device) && part.address > 0));
                assert_eq!(parts.len() > 1, devices.len() > 1);
                assert_eq!(found.tokens()[..3], [2, 7, 512]);
                let found = rows(&found);
                assert_near(&found, &expected, precision, "a batch");
                // Bit for bit the same, whoever computes beside whom.
                let first = first.get_or_insert_with(|| found.clone());
                assert!(*first == found, "{precision:?} on {devices:?}");
                if devices.len() == 2 {
                    for at in [0, 2, 6] {
                        let text = Texts::from_iter([texts.get(at)]);
                        let alone = model.encode_text_vram(&executor, &text, &EncodeOptions::default());
                        assert!(rows(&alone.unwrap())[0] == found[at], "{precision:?}, text {at}");
                    }
                }
            }
        }
    });
}
