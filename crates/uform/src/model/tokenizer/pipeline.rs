//! Text to token ids as the tokenizers crate does it, quicker to build where it can be.
//!
//! The crate's pipeline extracts added tokens, normalises, cuts into words, and looks those up. For
//! WordPiece the last step is ours ([`Words`]): then the crate's pipeline is built with hardly any
//! vocabulary, and its other steps are called one by one. So a text may come in parts ([`Division`]), of which
//! what may go on in the next one, the last word, is kept until it is there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokenizers::pipeline::{
    EncodeOptions, Override, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    Segment, Span, SpecialSegmentIterator, normalize_all,
};

use super::division::Division;
use super::word_piece::Words;

/// Bytes of a part of a text: some milliseconds of work.
const PART: usize = 32 << 10;

/// See the module.
pub struct Pipeline {
    steps: PipelineTokenizer,
    options: EncodeOptions,
    words: Option<Words>,
    /// How long texts can be divided; `None`: they cannot.
    division: Option<Division>,
    /// What earlier texts were encoded in, one for each that was at once.
    spare: Mutex<Vec<Scratch>>,
}

#[derive(Default)]
struct Scratch {
    /// What there is of a word that may go on; of a long one, enough to say that it is.
    begun: String,
    /// That, and the text that follows.
    joined: String,
    /// Where the words of a text are.
    words: Vec<Span>,
    cutting: PreTokenizerScratch,
}

impl Pipeline {
    /// The crate's pipeline, with `words` in the place of its model where there are some.
    pub fn new(steps: PipelineTokenizer, words: Option<Words>) -> Pipeline {
        Pipeline {
            options: EncodeOptions {
                // Added by whoever cuts.
                add_special_tokens: false,
                encode_special_tokens: false,
                padding: Override::Off,
                truncation: Override::Off,
            },
            division: words.as_ref().and_then(|_| Division::of(&steps)),
            words,
            steps,
            spare: Mutex::default(),
        }
    }

    /// Parts of a text, of some milliseconds of work each; all of it where it cannot be divided.
    pub fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let divided = self.division.as_ref();
        let divided = divided.map(|division| division.parts(text, PART));
        let whole = divided.is_none().then_some(text);
        divided.into_iter().flatten().chain(whole)
    }

    /// Begins a text, whose parts are encoded one after the other.
    pub fn begin(&self) -> Encoding<'_> {
        let mut scratch = self.spare().pop().unwrap_or_default();
        scratch.begun.clear();
        Encoding {
            pipeline: self,
            scratch,
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Scratch>> {
        // Each is cleared before it is used, whatever a panicking thread was doing.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text some parts of which are encoded.
pub struct Encoding<'a> {
    pipeline: &'a Pipeline,
    scratch: Scratch,
}

impl Encoding<'_> {
    /// Appends the ids of another part, without the special tokens around the text.
    ///
    /// # Errors
    /// Those of the crate; some ids may have been appended then.
    pub fn part(&mut self, text: &str, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let Pipeline {
            steps,
            options,
            words,
            ..
        } = self.pipeline;
        let Some(words) = words else {
            let mut tokens = Vec::new();
            steps.encode_into(text, options, &mut tokens)?;
            ids.extend_from_slice(PipelineToken::cast_slice(&tokens));
            return Ok(());
        };
        let added = steps.get_added_vocabulary();
        for segment in SpecialSegmentIterator::new(text, added, false, false) {
            let (text, offset) = match segment {
                Segment::Text { text, input_offset } => (text, input_offset),
                Segment::SpecialToken(id) => {
                    self.end_word(words, ids);
                    ids.push(id);
                    continue;
                }
            };
            let normalized = normalize_all(steps.get_normalizers(), text, offset)?;
            for segment in SpecialSegmentIterator::new(&normalized, added, true, false) {
                match segment {
                    Segment::Text { text, .. } => self.cut(words, text, ids)?,
                    Segment::SpecialToken(id) => {
                        self.end_word(words, ids);
                        ids.push(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends what the end of the text leaves to append.
    pub fn end(mut self, ids: &mut Vec<u32>) {
        if let Some(words) = &self.pipeline.words {
            self.end_word(words, ids);
        }
        self.pipeline.spare().push(self.scratch);
    }

    /// Cuts a normalised text into words and looks them up, but for one that may go on.
    fn cut(&mut self, words: &Words, text: &str, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let Scratch {
            begun,
            joined,
            words: places,
            cutting,
        } = &mut self.scratch;
        let text = if begun.is_empty() {
            text
        } else {
            joined.clear();
            joined.push_str(begun);
            joined.push_str(text);
            begun.clear();
            &**joined
        };
        if u32::try_from(text.len()).is_err() {
            return Err(format!("{} bytes are too many to cut into words", text.len()).into());
        }
        places.clear();
        let steps = self.pipeline.steps.get_pre_tokenizer();
        steps.pre_tokenize(text, cutting, places)?;
        let goes_on = places.pop_if(|last| last.range().end == text.len());
        for place in places {
            words.encode(&text[place.range()], ids);
        }
        if let Some(last) = goes_on {
            begun.push_str(words.beginning(&text[last.range()]));
        }
        Ok(())
    }

    /// Looks a word up that was begun, and does not go on.
    fn end_word(&mut self, words: &Words, ids: &mut Vec<u32>) {
        words.encode(&self.scratch.begun, ids);
        self.scratch.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Pipeline;
    use crate::model::settings::{NormalizerSettings, TokenSettings};
    use crate::model::tokenizer::file::Surveyed;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use std::array;
    use tokenizers::pipeline::{EncodeOptions, PipelineTokenizer};

    /// What the steps tell apart: what is left out, spaces, punctuation, what becomes several characters or
    /// others, and parts of added tokens.
    const KINDS: [&str; 46] = [
        "a",
        "B",
        "é",
        "e\u{301}",
        "\u{fe0f}",
        "👩",
        "🏳\u{fe0f}\u{200d}🌈",
        "👍🏽",
        "س",
        "\u{640}",
        "ก",
        "\u{e38}",
        "\u{e48}",
        "\u{e33}",
        "न",
        "\u{94d}",
        "\u{93c}",
        "ि",
        "각",
        "ᄀ",
        "東",
        "豈",
        " ",
        "\u{a0}",
        "\u{3000}",
        "\n",
        "\u{b}",
        "\0",
        "\u{fffd}",
        ".",
        "_",
        "。",
        "≠",
        "\u{37e}",
        "İ",
        "Σ",
        "ΑΣ",
        "ß",
        "ﬁ",
        "[SEP]",
        "[S",
        "<ab>",
        "<A",
        "\u{f73}",
        "\u{344}",
        "\u{345}",
    ];

    /// Marks of several classes that are put in order: taken off, or not, and what is left out between.
    const MARKS: [&str; 8] = [
        "\u{301}",
        "\u{323}",
        "\u{302e}",
        "\u{1d165}",
        "\u{1d16d}",
        "\u{651}",
        "\u{64e}",
        "\u{200d}",
    ];

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

    /// A file whose words are all characters of [`KINDS`] and [`MARKS`], in every spelling.
    fn file([is_normalized, normalizer @ ..]: [bool; 5], longest_word: usize) -> Value {
        let kinds = KINDS.concat() + &MARKS.concat();
        let decomposed: String =
            unicode_normalization::UnicodeNormalization::nfd(&*kinds).collect();
        let letters =
            kinds.clone() + &decomposed + &kinds.to_lowercase() + &decomposed.to_lowercase();
        let entries = letters
            .chars()
            .filter(|letter| *letter != '\0')
            .flat_map(|letter| [format!("{letter}"), format!("##{letter}")]);
        let entries = ["?", "[SEP]", "<ab>"]
            .map(str::to_owned)
            .into_iter()
            .chain(entries);
        let mut vocabulary = Map::new();
        for entry in entries {
            let id = vocabulary.len();
            vocabulary.entry(entry).or_insert(id.into());
        }
        let [clean_text, handle_chinese_chars, lowercase, strip_accents] = normalizer;
        json!({
            "version": "1.0",
            "added_tokens": [
                { "content": "[SEP]", "id": 1, "special": true, "normalized": false,
                  "single_word": false, "lstrip": false, "rstrip": true },
                { "content": "<ab>", "id": 2, "special": false, "normalized": is_normalized,
                  "single_word": false, "lstrip": true, "rstrip": false },
            ],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": clean_text, "lowercase": lowercase,
                "handle_chinese_chars": handle_chinese_chars, "strip_accents": strip_accents,
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "model": {
                "type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": longest_word, "vocab": vocabulary,
            },
        })
    }

    fn ours(file: &Value) -> Pipeline {
        let bytes = file.to_string().into_bytes();
        let file = Surveyed::read("it", &bytes).expect("sound");
        let file = file.prepare(&SETTINGS).expect("sound");
        let steps = tokenizers::from_json(&file.canonical).expect("sound");
        Pipeline::new(steps, file.words)
    }

    fn reference(file: &Value) -> PipelineTokenizer {
        let canonical = tokenizers::canonicalize_str(&file.to_string()).expect("sound");
        tokenizers::from_json(&canonical).expect("sound")
    }

    #[test]
    fn parts_of_a_text_have_the_ids_of_the_text_wherever_it_is_cut() {
        let pipelines = (0..64).map(|bits| {
            let is_set = |bit: usize| bits >> bit & 1 == 1;
            let longest_word = if is_set(5) { 40 } else { 3 };
            let file = file(array::from_fn(is_set), longest_word);
            (ours(&file), reference(&file))
        });
        let pipelines = Vec::from_iter(pipelines);
        let kind = prop_oneof![
            prop::sample::select(&KINDS[..]),
            prop::sample::select(&MARKS[..]),
        ];
        let run = (kind, 1..4usize).prop_map(|(kind, times)| kind.repeat(times));
        let text = prop::collection::vec(run, 0..24).prop_map(|runs| runs.concat());
        let cases = (text, 1..24usize, 0..pipelines.len());
        proptest!(ProptestConfig::with_cases(8000), |((text, bytes, which) in cases)| {
            let (ours, reference) = &pipelines[which];
            let mut expected = Vec::new();
            reference.encode_into(&text, &EncodeOptions::default(), &mut expected).expect("encoded");
            let expected = Vec::from_iter(expected.into_iter().map(u32::from));
            let mut found = Vec::new();
            let mut encoding = ours.begin();
            let division = ours.division.as_ref().expect("divisible");
            let mut whole = String::new();
            for part in division.parts(&text, bytes) {
                encoding.part(part, &mut found).expect("encoded");
                whole.push_str(part);
            }
            encoding.end(&mut found);
            prop_assert_eq!(&whole, &text);
            prop_assert_eq!(found, expected);
        });
    }
}
