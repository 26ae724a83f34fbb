//! Text to token ids as the tokenizers crate does it, quicker to build where it can be.
//!
//! The crate's pipeline extracts added tokens, normalises, cuts into words, and looks those up. For
//! WordPiece the last step is ours ([`Words`]): then the crate's pipeline is built with hardly any
//! vocabulary, and its other steps are called one by one.

use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokenizers::pipeline::{
    EncodeOptions, Override, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    Segment, Span, SpecialSegmentIterator, normalize_all,
};

use super::words::Words;

/// Bytes of a part of a text, about.
const PART: usize = 32 << 10;

/// See the module.
pub struct Pipeline {
    steps: PipelineTokenizer,
    options: EncodeOptions,
    words: Option<Words>,
    /// Whether a text has the ids of its [`parts`](Self::parts).
    divisible: bool,
    /// What earlier texts were encoded in, one for each that was at once.
    spare: Mutex<Vec<Scratch>>,
}

#[derive(Default)]
struct Scratch {
    /// Where the words of a text are.
    words: Vec<Span>,
    cutting: PreTokenizerScratch,
}

impl Pipeline {
    /// The crate's pipeline, with `words` in the place of its model where there are some. `divisible`:
    /// whether a text has the ids of its parts, where these are cut between two words of ASCII.
    pub fn new(steps: PipelineTokenizer, words: Option<Words>, divisible: bool) -> Pipeline {
        Pipeline {
            steps,
            options: EncodeOptions {
                // Added by whoever cuts.
                add_special_tokens: false,
                encode_special_tokens: false,
                padding: Override::Off,
                truncation: Override::Off,
            },
            words,
            divisible,
            spare: Mutex::default(),
        }
    }

    /// Parts of a text, end to end, whose ids are the text's: of some milliseconds of work each, where it can
    /// be cut.
    pub fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = Some(text);
        iter::from_fn(move || {
            let text = rest?;
            let cut = self.divisible.then(|| between_words(text, PART));
            let (part, after) = text.split_at(cut.flatten().unwrap_or(text.len()));
            rest = (!after.is_empty()).then_some(after);
            Some(part)
        })
    }

    /// Appends the ids of a text, without the special tokens around it.
    ///
    /// # Errors
    /// Those of the crate; some ids may have been appended then.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let Some(words) = &self.words else {
            let mut tokens = Vec::new();
            self.steps.encode_into(text, &self.options, &mut tokens)?;
            ids.extend_from_slice(PipelineToken::cast_slice(&tokens));
            return Ok(());
        };
        let mut scratch = self.spare().pop().unwrap_or_default();
        let outcome = self.encode_words(words, text, &mut scratch, ids);
        self.spare().push(scratch);
        outcome
    }

    fn encode_words(
        &self,
        words: &Words,
        text: &str,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        let added = self.steps.get_added_vocabulary();
        for segment in SpecialSegmentIterator::new(text, added, false, false) {
            let (text, offset) = match segment {
                Segment::Text { text, input_offset } => (text, input_offset),
                Segment::SpecialToken(id) => {
                    ids.push(id);
                    continue;
                }
            };
            let normalized = normalize_all(self.steps.get_normalizers(), text, offset)?;
            for segment in SpecialSegmentIterator::new(&normalized, added, true, false) {
                match segment {
                    Segment::Text { text, .. } => self.cut(words, text, scratch, ids)?,
                    Segment::SpecialToken(id) => ids.push(id),
                }
            }
        }
        Ok(())
    }

    /// Cuts a normalised text into words and looks them up.
    fn cut(
        &self,
        words: &Words,
        text: &str,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(format!("{} bytes are too many to cut into words", text.len()).into());
        }
        let Scratch {
            words: places,
            cutting,
        } = scratch;
        places.clear();
        let steps = self.steps.get_pre_tokenizer();
        steps.pre_tokenize(text, cutting, places)?;
        for place in places {
            words.encode(&text[place.range()], ids);
        }
        Ok(())
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Scratch>> {
        // Each is cleared before it is used, whatever a panicking thread was doing.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first place from `least` on that is before a space between two letters or digits of ASCII.
fn between_words(text: &str, least: usize) -> Option<usize> {
    let bytes = text.as_bytes().get(least..)?;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric();
    let place = bytes
        .windows(3)
        .position(|three| is_word(three[0]) && three[1] == b' ' && is_word(three[2]))?;
    Some(least + place + 1)
}

#[cfg(test)]
mod tests {
    use super::between_words;

    #[test]
    fn a_text_is_cut_before_a_space_between_plain_words() {
        for (text, least, cut) in [
            ("", 0, None),
            ("ab cd", 0, Some(2)),
            ("ab cd", 1, Some(2)),
            ("ab cd ef", 2, Some(5)),
            ("ab  cd, ef é g h", 0, Some("ab  cd, ef é g".len())),
            ("ab cd", 9, None),
        ] {
            assert_eq!(between_words(text, least), cut, "{text:?} from {least}");
        }
    }
}
