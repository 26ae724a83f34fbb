//! Vectors and token ids beside those of sentence-transformers, on every class.
//!
//! `tests/fixtures/reference.py` made the reference from the same model files: one
//! text at a time, in f32. Here all texts go through in one call. The second half
//! holds a vector against itself: it may depend on its text and on nothing else.

#![cfg(feature = "native")]

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use uform::executor::Executor;
use uform::hardware::CpuClass;
use uform::kernels::{Kernels, Precision};
use uform::model::quantize::WeightFormat;
use uform::model::{Embeddings, EncodeOptions, Model, ModelOptions, Texts};
use uform::placement::RamOptions;

/// How near each vector must come to the reference's.
fn least_cosine(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.99999,
        Precision::Bf16 => 0.9995,
        Precision::I8 => 0.995,
    }
}

struct Entry {
    text: String,
    /// Tokens before the cut, special ones included.
    tokens: u32,
    /// Ids after the cut.
    ids: Vec<u32>,
    vector: Vec<f32>,
}

struct Reference {
    limit: u32,
    entries: Vec<Entry>,
}

impl Reference {
    fn read() -> Reference {
        let folder = repository().join("tests/fixtures");
        let text = fs::read_to_string(folder.join("reference.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let number = |value: &serde_json::Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let bytes = fs::read(folder.join("reference.f32")).unwrap();
        let floats = bytes.as_chunks::<4>().0.iter();
        let floats: Vec<f32> = floats.map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let dimensions = number(&json["dimensions"]) as usize;
        let texts = json["texts"].as_array().unwrap();
        assert!(texts.len() >= 64, "{} texts are too few", texts.len());
        assert_eq!(floats.len(), texts.len() * dimensions);
        let entries = texts.iter().zip(floats.chunks_exact(dimensions));
        let entry = |(entry, vector): (&serde_json::Value, &[f32])| Entry {
            text: entry["text"].as_str().unwrap().to_owned(),
            tokens: number(&entry["tokens"]),
            ids: entry["ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(number)
                .collect(),
            vector: vector.to_vec(),
        };
        Reference {
            limit: number(&json["token_limit"]),
            entries: entries.map(entry).collect(),
        }
    }
}

#[test]
fn token_ids_are_the_references() {
    let model = load(CpuClass::native(), Precision::F32);
    for entry in Reference::read().entries {
        assert_eq!(
            model.token_ids(&entry.text).unwrap(),
            entry.ids,
            "{:?}",
            entry.text
        );
    }
}

#[test]
fn vectors_are_the_references_on_every_class_in_every_precision() {
    let reference = Reference::read();
    for (class, precision) in kinds() {
        // The portable class computes in whole numbers and in halves for the sake of
        // comparison: a few texts say as much as many.
        let slow = class == CpuClass::Serial && precision != Precision::F32;
        let short = |entry: &&Entry| !slow || entry.tokens <= 10;
        let entries: Vec<&Entry> = reference.entries.iter().filter(short).collect();
        let texts = texts_of(entries.iter().copied());
        let found = encode(&load(class, precision), &team(2), &texts);
        let mut least = f64::INFINITY;
        for (row, entry) in entries.iter().enumerate() {
            let what = format!("{class} {}, row {row}: {:?}", precision.word(), entry.text);
            assert_eq!(found.tokens[row], entry.tokens, "{what}");
            let truncated = u8::from(entry.tokens > reference.limit);
            assert_eq!(found.truncated[row], truncated, "{what}");
            let vector = row_of(&found, row);
            assert_eq!(vector.len(), entry.vector.len(), "{what}");
            assert!(vector.iter().all(|value| value.is_finite()), "{what}");
            let cosine = cosine(vector, &entry.vector);
            // Also false for NaN.
            assert!(cosine >= least_cosine(precision), "{what}: cosine {cosine}");
            let norm = dot(vector, vector).sqrt();
            assert!((norm - 1.0).abs() < 1e-5, "{what}: norm {norm}");
            least = least.min(cosine);
        }
        let (count, precision) = (entries.len(), precision.word());
        say(&format!(
            "{class} {precision}: least cosine {least:.9} of {count} texts"
        ));
    }
}

/// What a page downloads instead of 90 MB, and how near its vectors are whatever they are computed in.
#[test]
fn quantized_weights_are_small_and_have_the_references_vectors() {
    let reference = Reference::read();
    let texts = texts_of(&reference.entries);
    let team = team(2);
    let folder = tempfile::tempdir().unwrap();
    for (format, most_bytes, expected) in [
        (
            WeightFormat::F16,
            46_000_000,
            vec![(Precision::F32, 0.99999), (Precision::I8, 0.995)],
        ),
        (
            WeightFormat::I8,
            24_000_000,
            vec![(Precision::F32, 0.995), (Precision::I8, 0.995)],
        ),
    ] {
        let into = folder.path().join(format.word());
        let found = Model::quantize(&model_folder(), &into, format, &team).unwrap();
        assert!(found.bytes_after <= most_bytes, "{found:?}");
        let size = fs::metadata(into.join("model.safetensors")).unwrap().len();
        assert_eq!(size, found.bytes_after);
        for (precision, least_cosine) in expected {
            let options = ModelOptions {
                precision: Some(precision),
                ..ModelOptions::default()
            };
            let model = Model::load_ram(&into, &options, &team).unwrap();
            let found = encode(&model, &team, &texts);
            let rows = reference.entries.iter().enumerate();
            let cosines = rows.map(|(row, entry)| cosine(row_of(&found, row), &entry.vector));
            let cosines: Vec<f64> = cosines.collect();
            assert!(cosines.iter().all(|cosine| cosine.is_finite()));
            let least = cosines.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
            let (format, precision) = (format.word(), precision.word());
            say(&format!(
                "{format} weights of {size} bytes in {precision}: cosine at least {least:.9}, \
                 {mean:.9} on average"
            ));
            assert!(least >= least_cosine, "{format} in {precision}: {least}");
        }
    }
}

#[test]
fn a_vector_depends_on_its_text_alone() {
    let reference = Reference::read();
    // Texts of every kind, but few long ones: those cost the portable class seconds.
    let (short, long): (Vec<&Entry>, Vec<&Entry>) = reference
        .entries
        .iter()
        .partition(|entry| entry.tokens <= 64);
    let (short, long) = (texts_of(short), texts_of(long.into_iter().take(3)));
    assert!(short.len() >= 64 && long.len() == 3);
    let spread: Vec<&str> = [
        &short[..25],
        &long[..1],
        &short[25..50],
        &long[1..],
        &short[50..],
    ]
    .concat();
    let pair = vec![long[2], short[0]];
    let reversed: Vec<&str> = spread.iter().rev().copied().collect();

    for (class, precision) in kinds() {
        if class == CpuClass::Serial && precision != Precision::F32 {
            continue; // One row at a time by construction, and slow.
        }
        let model = load(class, precision);
        let alone: HashMap<&str, Vec<u32>> = spread
            .iter()
            .map(|text| (*text, encode(&model, &Executor::inline(), &[text])))
            .map(|(text, found)| (text, bits(&found.data)))
            .collect();
        for (how, executor, batch) in [
            ("in a pair, two threads", team(2), &pair),
            ("in a batch, inline", Executor::inline(), &short),
            ("in a batch, one thread", team(1), &short),
            ("in a batch, two threads", team(2), &short),
            ("beside long neighbours, three threads", team(3), &spread),
            ("in reverse order, two threads", team(2), &reversed),
        ] {
            let found = encode(&model, &executor, batch);
            for (row, text) in batch.iter().enumerate() {
                let same = bits(row_of(&found, row)) == alone[text];
                assert!(same, "{class} {precision:?}: {text:?} differs {how}");
            }
        }
    }
}

/// The classes to test: those with kernels of their own that run here. A class this machine
/// lacks is said aloud, since a test that passed by not running proves nothing.
fn classes() -> Vec<CpuClass> {
    let mut runnable = Vec::new();
    for class in CpuClass::COMPILED {
        match class.missing() {
            None => runnable.push(*class),
            Some(missing) => say(&format!("{class}: SKIPPED, this machine lacks {missing}")),
        }
    }
    assert!(!runnable.is_empty(), "no class with kernels runs here");
    runnable
}

/// The classes to test in the precisions they have kernels of their own for.
fn kinds() -> Vec<(CpuClass, Precision)> {
    let kinds = classes().into_iter().flat_map(|class| {
        let own = move |precision: &Precision| Kernels::of(class, *precision).class() == class;
        Precision::ALL
            .into_iter()
            .filter(own)
            .map(move |precision| (class, precision))
    });
    kinds.collect()
}

fn load(class: CpuClass, precision: Precision) -> Model {
    let options = ModelOptions {
        cpu_class: Some(class),
        precision: Some(precision),
        ..ModelOptions::default()
    };
    Model::load_ram(&model_folder(), &options, &Executor::inline()).unwrap()
}

fn team(threads: usize) -> Executor {
    let options = RamOptions {
        threads: Some(threads as u64),
        ..Default::default()
    };
    Executor::for_ram(&options).unwrap()
}

fn encode(model: &Model, executor: &Executor, texts: &[&str]) -> Embeddings {
    let found = model
        .encode_text(
            executor,
            &Texts::from_iter(texts),
            &EncodeOptions::default(),
        )
        .unwrap();
    assert_eq!(found.rows, texts.len());
    assert_eq!(found.data.len(), found.rows * found.dimensions);
    found
}

fn texts_of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<&'a str> {
    let texts = entries.into_iter().map(|entry| entry.text.as_str());
    texts.collect()
}

fn row_of(embeddings: &Embeddings, row: usize) -> &[f32] {
    &embeddings.data[row * embeddings.dimensions..][..embeddings.dimensions]
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (dot, a, b) = (dot(a, b), dot(a, a), dot(b, b));
    dot / (a * b).sqrt()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    products.sum()
}

/// Past the capture of the test harness, which keeps the prints of a passing test to itself.
fn say(line: &str) {
    let line = format!("reference: {line}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn repository() -> &'static Path {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).unwrap()
}

fn model_folder() -> PathBuf {
    let folder = std::env::var_os("UFORM_TEST_MODEL").map_or_else(
        || repository().join("models/all-MiniLM-L6-v2"),
        PathBuf::from,
    );
    assert!(
        folder.join("model.safetensors").exists(),
        "no test model in {}: fetch it with `cargo xtask fetch-model`, or name its folder in \
         UFORM_TEST_MODEL",
        folder.display()
    );
    folder
}
