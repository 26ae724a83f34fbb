//! `tokenizer.json`, made ready for the pipeline that runs it.
//!
//! The pipeline reads one canonical spelling, and files in the wild use older
//! ones, so a file is rewritten first. Its vocabulary, nearly all of its bytes, is
//! the same in either spelling: it is surveyed and passed on as it stands, which
//! makes the rewriting ten times faster. A WordPiece vocabulary is not passed on but looked up in by
//! ourselves ([`Words`]), and such a file is read once. The survey also refuses what the pipeline would take too seriously: it
//! sizes tables by the ids and lengths it is given, and recurses once a byte of a vocabulary entry.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};

use super::located::Spelling;
use super::punctuation;
use super::word_piece::{Entries, Vocabulary, Words};
use crate::error::{Error, Result};
use crate::model::settings::{NormalizerSettings, TokenSettings};

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
    /// The largest id of the vocabulary.
    pub largest_id: u32,
    /// The ids of special tokens, such as `[SEP]`.
    pub special: Vec<u32>,
    /// Whether the file itself cuts long texts at their beginning.
    pub cut_left: bool,
    /// How its tokens are spelled.
    pub spelling: Spelling,
}

/// A file that was read through.
pub struct Surveyed<'a> {
    /// What messages call it.
    place: &'a str,
    bytes: &'a [u8],
    rest: BTreeMap<String, &'a RawValue>,
    model: BTreeMap<String, &'a RawValue>,
    survey: Survey,
}

impl<'a> Surveyed<'a> {
    /// Reads a file; `place` is what messages call it.
    pub fn read(place: &'a str, bytes: &'a [u8]) -> Result<Surveyed<'a>> {
        let Root { rest, model } = serde_json::from_slice(bytes).map_err(invalid(place))?;
        let Some(ModelPart { rest: model, vocab }) = model else {
            return Err(Error::corrupt(format!("{place}: model is missing")));
        };
        let Some(survey) = vocab else {
            return Err(Error::corrupt(format!("{place}: model.vocab is missing")));
        };
        Ok(Surveyed {
            place,
            bytes,
            rest,
            model,
            survey,
        })
    }

    /// Rewrites it.
    pub fn prepare(self, settings: &TokenSettings) -> Result<TokenizerFile> {
        let Surveyed {
            place,
            bytes,
            rest,
            model,
            survey,
        } = self;
        let invalid = invalid(place);
        // The rest as values, with an empty vocabulary of the same kind.
        let empty = match survey.is_list {
            true => json!([]),
            false => json!({}),
        };
        let mut rest = values(rest).map_err(&invalid)?;
        let mut model = values(model).map_err(&invalid)?;
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
        // Rewriting drops some of it.
        let spelling = Spelling::of(&rest["model"], &rest["post_processor"]);
        tokenizers::canonicalize_value(&mut rest).map_err(|error| {
            Error::corrupt(format!("{place}: not a valid tokenizer: {error}")).because(error)
        })?;
        let words = words(&rest, survey.entries);
        let needed = words.as_ref().and_then(|words| needed(&rest, words));
        // What we cut into words and look up by ourselves is corrected there, which is faster.
        let corrected = needed.is_some() && rest["pre_tokenizer"]["type"] == "BertPreTokenizer";
        // Without regular expressions it stays the crate's, which differs in a few rare characters.
        if cfg!(feature = "native") && !corrected {
            punctuation::rewrite(&mut rest["pre_tokenizer"]);
        }
        Ok(TokenizerFile {
            canonical: match &needed {
                Some(needed) => splice(rest, &needed.to_string()),
                None => splice(rest, vocabulary(bytes).map_err(invalid)?.get()),
            },
            words: words.filter(|_| needed.is_some()),
            largest_id: survey.largest_id,
            special,
            cut_left,
            spelling,
        })
    }
}

fn invalid(place: &str) -> impl Fn(serde_json::Error) -> Error {
    move |error| Error::corrupt(format!("{place}: not a valid tokenizer: {error}")).because(error)
}

/// The words of a canonical file whose model is WordPiece. A file in which something is missing has
/// none: the pipeline's reader says what.
fn words(rest: &Value, entries: Entries) -> Option<Words> {
    let model = rest
        .get("model")
        .filter(|model| model["type"] == "WordPiece")?;
    let longest_word = model["max_input_chars_per_word"].as_u64()?;
    Words::new(Vocabulary {
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

/// The vocabulary as the file spells it.
fn vocabulary(bytes: &[u8]) -> serde_json::Result<&RawValue> {
    #[derive(Deserialize)]
    struct File<'a> {
        #[serde(borrow)]
        model: Model<'a>,
    }
    #[derive(Deserialize)]
    struct Model<'a> {
        #[serde(borrow)]
        vocab: &'a RawValue,
    }
    serde_json::from_slice(bytes).map(|file: File<'_>| file.model.vocab)
}

/// Entries as values.
fn values(entries: BTreeMap<String, &RawValue>) -> serde_json::Result<Map<String, Value>> {
    let entries = entries.into_iter();
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

/// A file, read once: its vocabulary is nearly all of it.
#[derive(Default)]
struct Root<'a> {
    rest: BTreeMap<String, &'a RawValue>,
    model: Option<ModelPart<'a>>,
}

/// Its model.
#[derive(Default)]
struct ModelPart<'a> {
    rest: BTreeMap<String, &'a RawValue>,
    vocab: Option<Survey>,
}

impl<'de> Deserialize<'de> for Root<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (rest, model) = Apart::of("model", deserializer)?;
        Ok(Root { rest, model })
    }
}

impl<'de> Deserialize<'de> for ModelPart<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let (rest, vocab) = Apart::of("vocab", deserializer)?;
        Ok(ModelPart { rest, vocab })
    }
}

/// Reads an object of which one entry is to be read as something else than the others, which are left as they
/// are spelled. Of entries of one name the last counts.
struct Apart<T> {
    key: &'static str,
    kind: PhantomData<T>,
}

/// The others, and the one.
type Parts<'a, T> = (BTreeMap<String, &'a RawValue>, Option<T>);

impl<'de, T: Deserialize<'de>> Apart<T> {
    fn of<D: Deserializer<'de>>(
        key: &'static str,
        deserializer: D,
    ) -> std::result::Result<Parts<'de, T>, D::Error> {
        let kind = PhantomData;
        deserializer.deserialize_map(Apart { key, kind })
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Apart<T> {
    type Value = Parts<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let (mut rest, mut apart) = (BTreeMap::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                apart = Some(map.next_value()?);
            } else {
                rest.insert(key, map.next_value()?);
            }
        }
        Ok((rest, apart))
    }
}

/// What a vocabulary asks of the tables built for it.
#[derive(Default)]
struct Survey {
    /// Whether it is a list of pieces rather than an object of ids.
    is_list: bool,
    largest_id: u32,
    /// The entries of a vocabulary that gives each its id.
    entries: Entries,
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

impl<'de> Deserialize<'de> for Survey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Walk;

        impl<'de> Visitor<'de> for Walk {
            type Value = Survey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary: an object of ids, or a list of pieces with scores")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Survey, A::Error> {
                let mut survey = Survey::default();
                while let Some((entry, id)) = map.next_entry::<Entry<'de>, u32>()? {
                    entry.check()?;
                    survey.largest_id = survey.largest_id.max(id);
                    if !survey.entries.push(&entry.0, id) {
                        return Err(A::Error::custom("a vocabulary of more than 4 GiB"));
                    }
                }
                Ok(survey)
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut pieces: A,
            ) -> std::result::Result<Survey, A::Error> {
                let mut count = 0u32;
                while let Some((entry, _)) = pieces.next_element::<(Entry<'de>, IgnoredAny)>()? {
                    entry.check()?;
                    let more = count.checked_add(1);
                    count = more.ok_or_else(|| A::Error::custom("too many pieces"))?;
                }
                Ok(Survey {
                    is_list: true,
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

    use super::{Surveyed, TokenizerFile};
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
        let bytes = file.to_string().into_bytes();
        let file = Surveyed::read("a file", &bytes).expect("sound");
        file.prepare(&settings).expect("sound")
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
}
