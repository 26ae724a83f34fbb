//! `tokenizer.json`, made ready for the pipeline that runs it.
//!
//! The pipeline reads one canonical spelling, and files in the wild use older
//! ones, so a file is rewritten first. Its vocabulary, nearly all of its bytes, is
//! the same in either spelling: it is surveyed and passed on as it stands, which
//! makes the rewriting ten times faster. A WordPiece vocabulary is not passed on but looked up in by
//! ourselves ([`Words`]). The survey also refuses what the pipeline would take too seriously: it
//! sizes tables by the ids and lengths it is given, and recurses once a byte of a vocabulary entry.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};

use super::settings::{NormalizerSettings, TokenSettings};
use super::words::{Vocabulary, Words};
use crate::error::{Error, Result};

/// The longest vocabulary entry in bytes; real ones stay below 300.
const LONGEST_ENTRY: usize = 1024;

/// The longest word a model may be told to look up; real ones say 100.
const LONGEST_WORD: u64 = 1 << 16;

/// A file the pipeline reads, and what it says that the pipeline is not asked.
pub struct TokenizerFile {
    /// The canonical spelling, without truncation and padding. Where there are `words`, its
    /// vocabulary is only what its other parts need.
    pub canonical: String,
    /// The vocabulary, if it is one of WordPiece that has every added token.
    pub words: Option<Words>,
    /// Whether a text has the ids of its parts, where these are cut between two words of ASCII.
    pub divisible: bool,
    /// The largest id of the vocabulary.
    pub largest_id: u32,
    /// The ids of special tokens, such as `[SEP]`.
    pub special: Vec<u32>,
    /// Whether the file itself cuts long texts at their beginning.
    pub cut_left: bool,
}

impl TokenizerFile {
    /// Rewrites a file; `place` is what messages call it.
    pub fn prepare(place: &str, bytes: &[u8], settings: &TokenSettings) -> Result<TokenizerFile> {
        let invalid = |error: serde_json::Error| {
            Error::corrupt(format!("{place}: not a valid tokenizer: {error}")).because(error)
        };
        let root: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).map_err(invalid)?;
        let Some(model) = root.get("model") else {
            return Err(Error::corrupt(format!("{place}: model is missing")));
        };
        let model: BTreeMap<String, &RawValue> =
            serde_json::from_str(model.get()).map_err(invalid)?;
        let Some(&vocabulary) = model.get("vocab") else {
            return Err(Error::corrupt(format!("{place}: model.vocab is missing")));
        };
        let survey: Survey = serde_json::from_str(vocabulary.get()).map_err(invalid)?;

        // The rest as values, with an empty vocabulary of the same kind.
        let empty = if vocabulary.get().starts_with('[') {
            json!([])
        } else {
            json!({})
        };
        let mut rest = values(root, "model").map_err(invalid)?;
        let mut model = values(model, "vocab").map_err(invalid)?;
        check_words(place, &model)?;
        check_added(place, &rest)?;
        model.insert("vocab".to_owned(), empty);
        rest.insert("model".to_owned(), model.into());
        let cut_left = rest
            .get("truncation")
            .is_some_and(|truncation| truncation["direction"] == "Left");
        rest.remove("truncation");
        rest.remove("padding");
        adjust_normalizer(&mut rest, settings);
        let special = special_ids(&rest);

        let mut rest = Value::Object(rest);
        tokenizers::canonicalize_value(&mut rest).map_err(|error| {
            Error::corrupt(format!("{place}: not a valid tokenizer: {error}")).because(error)
        })?;
        let words = words(&rest, &survey.entries);
        let divisible = words.is_some() && is_divisible(&rest);
        let needed = words.as_ref().and_then(|words| needed(&rest, words));
        Ok(TokenizerFile {
            canonical: match &needed {
                Some(needed) => splice(rest, &needed.to_string()),
                None => splice(rest, vocabulary.get()),
            },
            words: words.filter(|_| needed.is_some()),
            divisible,
            largest_id: survey.largest_id,
            special,
            cut_left,
        })
    }
}

/// Whether a canonical file cuts words as BERT does, and no added token reaches over a space.
fn is_divisible(rest: &Value) -> bool {
    let is = |part: &str, kind: &str| rest[part]["type"] == kind;
    let mut added = rest["added_tokens"].as_array().into_iter().flatten();
    is("normalizer", "BertNormalizer")
        && is("pre_tokenizer", "BertPreTokenizer")
        && added.all(|token| {
            let content = token["content"].as_str();
            content.is_some_and(|content| !content.contains(char::is_whitespace))
        })
}

/// The words of a canonical file whose model is WordPiece. A file in which something is missing has
/// none: the pipeline's reader says what.
fn words(rest: &Value, entries: &[(Cow<'_, str>, u32)]) -> Option<Words> {
    let model = rest
        .get("model")
        .filter(|model| model["type"] == "WordPiece")?;
    let longest_word = model["max_input_chars_per_word"].as_u64()?;
    Words::new(&Vocabulary {
        entries,
        continuing_prefix: model["continuing_subword_prefix"].as_str()?,
        unknown: model["unk_token"].as_str()?,
        longest_word: usize::try_from(longest_word).ok()?,
    })
}

/// The entries that a canonical file's other parts ask for: its added tokens, which have their ids from
/// the vocabulary, and the unknown token. `None` when an added token is not there: then its id
/// follows from how many entries there are.
fn needed(rest: &Value, words: &Words) -> Option<Value> {
    let added = rest.get("added_tokens").and_then(Value::as_array);
    let contents = added
        .into_iter()
        .flatten()
        .map(|token| token["content"].as_str());
    let entries = contents.chain([rest["model"]["unk_token"].as_str()]);
    let entries = entries.map(|entry| Some((entry?.to_owned(), words.id(entry?)?.into())));
    entries.collect::<Option<Map<_, _>>>().map(Value::Object)
}

/// Every entry but one, as values.
fn values(
    entries: BTreeMap<String, &RawValue>,
    without: &str,
) -> serde_json::Result<Map<String, Value>> {
    let entries = entries.into_iter().filter(|(key, _)| key != without);
    entries
        .map(|(key, raw)| Ok((key, serde_json::from_str(raw.get())?)))
        .collect()
}

/// Text with the vocabulary in its place again.
fn splice(mut rest: Value, vocabulary: &str) -> String {
    let without =
        |value: &mut Value, key: &str| value.as_object_mut().and_then(|fields| fields.remove(key));
    let mut model = without(&mut rest, "model").unwrap_or_default();
    without(&mut model, "vocab");
    let (model, rest) = (model.to_string(), rest.to_string());
    // Neither is `{}`: a canonical model has a type, a canonical file a version.
    format!(
        "{{\"model\":{{\"vocab\":{vocabulary},{},{}",
        &model[1..],
        &rest[1..]
    )
}

/// Applies what the model's other files say about normalisation.
fn adjust_normalizer(rest: &mut Map<String, Value>, settings: &TokenSettings) {
    let normalizer = rest.entry("normalizer").or_insert(Value::Null);
    if normalizer["type"] == "BertNormalizer" {
        let NormalizerSettings {
            lowercase,
            strip_accents,
            handle_chinese_chars,
        } = settings.normalizer;
        for (key, flag) in [
            ("lowercase", lowercase),
            ("strip_accents", strip_accents),
            ("handle_chinese_chars", handle_chinese_chars),
        ] {
            if let Some(flag) = flag {
                normalizer[key] = flag.into();
            }
        }
    }
    if settings.lower_case {
        let before = std::mem::take(normalizer);
        let mut steps = vec![json!({ "type": "Lowercase" })];
        if !before.is_null() {
            steps.push(before);
        }
        *normalizer = json!({ "type": "Sequence", "normalizers": steps });
    }
}

/// The ids of the added tokens that are marked as special.
fn special_ids(rest: &Map<String, Value>) -> Vec<u32> {
    let added = rest.get("added_tokens").and_then(Value::as_array);
    let special = added
        .into_iter()
        .flatten()
        .filter(|token| token["special"] == true);
    special
        .filter_map(|token| token["id"].as_u64().and_then(|id| id.try_into().ok()))
        .collect()
}

/// Refuses a word length that would be reserved as memory.
fn check_words(place: &str, model: &Map<String, Value>) -> Result<()> {
    let key = "max_input_chars_per_word";
    match model.get(key) {
        Some(value) if value.as_u64().is_none_or(|most| most > LONGEST_WORD) => {
            Err(Error::corrupt(format!(
                "{place}: model.{key} is {value}, expected a whole number up to {LONGEST_WORD}"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses added tokens longer than the matcher's tables can say.
fn check_added(place: &str, rest: &Map<String, Value>) -> Result<()> {
    let added = rest.get("added_tokens").and_then(Value::as_array);
    let texts = added
        .into_iter()
        .flatten()
        .filter_map(|token| token["content"].as_str());
    match texts.map(str::len).max() {
        Some(longest) if longest > LONGEST_ENTRY => Err(Error::corrupt(format!(
            "{place}: an added token of {longest} bytes; at most {LONGEST_ENTRY} are expected"
        ))),
        _ => Ok(()),
    }
}

/// What a vocabulary asks of the tables built for it.
#[derive(Default)]
struct Survey<'a> {
    largest_id: u32,
    /// The entries of a vocabulary that gives each its id.
    entries: Vec<(Cow<'a, str>, u32)>,
}

/// A vocabulary entry's text; borrowed where the file spells it without escapes.
#[derive(Deserialize)]
struct Entry<'a>(#[serde(borrow)] Cow<'a, str>);

impl Entry<'_> {
    fn check<E: serde::de::Error>(&self) -> std::result::Result<(), E> {
        if self.0.len() <= LONGEST_ENTRY {
            return Ok(());
        }
        Err(E::custom(format!(
            "a vocabulary entry of {} bytes; at most {LONGEST_ENTRY} are expected",
            self.0.len()
        )))
    }
}

impl<'de> Deserialize<'de> for Survey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Walk;

        impl<'de> Visitor<'de> for Walk {
            type Value = Survey<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary: an object of ids, or a list of pieces with scores")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Survey<'de>, A::Error> {
                let mut survey = Survey::default();
                while let Some((entry, id)) = map.next_entry::<Entry<'de>, u32>()? {
                    entry.check()?;
                    survey.largest_id = survey.largest_id.max(id);
                    survey.entries.push((entry.0, id));
                }
                Ok(survey)
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut pieces: A,
            ) -> std::result::Result<Survey<'de>, A::Error> {
                let mut count = 0u32;
                while let Some((entry, _)) = pieces.next_element::<(Entry<'de>, IgnoredAny)>()? {
                    entry.check()?;
                    let more = count.checked_add(1);
                    count = more.ok_or_else(|| A::Error::custom("too many pieces"))?;
                }
                Ok(Survey {
                    largest_id: count.saturating_sub(1),
                    ..Survey::default()
                })
            }
        }

        deserializer.deserialize_any(Walk)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::TokenizerFile;
    use crate::model::settings::{NormalizerSettings, TokenSettings};

    /// A file with an added token, made ready.
    fn prepared(model: Value, added: &str) -> TokenizerFile {
        prepared_with(model, added, json!(null), json!(null))
    }

    fn prepared_with(
        model: Value,
        added: &str,
        normalizer: Value,
        pre_tokenizer: Value,
    ) -> TokenizerFile {
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [{
                "id": 1, "content": added, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            }],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
            "model": model,
        });
        let settings = TokenSettings {
            limit: 8,
            lower_case: false,
            cut_left: None,
            normalizer: NormalizerSettings::default(),
        };
        let file = TokenizerFile::prepare("a file", file.to_string().as_bytes(), &settings);
        file.expect("sound")
    }

    #[test]
    fn word_pieces_are_looked_up_by_us_where_ids_do_not_depend_on_their_number() {
        let word_pieces = |unknown: &str| {
            json!({
                "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": { "[UNK]": 0, "[SEP]": 1, "a": 2, "##b": 3 },
            })
        };
        let words = json!({
            "type": "WordLevel", "unk_token": "[UNK]", "vocab": { "[UNK]": 0, "[SEP]": 1 },
        });
        let table = [
            (word_pieces("[UNK]"), "[SEP]", true),
            (word_pieces("[UNK]"), "[NEW]", false),
            (word_pieces("[HUH]"), "[SEP]", false),
            (words, "[SEP]", false),
        ];
        for (model, added, ours) in table {
            let what = format!("{model} {added}");
            let file = prepared(model, added);
            assert_eq!(file.words.is_some(), ours, "{what}");
            // What we look up need not be there for the crate.
            let whole = file.canonical.contains("\"##b\"") || what.contains("WordLevel");
            assert_eq!(whole, !ours, "{}", file.canonical);
        }
    }

    #[test]
    fn texts_are_divided_where_words_are_berts_and_added_tokens_have_no_space() {
        let bert = json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        });
        let words = json!({ "type": "BertPreTokenizer" });
        let table = [
            (&bert, &words, "[SEP]", true),
            (&json!(null), &words, "[SEP]", false),
            (&bert, &json!({ "type": "Whitespace" }), "[SEP]", false),
            (&bert, &words, "[A B]", false),
        ];
        for (normalizer, pre_tokenizer, added, divisible) in table {
            let model = json!({
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": { "[UNK]": 0, "[SEP]": 1, "[A B]": 2 },
            });
            let file = prepared_with(model, added, normalizer.clone(), pre_tokenizer.clone());
            assert_eq!(
                file.divisible, divisible,
                "{normalizer} {pre_tokenizer} {added}"
            );
        }
    }
}
