//! What a model says of itself, and when two models are one.

#![cfg(feature = "native")]

mod common;

use std::collections::BTreeSet;

use common::tiny::{HIDDEN, POSITIONS, Tensor, Tiny, shapes};
use serde_json::json;
use uform::executor::Executor;
use uform::kernels::Precision;
use uform::model::files::Memory;
use uform::model::settings::similarity::Similarity;
use uform::model::{Description, Model, ModelOptions, Pooling};
use uform::placement::RamOptions;

fn load(tiny: &Tiny, executor: &Executor) -> Model {
    let source = Memory::new(tiny.files.clone());
    Model::load_from(&source, &in_f32(), executor).expect("sound")
}

/// The precision that is the default of some CPUs, on every one.
fn in_f32() -> ModelOptions {
    ModelOptions {
        precision: Some(Precision::F32),
        ..ModelOptions::default()
    }
}

fn described(change: impl FnOnce(&mut Tiny)) -> Description {
    let mut tiny = Tiny::new();
    change(&mut tiny);
    load(&tiny, &Executor::inline()).describe()
}

#[test]
fn a_description_tells_what_the_files_say() {
    let values: usize = shapes()
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>())
        .sum();
    let found = described(|tiny| tiny.add_dense(4));
    assert_eq!(found.architecture, "bert");
    assert_eq!(found.parameters as usize, values + 4 * HIDDEN + 4);
    assert_eq!((found.dimensions, found.token_limit), (4, 16));
    assert_eq!(
        (found.pooling, found.normalize),
        (Some(Pooling::Mean), true)
    );
    assert_eq!(found.prompts["query"], "query: ");
    assert_eq!((found.default_prompt, found.similarity), (None, None));
    assert_eq!(found.precision.word(), "f32");
    // Of the token types only the first is kept, and panels may be wider than a matrix.
    assert!(found.bytes >= 4 * (values - HIDDEN), "{}", found.bytes);

    let bare = described(|tiny| {
        tiny.remove("modules.json");
        tiny.remove("sentence_bert_config.json");
        tiny.set(
            "config_sentence_transformers.json",
            "/default_prompt_name",
            json!("query"),
        );
    });
    assert_eq!((bare.pooling, bare.normalize), (None, false));
    assert_eq!((bare.dimensions, bare.token_limit), (HIDDEN, POSITIONS));
    assert_eq!(bare.default_prompt.as_deref(), Some("query"));
}

#[test]
fn the_similarity_is_that_of_the_files() {
    for similarity in Similarity::ALL {
        let found = described(|tiny| {
            let file = "config_sentence_transformers.json";
            tiny.set(file, "/similarity_fn_name", json!(similarity.word()));
        });
        assert_eq!(found.similarity, Some(similarity));
    }
}

type Change = (&'static str, fn(&mut Tiny));

/// Adds a tensor that is not read.
fn add_pooler(tensors: &mut Vec<Tensor>) {
    let mut pooler = tensors[0].clone();
    pooler.name = "pooler.dense.weight".to_owned();
    tensors.push(pooler);
}

#[test]
fn the_same_model_in_another_guise_has_the_same_fingerprint() {
    let guises: &[Change] = &[
        ("in shards", Tiny::shard),
        ("under a prefix", |tiny| {
            tiny.write_tensors(|tensors| {
                tensors
                    .iter_mut()
                    .for_each(|tensor| tensor.name.insert_str(0, "bert."));
            });
        }),
        ("in another order", |tiny| {
            tiny.write_tensors(|tensors| tensors.reverse())
        }),
        ("with a pooler", |tiny| tiny.write_tensors(add_pooler)),
        ("with a README", |tiny| tiny.put("README.md", "# Hello")),
    ];
    let plain = described(|_| {});
    for (name, guise) in guises {
        assert_eq!(described(guise), plain, "{name}");
    }
}

#[test]
fn whatever_changes_vectors_changes_the_fingerprint() {
    let changes: &[Change] = &[
        ("nothing", |_| {}),
        ("the last bit of a weight", |tiny| {
            tiny.write_tensors(|tensors| tensors[0].bytes[0] ^= 1);
        }),
        ("two tensors of a shape swapped", |tiny| {
            tiny.write_tensors(|tensors| {
                let name = |part: &str| format!("encoder.layer.0.attention.self.{part}.weight");
                for tensor in tensors {
                    if tensor.name == name("query") {
                        tensor.name = name("key");
                    } else if tensor.name == name("key") {
                        tensor.name = name("query");
                    }
                }
            });
        }),
        ("pooling", |tiny| {
            tiny.set(
                "1_Pooling/config.json",
                "/pooling_mode_mean_tokens",
                json!(false),
            );
            tiny.set(
                "1_Pooling/config.json",
                "/pooling_mode_cls_token",
                json!(true),
            );
        }),
        ("the activation", |tiny| {
            tiny.set("config.json", "/hidden_act", json!("relu"))
        }),
        ("a prompt", |tiny| {
            tiny.set(
                "config_sentence_transformers.json",
                "/prompts/query",
                json!("q: "),
            );
        }),
        ("the limit", |tiny| {
            tiny.set("sentence_bert_config.json", "/max_seq_length", json!(8))
        }),
        ("a file gone", |tiny| tiny.remove("modules.json")),
        ("the tokenizer", |tiny| {
            tiny.set("tokenizer.json", "/normalizer/lowercase", json!(false))
        }),
        ("a head", |tiny| tiny.add_dense(HIDDEN)),
    ];
    let found: BTreeSet<String> = changes
        .iter()
        .map(|(_, change)| described(change).fingerprint.to_string())
        .collect();
    assert_eq!(found.len(), changes.len(), "{found:?}");
}

/// A stored index is kept beside the fingerprint of its model, so this one may never change.
#[test]
fn a_fingerprint_is_for_ever() {
    let fingerprint = described(|_| {}).fingerprint.to_string();
    assert_eq!(fingerprint, "4f1a5a6c6deeee8ae1702118fea08468");
}

#[test]
fn who_reads_a_model_does_not_show_in_its_description() {
    let mut tiny = Tiny::new();
    tiny.add_dense(4);
    let alone = load(&tiny, &Executor::inline()).describe();
    let options = RamOptions {
        threads: Some(3),
        ..Default::default()
    };
    let team = Executor::for_ram(&options).expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    tiny.write(folder.path()).expect("written");
    let read = Model::load_ram(folder.path(), &in_f32(), &team).expect("sound");
    assert_eq!(read.describe(), alone);
    team.free();
}
