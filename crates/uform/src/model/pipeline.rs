//! Text to token ids as the tokenizers crate does it, quicker to build where it can be.
//!
//! The crate's pipeline extracts added tokens, normalises, cuts into words, and looks those up. For
//! WordPiece the last step is ours ([`Words`]): then the crate's pipeline is built with hardly any
//! vocabulary, and its other steps are called one by one.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokenizers::pipeline::{
    EncodeOptions, Override, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    Segment, Span, SpecialSegmentIterator, normalize_all,
};

use super::division::Division;
use super::words::Words;

/// See the module.
pub struct Pipeline {
    steps: PipelineTokenizer,
    options: EncodeOptions,
    words: Option<Words>,
    division: Option<Division>,
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
    /// The crate's pipeline, with `words` in the place of its model where there are some.
    pub fn new(
        steps: PipelineTokenizer,
        words: Option<Words>,
        division: Option<Division>,
    ) -> Pipeline {
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
            division,
            spare: Mutex::default(),
        }
    }

    /// Parts of a text whose ids, end to end, are the text's; all of it where it cannot be divided.
    pub fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let divided = self.division.as_ref().map(|division| division.parts(text));
        let whole = divided.is_none().then_some(Cow::Borrowed(text));
        divided.into_iter().flatten().chain(whole)
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
