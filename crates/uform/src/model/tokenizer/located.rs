//! Tokens with their places in the text, as the reference's offset mapping has them.
//!
//! This is the pipeline once more, for callers that ask where tokens are: slower than [`Pipeline`]'s way to the ids
//! alone, with the same steps in the same order, and so the same ids.

use std::ops::Range;

use serde_json::Value;
use tokenizers::pipeline::{
    Model, PipelineModel, PipelinePatternMatcher, PipelineToken, PreTokenizerScratch,
};
use tokenizers::utils::byte_level::char_to_byte;

use super::Special;
use super::aligned::{Aligned, Finder, Place};
use super::normalized::normalize;
use super::pipeline::Pipeline;

/// Tokens and their places.
pub type Located = Vec<(u32, Place)>;

/// What a file says of how tokens are spelled, which the pipeline does not keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spelling {
    /// What a token begins with that continues a word; `""`: nothing.
    continuing: String,
    /// What a token ends with that ends a word; `""`: nothing.
    ending: String,
    /// The token of what is in no other.
    unknown: Option<String>,
    /// Whether the spaces around a token are left out of its place.
    trims: Option<Trims>,
}

/// How spaces are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trims {
    /// Whether one space before the first token was not there.
    adds_space: bool,
}

impl Spelling {
    /// What a file says whose `model` and `post_processor` are these.
    pub fn of(model: &Value, post_processor: &Value) -> Spelling {
        let text = |key: &str| model[key].as_str().unwrap_or_default().to_owned();
        Spelling {
            continuing: text("continuing_subword_prefix"),
            ending: text("end_of_word_suffix"),
            unknown: model["unk_token"].as_str().map(str::to_owned),
            trims: Trims::of(post_processor),
        }
    }
}

impl Trims {
    fn of(post_processor: &Value) -> Option<Trims> {
        let flag = |key: &str| post_processor[key].as_bool().unwrap_or(true);
        match post_processor["type"].as_str()? {
            "ByteLevel" | "RobertaProcessing" => flag("trim_offsets").then(|| Trims {
                adds_space: flag("add_prefix_space"),
            }),
            "Sequence" => {
                let steps = post_processor["processors"].as_array()?;
                steps.iter().find_map(Trims::of)
            }
            _ => None,
        }
    }

    /// The place of a token without the spaces it is spelled with.
    fn trim(self, token: &str, (mut start, mut end): Place, is_first: bool) -> Place {
        let is_space = |char: &char| *char == 'Ġ' || char.is_whitespace();
        let mut before = token.chars().take_while(is_space).count() as u32;
        let after = token.chars().rev().take_while(is_space).count() as u32;
        if before > 0 && self.adds_space && (is_first || start == 0) {
            before -= 1;
        }
        start = end.min(start + before);
        if after <= end {
            end = start.max(end - after);
        }
        (start, end)
    }
}

/// A stretch of a text: an added token, or what is between.
enum Stretch {
    Text(Range<usize>),
    Token(u32, Range<usize>),
}

/// A text, cut at the added tokens that are looked for in it as it is, or once it is normalised.
fn stretches<'a>(
    text: &'a str,
    added: &'a impl PipelinePatternMatcher,
    normalized: bool,
    special: Special,
) -> impl Iterator<Item = Stretch> + 'a {
    let as_text = special == Special::Text;
    let mut at = 0;
    let mut found = None;
    std::iter::from_fn(move || {
        if let Some(token) = found.take() {
            return Some(token);
        }
        if at == text.len() {
            return None;
        }
        let start = at;
        match added.extract_next(text.as_bytes(), at, normalized, as_text) {
            None => at = text.len(),
            Some(((first, end), id)) => {
                at = end;
                let token = Stretch::Token(id, first..end);
                if first == start {
                    return Some(token);
                }
                found = Some(token);
                return Some(Stretch::Text(start..first));
            }
        }
        Some(Stretch::Text(start..at))
    })
}

impl Pipeline {
    /// The tokens of a text, without the special ones around it.
    ///
    /// # Errors
    /// Those of the crate.
    pub fn locate(&self, text: &str, special: Special) -> tokenizers::Result<Located> {
        let added = self.steps.get_added_vocabulary();
        let mut tokens = Located::new();
        let mut work = Work::default();
        let mut units = Units {
            text,
            at: 0,
            unit: 0,
        };
        for stretch in stretches(text, added, false, special) {
            let range = match stretch {
                Stretch::Text(range) => range,
                Stretch::Token(id, range) => {
                    let place = (units.to(range.start), units.to(range.end));
                    self.push(&mut tokens, id, &text[range], place);
                    continue;
                }
            };
            let start = units.to(range.start);
            let aligned = Aligned::of(&text[range.clone()], start);
            let aligned = normalize(self.steps.get_normalizers(), aligned, range.start)?;
            let normalized = aligned.text();
            let mut finder = Finder::new(&aligned);
            for stretch in stretches(normalized, added, true, special) {
                match stretch {
                    Stretch::Token(id, range) => {
                        let place = finder.place(range.start, range.end);
                        self.push(&mut tokens, id, &normalized[range], place);
                    }
                    Stretch::Text(range) => {
                        self.words(normalized, range, &mut finder, &mut work, &mut tokens)?;
                    }
                }
            }
        }
        Ok(tokens)
    }

    /// Appends a token that is spelled like this.
    fn push(&self, tokens: &mut Located, id: u32, spelled: &str, place: Place) {
        let place = match self.spelling.trims {
            Some(trims) => trims.trim(spelled, place, tokens.is_empty()),
            None => place,
        };
        tokens.push((id, place));
    }

    /// Appends the tokens of a stretch of normalised text.
    fn words(
        &self,
        text: &str,
        range: Range<usize>,
        finder: &mut Finder<'_>,
        work: &mut Work,
        tokens: &mut Located,
    ) -> tokenizers::Result<()> {
        let stretch = &text[range.clone()];
        if u32::try_from(stretch.len()).is_err() {
            return Err(format!("{} bytes are too many to cut into words", stretch.len()).into());
        }
        let Work {
            words,
            cutting,
            pieces,
        } = work;
        self.cut(stretch, cutting, words)?;
        for word in words {
            let start = range.start + word.range().start;
            pieces.clear();
            self.pieces(&stretch[word.range()], pieces)?;
            for (id, piece) in pieces.drain(..) {
                let place = finder.place(start + piece.start, start + piece.end);
                let spelled = self
                    .spelling
                    .trims
                    .and_then(|_| self.steps.get_model().id_to_token(id));
                self.push(tokens, id, &spelled.unwrap_or_default(), place);
            }
        }
        Ok(())
    }

    /// Appends a word's tokens, and which of its bytes each is.
    fn pieces(&self, word: &str, pieces: &mut Pieces) -> tokenizers::Result<()> {
        if word.is_empty() {
            return Ok(());
        }
        if let Some(words) = &self.words {
            words.locate(word, pieces);
            return Ok(());
        }
        let model = self.steps.get_model();
        let located = match model {
            PipelineModel::Unigram(model) => model.tokenize(word)?,
            PipelineModel::WordLevel(model) => model.tokenize(word)?,
            PipelineModel::BPE(_) | PipelineModel::WordPiece(_) => {
                let mut ids = Vec::new();
                model.tokenize_pipeline(word, &mut model.init_scratch(), &mut ids)?;
                self.spelled(word.as_bytes(), PipelineToken::cast_slice(&ids), pieces);
                return Ok(());
            }
        };
        let located = located.into_iter();
        pieces.extend(located.map(|token| (token.id, token.offsets.0..token.offsets.1)));
        Ok(())
    }

    /// Appends a word's tokens, each where its spelling is found.
    fn spelled(&self, word: &[u8], ids: &[u32], pieces: &mut Pieces) {
        let mut at = 0;
        for (index, id) in ids.iter().enumerate() {
            let rest = &word[at..];
            let next = ids.get(index + 1);
            let (skipped, length) = match self.spelling_of(*id, index > 0, next.is_none()) {
                Some(spelled) if rest.starts_with(&spelled) => (0, spelled.len()),
                // One of the tokens that stand for a byte each.
                Some(spelled) if is_byte(&spelled, rest) => (0, 1),
                // What has no token is left out, if there is no unknown one.
                Some(spelled) => {
                    find(rest, &spelled).map_or((0, rest.len()), |skipped| (skipped, spelled.len()))
                }
                None => {
                    let next = next.and_then(|next| self.spelling_of(*next, true, false));
                    let first = first_char(rest);
                    let more = next.and_then(|next| find(&rest[first..], &next));
                    match more {
                        Some(more) => (0, first + more),
                        None if index + 1 == ids.len() => (0, rest.len()),
                        None => (0, first),
                    }
                }
            };
            at += skipped;
            pieces.push((*id, at..at + length));
            at += length;
        }
    }

    /// The bytes of a word that a token stands for; `None`: any.
    fn spelling_of(&self, id: u32, continues: bool, ends: bool) -> Option<Vec<u8>> {
        let Spelling {
            continuing,
            ending,
            unknown,
            ..
        } = &self.spelling;
        let model = self.steps.get_model();
        let token = model.id_to_token(id)?;
        if Some(&token) == unknown.as_ref() {
            return None;
        }
        let mut token = &*token;
        if continues {
            token = token.strip_prefix(&**continuing).unwrap_or(token);
        }
        if ends {
            token = token.strip_suffix(&**ending).unwrap_or(token);
        }
        match model {
            PipelineModel::BPE(model) if model.is_byte_level() => {
                token.chars().map(char_to_byte).collect()
            }
            _ => Some(token.as_bytes().to_vec()),
        }
    }
}

/// Tokens of a word, and which of its bytes each is.
pub type Pieces = Vec<(u32, Range<usize>)>;

/// What a stretch is cut in.
#[derive(Default)]
struct Work {
    words: Vec<tokenizers::pipeline::Span>,
    cutting: PreTokenizerScratch,
    pieces: Pieces,
}

/// Whether a token such as `<0x41>` stands for the first byte of a text.
fn is_byte(token: &[u8], text: &[u8]) -> bool {
    let byte = text.first().map(|byte| format!("<0x{byte:02X}>"));
    byte.is_some_and(|byte| byte.as_bytes() == token)
}

/// Where a text is first found in another.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    text.windows(part.len()).position(|window| window == part)
}

/// The bytes of the first character of UTF-8.
fn first_char(text: &[u8]) -> usize {
    let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
    1 + text.iter().skip(1).take_while(is_inside).count()
}

/// Counts the UTF-16 units of a text up to places in it, each behind the one before it.
struct Units<'a> {
    text: &'a str,
    at: usize,
    unit: u32,
}

impl Units<'_> {
    fn to(&mut self, at: usize) -> u32 {
        let chars = self.text[self.at..at].chars();
        self.unit += chars.map(|char| char.len_utf16() as u32).sum::<u32>();
        self.at = at;
        self.unit
    }
}
