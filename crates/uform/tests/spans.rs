//! Tokens are where the reference finds them.

mod common;

use serde::Deserialize;
use serde_json::{Value, json};
use uform::model::files::{Memory, Source, folder::Folder};
use uform::model::settings::{NormalizerSettings, TokenSettings};
use uform::model::tokenizer::{Special, Tokenizer, Tokens};

/// What `fixtures/spans.py` records of one tokenizer.
#[derive(Deserialize)]
struct Entry {
    tokenizer: Option<Value>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    text: String,
    #[serde(flatten)]
    parsed: Found,
    /// Where special tokens are read as text; absent: the same.
    plain: Option<Found>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Found {
    ids: Vec<u32>,
    spans: Vec<u32>,
}

const SETTINGS: TokenSettings = TokenSettings {
    limit: 512,
    cut_left: None,
    lower_case: false,
    normalizer: NormalizerSettings {
        lowercase: None,
        strip_accents: None,
        handle_chinese_chars: None,
    },
};

fn load(file: Option<&Value>) -> Tokenizer {
    let load = |source: &dyn Source| Tokenizer::load(source, "", &SETTINGS, 1 << 20);
    let loaded = match file {
        None => load(&Folder::open(common::real_model()).expect("there")),
        Some(file) => {
            let bytes = file.to_string().into_bytes();
            load(&Memory::new([("tokenizer.json".to_owned(), bytes)]))
        }
    };
    loaded.expect("sound")
}

fn found(tokenizer: &Tokenizer, text: &str, special: Special) -> Found {
    let mut tokens = Tokens::default();
    tokenizer
        .locate(text, special, &mut tokens)
        .expect("located");
    let Tokens {
        ids,
        offsets,
        spans,
    } = tokens;
    assert_eq!(offsets, [0, ids.len() as u32]);
    Found { ids, spans }
}

#[test]
fn tokens_are_where_the_reference_finds_them() {
    let given =
        std::env::var("UFORM_TEST_SPANS").map(|path| std::fs::read_to_string(path).expect("there"));
    let recorded = given
        .as_deref()
        .unwrap_or(include_str!("fixtures/spans.json"));
    let entries: Vec<Entry> = serde_json::from_str(recorded).expect("valid");
    assert!(entries.len() >= 15);
    for (
        index,
        Entry {
            tokenizer: file,
            rows,
        },
    ) in entries.iter().enumerate()
    {
        let tokenizer = load(file.as_ref());
        assert!(rows.len() >= 30);
        for Row {
            text,
            parsed,
            plain,
        } in rows
        {
            for (special, expected) in [
                (Special::Parse, parsed),
                (Special::Text, plain.as_ref().unwrap_or(parsed)),
            ] {
                let found = found(&tokenizer, text, special);
                assert_eq!(found, *expected, "{index}, {special:?}: {text:?}");
                let mut ids = Vec::new();
                let count = tokenizer.encode(text, special, &mut ids).expect("encoded");
                assert_eq!(count.tokens as usize, found.ids.len(), "{index}: {text:?}");
                if !count.truncated() {
                    assert_eq!(ids, found.ids, "{index}, {special:?}: {text:?}");
                }
            }
        }
    }
}

#[test]
fn what_has_no_token_shifts_no_other() {
    let file = json!({
        "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": [["a", "b"]] },
        "pre_tokenizer": { "type": "WhitespaceSplit" },
    });
    let tokenizer = load(Some(&file));
    // Here the reference says 0 to 1 and 0 to 1.
    let found = found(&tokenizer, "東ab🚲a", Special::Parse);
    assert_eq!(found.ids, [2, 0]);
    assert_eq!(found.spans, [1, 3, 5, 6]);
}

#[test]
fn a_text_of_many_megabytes_is_located_in_a_time_like_its_length() {
    let tokenizer = load(None);
    let text = "Unaffable sea, 東京 e\u{301}te 👩\u{200d}🚀. ".repeat(20_000);
    let found = found(&tokenizer, &text, Special::Parse);
    let units = text.encode_utf16().count() as u32;
    let places = found.spans.chunks(2).skip(1).take(found.ids.len() - 2);
    let starts = Vec::from_iter(places.map(|place| place[0]));
    assert!(starts.is_sorted() && starts.last().is_some_and(|last| units - last < 8));
    let mut ids = Vec::new();
    let count = tokenizer
        .encode(&text, Special::Parse, &mut ids)
        .expect("encoded");
    assert_eq!(count.tokens as usize, found.ids.len());
}
