//! Texts become the ids that the reference tokenizer gives them.

mod common;

use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Waker};
use std::thread;

use common::tiny::Tiny;
use proptest::prelude::*;
use serde_json::json;
use tokenizers::pipeline::{PipelineTokenizer, PreTokenizer, PreTokenizerScratch};
use uform::executor::Executor;
use uform::model::{
    EncodeOptions, Model, ModelOptions, Pooling, Texts,
    files::folder::Folder,
    files::{Memory, Source},
    load::opened::Opened,
    tokenizer::{Count, Special, Tokenizer},
};
use unicode_categories::UnicodeCategories;

/// A text, how often it is repeated, its tokens before any cut, and the ids kept.
type Row = (String, usize, u32, Vec<u32>);

fn encode(tokenizer: &Tokenizer, text: &str) -> (Count, Vec<u32>) {
    let mut ids = Vec::new();
    let count = tokenizer
        .encode(text, Special::Parse, &mut ids)
        .expect("encoded");
    (count, ids)
}

/// The tokenizer as loading a model makes it.
fn tokenizer(source: &dyn Source) -> Tokenizer {
    let Opened {
        config, settings, ..
    } = Opened::open(source).expect("sound");
    let folder = &settings.transformer;
    Tokenizer::load(source, folder, &settings.tokens, config.vocabulary).expect("sound")
}

fn tiny(change: impl FnOnce(&mut Tiny)) -> Tokenizer {
    let mut tiny = Tiny::new();
    change(&mut tiny);
    tokenizer(&Memory::new(tiny.files))
}

#[test]
fn ids_are_those_of_the_reference_on_any_thread() {
    let tokenizer = tokenizer(&Folder::open(common::real_model()).expect("there"));
    assert_eq!(tokenizer.limit(), 256);
    let rows: Vec<Row> = serde_json::from_str(include_str!("fixtures/tokens.json")).expect("valid");
    assert!(rows.len() >= 50);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (text, times, tokens, ids) in &rows {
                    let (count, found) = encode(&tokenizer, &text.repeat(*times));
                    assert_eq!(&found, ids, "{text:?} times {times}");
                    assert_eq!(count.tokens, *tokens, "{text:?} times {times}");
                    assert_eq!(count.kept as usize, ids.len());
                    assert_eq!(count.truncated(), *tokens > 256);
                }
            });
        }
    });
}

#[test]
fn the_limit_of_the_model_replaces_that_of_the_file() {
    // The file itself says 4, and pads to 4.
    let tokenizer = tiny(|_| {});
    assert_eq!(encode(&tokenizer, "").1, [2, 3]);
    assert_eq!(encode(&tokenizer, "A red bicycle.").1, [2, 5, 6, 7, 18, 3]);
    let (count, ids) = encode(&tokenizer, &"sea ".repeat(14));
    assert_eq!(
        (count.tokens, count.kept, count.truncated()),
        (16, 16, false)
    );
    assert_eq!(ids.len(), 16);
    let (count, ids) = encode(&tokenizer, &format!("{}red", "sea ".repeat(14)));
    assert_eq!(
        (count.tokens, count.kept, count.truncated()),
        (17, 16, true)
    );
    assert_eq!((ids[0], ids[14], ids[15]), (2, 11, 3));
}

#[test]
fn ids_are_appended() {
    let tokenizer = tiny(|_| {});
    let mut ids = vec![99];
    tokenizer
        .encode("sea", Special::Parse, &mut ids)
        .expect("encoded");
    tokenizer
        .encode("red", Special::Parse, &mut ids)
        .expect("encoded");
    assert_eq!(ids, [99, 2, 11, 3, 2, 6, 3]);
}

#[test]
fn texts_are_cut_at_the_side_the_files_name() {
    let text = format!("red {}", "sea ".repeat(20));
    let kept = |change: fn(&mut Tiny)| encode(&tiny(change), &text).1[1];
    let (red, sea) = (6, 11);
    assert_eq!(kept(|_| {}), red);
    assert_eq!(
        kept(|tiny| tiny.set("tokenizer.json", "/truncation/direction", json!("Left"))),
        sea
    );
    assert_eq!(
        kept(|tiny| tiny.set("tokenizer_config.json", "/truncation_side", json!("left"))),
        sea
    );
    // So is what comes in parts.
    for (side, word) in [("Left", "red"), ("Right", "cafe")] {
        let change = |tiny: &mut Tiny| {
            tiny.set("tokenizer.json", "/truncation/direction", json!(side));
        };
        let words = ["cafe", "sea", "red"].map(|word| format!("{word} ").repeat(30_000));
        let (count, ids) = encode(&tiny(change), &words.concat());
        assert_eq!((count.tokens, count.kept), (90_002, 16));
        let kept = encode(&tiny(change), &format!("{word} ").repeat(14)).1;
        assert_eq!(ids, kept, "{side}");
    }
    // The settings have the last word.
    let kept = kept(|tiny| {
        tiny.set("tokenizer.json", "/truncation/direction", json!("Left"));
        tiny.set("tokenizer_config.json", "/truncation_side", json!("right"));
    });
    assert_eq!(kept, red);
}

#[test]
fn letters_are_folded_as_the_settings_say() {
    let (cafe, unknown) = (23, 1);
    let first = |change: fn(&mut Tiny)| encode(&tiny(change), "CAFÉ").1[1];
    assert_eq!(first(|_| {}), cafe);
    let cased: fn(&mut Tiny) =
        |tiny| tiny.set("tokenizer.json", "/normalizer/lowercase", json!(false));
    assert_eq!(first(cased), unknown);
    // tokenizer_config.json wins over tokenizer.json, where it says anything.
    assert_eq!(
        first(|tiny| {
            tiny.set("tokenizer.json", "/normalizer/lowercase", json!(false));
            tiny.set("tokenizer_config.json", "/do_lower_case", json!(true));
        }),
        cafe
    );
    assert_eq!(
        first(|tiny| tiny.set("tokenizer_config.json", "/do_lower_case", json!(false))),
        unknown
    );
    assert_eq!(
        first(|tiny| tiny.set("tokenizer_config.json", "/strip_accents", json!(false))),
        unknown
    );
    // Other classes take tokenizer.json as it is.
    assert_eq!(
        first(|tiny| {
            tiny.set(
                "tokenizer_config.json",
                "/tokenizer_class",
                json!("PreTrainedTokenizerFast"),
            );
            tiny.set("tokenizer_config.json", "/do_lower_case", json!(false));
        }),
        cafe
    );
    // Lower case before everything else, accents as they were.
    assert_eq!(
        encode(
            &tiny(|tiny| {
                tiny.set("tokenizer.json", "/normalizer/lowercase", json!(false));
                tiny.set("sentence_bert_config.json", "/do_lower_case", json!(true));
            }),
            "RED"
        )
        .1,
        [2, 6, 3]
    );
}

#[test]
fn the_tokens_of_a_prompt_are_counted_without_the_one_that_ends_it() {
    let tokenizer = tiny(|_| {});
    // [CLS] query :
    assert_eq!(
        tokenizer.prompt_tokens("query: ", Special::Parse).ok(),
        Some(3)
    );
    assert_eq!(tokenizer.prompt_tokens("", Special::Parse).ok(), Some(1));
}

/// Multilingual models of the BERT family come with a vocabulary of scored pieces.
#[test]
fn pieces_with_scores_are_a_vocabulary_too() {
    let tokenizer = tiny(|tiny| {
        tiny.edit("tokenizer.json", |file| {
            file["added_tokens"] = json!([]);
            file["normalizer"] = json!({ "type": "NFKC" });
            file["pre_tokenizer"] =
                json!({ "type": "Metaspace", "replacement": "▁", "add_prefix_space": true });
            file["model"] = json!({ "type": "Unigram", "unk_id": 1, "vocab": [
                ["<pad>", 0.0], ["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0],
                ["▁", -2.0], ["▁sea", -1.0], ["s", -3.0], ["▁se", -5.0], ["a", -6.0],
            ] });
        });
    });
    assert_eq!(encode(&tokenizer, "sea seas").1, [2, 5, 5, 6, 3]);
    assert_eq!(encode(&tokenizer, "中").1, [2, 4, 1, 3]);
}

#[test]
fn an_empty_text_without_special_tokens_is_an_ordinary_row() {
    let mut tiny = Tiny::new();
    tiny.set("tokenizer.json", "/post_processor", json!(null));
    let executor = Executor::inline();
    let source = Memory::new(tiny.files);
    let model = Model::load_from(&source, &ModelOptions::default(), &executor).expect("sound");
    for pooling in Pooling::ALL {
        let options = EncodeOptions {
            pooling: Some(pooling),
            ..Default::default()
        };
        let embed = |texts: &[&str]| {
            let texts = Texts::from_iter(texts);
            model
                .encode_text(&executor, &texts, &options)
                .expect("embedded")
        };
        let found = embed(&["", "sea", ""]);
        assert_eq!(found.tokens, [0, 1, 0]);
        assert!(
            found
                .row(0)
                .iter()
                .chain(found.row(2))
                .all(|value| *value == 0.0)
        );
        assert_eq!(found.row(1), embed(&["sea"]).row(0));
        assert_eq!(embed(&[""]).data, found.row(0));
    }
}

/// The tokenizers crate's own pipeline for a model's file, on whose steps ours is built.
fn reference() -> tokenizers::pipeline::PipelineTokenizer {
    let file = std::fs::read(common::real_model().join("tokenizer.json")).expect("there");
    let mut file: serde_json::Value = serde_json::from_slice(&file).expect("JSON");
    for key in ["truncation", "padding"] {
        file[key] = serde_json::Value::Null;
    }
    let canonical = tokenizers::canonicalize_str(&file.to_string()).expect("sound");
    tokenizers::from_json(&canonical).expect("sound")
}

/// Texts of everything that tokenizers tell apart.
fn text() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "unaffable",
        "##able",
        "Kopfsteinpflaster",
        "e\u{301}te",
        "[MASK]",
        "[mask]",
        " [SEP]",
        "##",
        "#",
        "\u{fffd}",
        "\0",
        "a\u{300}\u{301}",
        "東京",
        "ＡＢＣ",
        "don't",
        "3.14",
        "\u{200d}",
        "ß",
    ]);
    let part = prop_oneof![
        words.prop_map(str::to_owned),
        "\\PC{0,8}",
        "[a-z]{1,12}",
        Just(" ".to_owned()),
        Just("x".repeat(101)),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| as_the_crate_reads(&parts.concat()))
}

/// A text without the characters that the crate and the reference disagree about, which are ours as the reference's:
/// `tokenizer::punctuation` has tests of them.
fn as_the_crate_reads(text: &str) -> String {
    static CRATE: OnceLock<PipelineTokenizer> = OnceLock::new();
    let steps = CRATE.get_or_init(reference).get_pre_tokenizer();
    let mut cutting = PreTokenizerScratch::default();
    let mut is_agreed = |char: char| {
        let mut words = Vec::new();
        let text = format!("a{char}b");
        let cut = steps.pre_tokenize(&text, &mut cutting, &mut words);
        cut.expect("cut");
        let is_cut = words.len() == 3;
        char.is_ascii() || is_cut == char.is_punctuation()
    };
    let chars = text.chars();
    chars
        .map(|char| if is_agreed(char) { char } else { 'x' })
        .collect()
}

#[test]
fn words_become_the_pieces_that_the_crate_makes_of_them() {
    let (ours, reference) = (
        tokenizer(&Folder::open(common::real_model()).expect("there")),
        reference(),
    );
    let options = tokenizers::pipeline::EncodeOptions {
        add_special_tokens: true,
        ..Default::default()
    };
    let check = |text: &str| {
        let mut expected = Vec::new();
        let whole = reference.encode_into(text, &options, &mut expected);
        whole.expect("encoded");
        let expected = Vec::from_iter(expected.into_iter().map(u32::from));
        (encode(&ours, text).1, expected)
    };
    proptest!(ProptestConfig::with_cases(1000), |(text in text())| {
        let (found, expected) = check(&text);
        if expected.len() <= ours.limit() {
            prop_assert_eq!(found, expected, "{:?}", text);
        }
    });
}

/// What texts without a space between words, or without a word, are made of.
const RUNS: &[&str] = &[
    "!",
    ".,;:-",
    " ",
    "\n",
    "السَّلَامُ",
    "سَّ ",
    "กรุงเทพที่สุด",
    "👩\u{200d}👩\u{200d}👧",
    "🏳\u{fe0f}\u{200d}🌈👍🏽",
    "\u{301}",
    "\u{200d}",
    "e\u{323}\u{301}",
    "한국어",
    "भारत",
    "東京",
    "Qy",
    "[SEP]",
];

#[test]
fn a_long_text_of_anything_is_encoded_in_many_steps() {
    let tokenizer = tokenizer(&Folder::open(common::real_model()).expect("there"));
    for unit in RUNS {
        let text = unit.repeat(1_000_000 / unit.len());
        let mut ids = Vec::new();
        let mut work = pin!(tokenizer.encode_in_steps(&text, Special::Parse, &mut ids));
        let mut context = Context::from_waker(Waker::noop());
        let mut steps = 1;
        while work.as_mut().poll(&mut context).is_pending() {
            steps += 1;
        }
        // Of 32 KB and a few bytes.
        assert_eq!(steps, 31, "{unit:?}");
    }
}

#[test]
fn a_long_text_has_the_ids_it_has_in_one_piece() {
    let folder = Folder::open(common::real_model()).expect("there");
    let Opened {
        config,
        mut settings,
        ..
    } = Opened::open(&folder).expect("sound");
    settings.tokens.limit = 1 << 20;
    let (place, tokens) = (&settings.transformer, &settings.tokens);
    let ours = Tokenizer::load(&folder, place, tokens, config.vocabulary).expect("sound");
    let reference = reference();
    let options = tokenizers::pipeline::EncodeOptions {
        add_special_tokens: true,
        ..Default::default()
    };
    let run = (prop::sample::select(RUNS), 20_000..90_000usize);
    let run = run.prop_map(|(unit, bytes)| unit.repeat(bytes / unit.len()));
    let parts = prop::collection::vec(text(), 50);
    let between = prop::sample::select(vec![" and then ", "x,y", "東京", "", "x"]);
    // What is one word, or is not: an added token may be at its ends.
    let word = prop::collection::vec(prop::sample::select(vec!["a7", "[SEP]", "é", "-"]), 3);
    let word =
        (word, 100..90_000usize).prop_map(|(parts, length)| parts.join(&"Qy".repeat(length / 2)));
    let cases = (parts, between, word, prop::collection::vec(run, 0..3));
    proptest!(ProptestConfig::with_cases(32), |((mut parts, between, word, runs) in cases)| {
        parts.push(word);
        parts.extend(runs);
        let once = parts.join(between);
        // Longer than what is encoded in one piece, several times.
        let long = once.repeat(150_000 / once.len() + 1);
        let mut expected = Vec::new();
        reference.encode_into(&long, &options, &mut expected).expect("encoded");
        let expected = Vec::from_iter(expected.into_iter().map(u32::from));
        let (count, found) = encode(&ours, &long);
        prop_assert_eq!(count.tokens as usize, expected.len());
        prop_assert!(found == expected);
    });
}

#[test]
fn a_token_beyond_the_vocabulary_has_the_id_that_follows() {
    // An added token that is no entry: its id is that of the next one.
    let added = |tiny: &mut Tiny| {
        tiny.edit("tokenizer.json", |file| {
            let vocabulary = file["model"]["vocab"].as_object_mut().expect("entries");
            let tree = vocabulary.remove("cafe").expect("the last entry");
            let mut token = file["added_tokens"][0].clone();
            token["content"] = json!("<tree>");
            token["id"] = tree;
            token["special"] = json!(false);
            file["added_tokens"]
                .as_array_mut()
                .expect("a list")
                .push(token);
        });
    };
    assert_eq!(encode(&tiny(added), "sea <tree>sea").1, [2, 11, 23, 11, 3]);
}
