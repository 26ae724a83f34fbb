//! Files as bad luck or bad will make them: whatever their bytes, reading a model
//! ends soon, in a model or in an error that blames its files.

mod common;

use std::time::{Duration, Instant};

use common::tiny::Tiny;
use proptest::prelude::*;
use serde_json::{Value, json};
use uform::{
    Status,
    executor::Executor,
    kernels::Precision,
    model::{EncodeOptions, Model, ModelOptions, Pooling, Texts, files::Memory},
};

/// Reads all of a model, and embeds a text with it.
fn survives(tiny: &Tiny) -> Result<(), TestCaseError> {
    survives_in(tiny, None)
}

fn survives_in(tiny: &Tiny, precision: Option<Precision>) -> Result<(), TestCaseError> {
    let start = Instant::now();
    let source = Memory::new(tiny.files.clone());
    let executor = Executor::inline();
    let options = EncodeOptions {
        pooling: Some(Pooling::Mean),
        ..Default::default()
    };
    let texts = Texts::from_iter(["a red bicycle, [SEP] 中 café \u{0}"]);
    let loading = ModelOptions {
        precision,
        ..ModelOptions::default()
    };
    let outcome = Model::load_from(&source, &loading, &executor)
        .and_then(|model| model.encode_text(&executor, &texts, &options));
    if let Ok(embeddings) = &outcome {
        prop_assert!(embeddings.data.iter().all(|value| value.is_finite()));
    }
    if let Err(error) = outcome {
        let blamed = matches!(
            error.status(),
            Status::CorruptModel | Status::NotFound | Status::Unsupported
        );
        prop_assert!(blamed, "{:?}: {error}", error.status());
        prop_assert!(!error.message().is_empty());
    }
    prop_assert!(
        start.elapsed() < Duration::from_secs(2),
        "took {:?}",
        start.elapsed()
    );
    Ok(())
}

/// A change of a file's bytes; places are fractions of its length.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(f64),
    Set(f64, u8),
    Insert(f64, Vec<u8>),
    Remove(f64, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    // Early places are likelier: headers and keys are there.
    let place = (0.0..1.0f64, 1..4i32).prop_map(|(place, power)| place.powi(power));
    prop_oneof![
        place.clone().prop_map(Damage::Truncate),
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (place.clone(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (place, 1..9usize).prop_map(|(at, bytes)| Damage::Remove(at, bytes)),
    ]
}

fn apply(file: &mut Vec<u8>, damage: &Damage) {
    let at = |place: f64| ((file.len() as f64 * place) as usize).min(file.len().saturating_sub(1));
    match damage {
        Damage::Truncate(place) => file.truncate(at(*place)),
        Damage::Set(place, byte) => {
            let at = at(*place);
            if let Some(old) = file.get_mut(at) {
                *old = *byte;
            }
        }
        Damage::Insert(place, bytes) => {
            let at = at(*place);
            file.splice(at..at, bytes.iter().copied());
        }
        Damage::Remove(place, bytes) => {
            let at = at(*place);
            file.drain(at..(at + bytes).min(file.len()));
        }
    }
}

/// Values that are rarely meant.
fn odd_value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(3.5),
        json!(4294967295u32),
        json!(9223372036854775807i64),
        json!(1e300),
        json!(""),
        json!("[CLS]"),
        json!("../.."),
        json!("x".repeat(5000)),
        json!("##".repeat(200)),
        json!("\u{0}"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({ "type": "Sequence" }),
        json!({ "type": "Precompiled", "precompiled_charsmap": "AAAAAAAA" }),
        json!({ "type": "Precompiled", "precompiled_charsmap": "/////wAAAAA=" }),
        json!({ "type": "Replace", "pattern": { "String": "" }, "content": "xx" }),
        json!({ "type": "Replace", "pattern": { "Regex": "(((((a*)*)*)*)*)" }, "content": "" }),
        json!({ "type": "Split", "pattern": { "String": "" }, "behavior": "Isolated", "invert": false }),
        json!({ "type": "Metaspace", "replacement": "_", "prepend_scheme": "always" }),
        json!({ "type": "FixedLength", "length": 0 }),
        json!({ "type": "BPE", "vocab": { "a": 0, "b": 1 }, "merges": ["a b", "b a"] }),
        json!({ "type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0], ["b", 1e300]] }),
        json!({ "type": "Unigram", "unk_id": 0, "vocab": [["[UNK]", 0.0], ["", -1.0], ["a", -1e300]] }),
        json!({ "type": "WordLevel", "unk_token": "a", "vocab": { "a": 0 } }),
    ])
}

/// How many values a document has, itself included.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// The value at a position in reading order.
fn nth(value: &mut Value, at: usize) -> &mut Value {
    if at == 0 {
        return value;
    }
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => unreachable!("a position within the document"),
    };
    let mut before = 1;
    for child in children {
        let below = size(child);
        if at < before + below {
            return nth(child, at - before);
        }
        before += below;
    }
    unreachable!("a position within the document")
}

/// A few hundred, or the full count of a soak.
fn cases() -> u32 {
    match std::env::var_os("UFORM_SOAK") {
        Some(_) => 20_000,
        None => 400,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn damaged_bytes_are_an_error_or_harmless(
        sharded: bool,
        quantized: bool,
        file: prop::sample::Index,
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut tiny = Tiny::new();
        if quantized {
            tiny.quantize();
        }
        if sharded {
            tiny.shard();
        }
        let name = file.get(&tiny.files.keys().cloned().collect::<Vec<_>>()).clone();
        let bytes = tiny.files.get_mut(&name).expect("there");
        damages.iter().for_each(|damage| apply(bytes, damage));
        survives(&tiny)?;
        if quantized {
            survives_in(&tiny, Some(Precision::I8))?;
        }
    }

    #[test]
    fn odd_settings_are_an_error_or_harmless(
        file: prop::sample::Index,
        places in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..4),
        tokenizer: bool,
    ) {
        let mut tiny = Tiny::new();
        tiny.add_dense(4);
        let names: Vec<_> = tiny.files.keys().filter(|name| name.ends_with(".json")).cloned().collect();
        // Half of all goes to the file that a library reads for us.
        let name = if tokenizer { "tokenizer.json" } else { file.get(&names) };
        tiny.edit(name, |document| {
            for (place, value) in &places {
                let at = place.index(size(document));
                *nth(document, at) = value.clone();
            }
        });
        survives(&tiny)?;
    }

    #[test]
    fn any_header_is_an_error_or_harmless(
        length in prop_oneof![any::<u64>(), 0..200u64],
        header in "[\\[\\]{}\",:a-f0-9]{0,100}",
        data in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut tiny = Tiny::new();
        let file = [&length.to_le_bytes(), header.as_bytes(), &data].concat();
        tiny.put("model.safetensors", file);
        survives(&tiny)?;
    }
}
