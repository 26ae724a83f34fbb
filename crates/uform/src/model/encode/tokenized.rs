//! The texts of some calls as one ragged batch of token ids, and back: what of the
//! batch's vectors belongs to which call.

use std::mem;
use std::ops::Range;

use super::embeddings::Embeddings;
use super::request::Request;
use super::texts::Texts;
use crate::executor::{Control, complete, pause};
use crate::kernels::ForkJoin;
use crate::kernels::fork_join::for_each;
use crate::memory::with_room;
use crate::model::Parts;
use crate::model::tokenizer::Count;
use crate::{Error, Result};

/// What memory was refused for, in an error's words.
const TOKENS: &str = "the tokens of a call";

/// Texts a lane tokenizes before it asks for more: enough to make asking cheap.
const TOKENIZED_TOGETHER: usize = 16;

/// Bytes of texts of these after which others have their turn.
const TOGETHER_BYTES: usize = 32 << 10;

/// One call of a batch.
pub(in crate::model) struct Asked<'a> {
    pub(in crate::model) texts: &'a Texts,
    pub(in crate::model) control: &'a Control,
}

/// The texts of some calls as one ragged batch of token ids.
pub(in crate::model) struct Tokenized<'a> {
    pub(in crate::model) ids: Vec<u32>,
    pub(in crate::model) positions: Vec<u32>,
    pub(in crate::model) lengths: Vec<usize>,
    tokens: Vec<u32>,
    truncated: Vec<u8>,
    /// Where each call's texts are, or why they are not.
    calls: Vec<Result<Rows<'a>>>,
}

/// A call's place in a batch.
struct Rows<'a> {
    texts: Range<usize>,
    control: &'a Control,
}

/// Some texts' tokens, on their way into [`Tokenized`].
struct Chunk<'a> {
    call: &'a Asked<'a>,
    texts: Range<usize>,
    ids: Vec<u32>,
    counts: Vec<Count>,
    refused: Option<Error>,
}

impl<'a> Tokenized<'a> {
    pub(in crate::model) async fn new(
        parts: &Parts,
        calls: &'a [Asked<'a>],
        request: &Request,
        team: &dyn ForkJoin,
    ) -> Result<Self> {
        let mut chunks: Vec<_> = calls.iter().flat_map(Chunk::of).collect();
        let mut joined = vec![String::new(); team.lanes()];
        if let [joined] = &mut joined[..] {
            for chunk in &mut chunks {
                chunk.refused = chunk.fill(parts, request, joined).await.err();
                pause().await;
            }
        } else {
            for_each(team, &mut joined, &mut chunks, |joined, chunk| {
                chunk.refused = complete(chunk.fill(parts, request, joined)).err();
            });
        }

        let tokens = chunks.iter().map(|chunk| chunk.ids.len()).sum();
        let texts = calls.iter().map(|call| call.texts.len()).sum();
        let mut all = Tokenized {
            ids: with_room(tokens, TOKENS)?,
            positions: with_room(tokens, TOKENS)?,
            lengths: with_room(texts, TOKENS)?,
            tokens: with_room(texts, TOKENS)?,
            truncated: with_room(texts, TOKENS)?,
            calls: Vec::with_capacity(calls.len()),
        };
        let mut rest = &mut *chunks;
        for call in calls {
            let (own, others) = rest.split_at_mut(chunks_of(call.texts));
            rest = others;
            let refused = own.iter_mut().find_map(|chunk| chunk.refused.take());
            let rows = refused.map_or_else(|| Ok(all.append(call, own)), Err);
            all.calls.push(rows);
        }
        Ok(all)
    }

    /// Lays a call's texts behind those that are there.
    fn append(&mut self, call: &Asked<'a>, chunks: &[Chunk<'_>]) -> Rows<'a> {
        let start = self.lengths.len();
        for chunk in chunks {
            self.ids.extend_from_slice(&chunk.ids);
            for count in &chunk.counts {
                self.positions.extend(0..count.kept);
                self.lengths.push(count.kept as usize);
                self.tokens.push(count.tokens);
                self.truncated.push(u8::from(count.truncated()));
            }
        }
        Rows {
            texts: start..self.lengths.len(),
            control: call.control,
        }
    }

    /// Says that the vectors of `texts` are computed.
    pub(in crate::model) fn advance(&self, texts: &Range<usize>) {
        for rows in self.calls.iter().flatten() {
            let (start, end) = (
                rows.texts.start.max(texts.start),
                rows.texts.end.min(texts.end),
            );
            if start < end {
                rows.control.advance((end - start) as u64);
            }
        }
    }

    /// An error once every call that is still in the batch was given up.
    pub(in crate::model) fn check(&self) -> Result<()> {
        let mut calls = self.calls.iter().flatten();
        match calls.all(|rows| rows.control.is_cancelled()) {
            true => Err(Error::aborted()),
            false => Ok(()),
        }
    }

    /// The texts of each call in the batch; `None`: it left it.
    #[cfg(feature = "native")]
    pub(in crate::model) fn texts(&self) -> impl Iterator<Item = Option<Range<usize>>> {
        let calls = self.calls.iter();
        calls.map(|rows| rows.as_ref().ok().map(|rows| rows.texts.clone()))
    }

    /// What each call gets: a call's texts, their tokens and whether each was cut, made into its answer.
    pub(in crate::model) fn answer<T>(
        mut self,
        mut make: impl FnMut(Range<usize>, Vec<u32>, Vec<u8>) -> T,
    ) -> Vec<Result<T>> {
        // Nothing is copied for a call that is alone.
        let alone = self.calls.len() == 1;
        let calls = mem::take(&mut self.calls);
        let mut answer = |rows: Rows<'_>| {
            let tokens = part(&mut self.tokens, rows.texts.clone(), alone);
            let truncated = part(&mut self.truncated, rows.texts.clone(), alone);
            make(rows.texts, tokens, truncated)
        };
        calls
            .into_iter()
            .map(|rows| rows.map(&mut answer))
            .collect()
    }

    /// What each call gets of the vectors of all.
    pub(in crate::model) fn answers(
        self,
        mut data: Vec<f32>,
        dimensions: usize,
    ) -> Vec<Result<Embeddings>> {
        let alone = self.calls.len() == 1;
        self.answer(|texts, tokens, truncated| {
            let numbers = texts.start * dimensions..texts.end * dimensions;
            Embeddings {
                rows: texts.len(),
                dimensions,
                data: part(&mut data, numbers, alone),
                tokens,
                truncated,
            }
        })
    }
}

/// The elements of a range; all there are, as they lie, when they are `whole`.
fn part<T: Copy>(all: &mut Vec<T>, range: Range<usize>, whole: bool) -> Vec<T> {
    if whole {
        mem::take(all)
    } else {
        all[range].to_vec()
    }
}

/// How many chunks a call's texts make.
fn chunks_of(texts: &Texts) -> usize {
    texts.len().div_ceil(TOKENIZED_TOGETHER)
}

impl<'a> Chunk<'a> {
    /// A call's texts, cut into chunks yet to be filled.
    fn of(call: &'a Asked<'a>) -> impl Iterator<Item = Chunk<'a>> {
        (0..chunks_of(call.texts)).map(|chunk| {
            let start = chunk * TOKENIZED_TOGETHER;
            Chunk {
                call,
                texts: start..call.texts.len().min(start + TOKENIZED_TOGETHER),
                ids: Vec::new(),
                counts: Vec::new(),
                refused: None,
            }
        })
    }

    async fn fill(&mut self, parts: &Parts, request: &Request, joined: &mut String) -> Result<()> {
        let Asked { texts, control } = self.call;
        // Bytes since others had their turn.
        let mut bytes = 0;
        for index in self.texts.clone() {
            control.check()?;
            let text = if request.prompt.is_empty() {
                texts.get(index)
            } else {
                joined.clear();
                joined.push_str(&request.prompt);
                joined.push_str(texts.get(index));
                joined.as_str()
            };
            bytes += text.len();
            if bytes > TOGETHER_BYTES {
                pause().await;
                bytes = text.len();
            }
            let count = parts.tokenizer.encode_in_steps(text, &mut self.ids).await?;
            if count.truncated() && request.refuse_long {
                let (tokens, limit) = (count.tokens, parts.tokenizer.limit());
                return Err(Error::invalid(format!(
                    "text {index} has {tokens} tokens and the model takes {limit}: \
                     shorten it, or pass `truncate: true` to have it cut"
                )));
            }
            self.counts.push(count);
        }
        Ok(())
    }
}
