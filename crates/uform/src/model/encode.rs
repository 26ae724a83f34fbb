//! `encode_text`: texts to tokens, tokens to blocks, blocks to vectors.
//!
//! Several calls with equal options go through as one ragged batch. Their texts lie in it
//! end to end, call after call, and nothing but the rows says whose a text is: no vector
//! depends on its neighbours. A call whose text is refused leaves the batch before it is computed.

use std::mem;
use std::ops::Range;

use super::bert::Batch;
use super::embeddings::Embeddings;
use super::plan::Plan;
use super::pooling::{normalize, pool};
use super::pooling_mode::Pooling;
use super::texts::Texts;
use super::{EncodeOptions, Parts, Truncate};
use crate::executor::{Arena, Control, Hold};
use crate::kernels::fork_join::for_each;
use crate::kernels::{ForkJoin, Solo};
use crate::memory::{with_room, zeros};
use crate::{Error, Result, Status};

/// What memory was refused for, in an error's words.
const TOKENS: &str = "the tokens of a call";

/// Texts a lane tokenizes before it asks for more: enough to make asking cheap.
const TOKENIZED_TOGETHER: usize = 16;

/// [`EncodeOptions`] as resolved against the model: nothing left to look up or to refuse.
struct Request {
    pooling: Pooling,
    normalize: bool,
    dimensions: usize,
    prompt: String,
    /// Leading tokens of each text that belong to the prompt and are not pooled.
    skip: usize,
    refuse_long: bool,
}

impl Request {
    /// Checks a call's options against the model and fills in the model's defaults.
    fn resolve(options: &EncodeOptions, parts: &Parts) -> Result<Request> {
        let settings = &parts.settings;
        let pooling = options.pooling.or(settings.pooling).ok_or_else(|| {
            Error::invalid(
                "the model's files do not say how to pool its token vectors: pass `pooling` \
                 (\"mean\", \"cls\", \"max\", \"last\", \"mean-sqrt\" or \"weighted-mean\")",
            )
        })?;
        let full = parts.dimensions();
        let dimensions = options.dimensions.unwrap_or(full);
        if dimensions == 0 || dimensions > full {
            return Err(Error::invalid(format!(
                "`dimensions` is {dimensions}: this model takes 1 to {full}"
            )));
        }
        let prompt = prompt_text(options, parts)?.to_owned();
        let skip = if settings.include_prompt || prompt.is_empty() {
            0
        } else {
            parts.tokenizer.prompt_tokens(&prompt)?
        };
        Ok(Request {
            pooling,
            normalize: options.normalize.unwrap_or(settings.normalize),
            dimensions,
            prompt,
            skip,
            refuse_long: options.truncate == Truncate::Refuse,
        })
    }
}

/// The text that goes before each text: given, named, or the model's default.
pub(super) fn prompt_text<'a>(options: &'a EncodeOptions, parts: &'a Parts) -> Result<&'a str> {
    let settings = &parts.settings;
    let name = match (&options.prompt, &options.prompt_text) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid(
                "`prompt` and `promptText` were both given: pass the name of one of the model's \
                 prompts, or a prompt as it is",
            ));
        }
        (None, Some(text)) => return Ok(text),
        (Some(name), None) => name,
        (None, None) => match &settings.prompts.default {
            Some(name) => name,
            None => return Ok(""),
        },
    };
    match settings.prompts.named.get(name) {
        Some(text) => Ok(text),
        None => {
            let known: Vec<_> = settings
                .prompts
                .named
                .keys()
                .map(|name| format!("{name:?}"))
                .collect();
            let known = if known.is_empty() {
                "it has none: pass `promptText`".to_owned()
            } else {
                format!("it has {}", known.join(", "))
            };
            Err(Error::invalid(format!(
                "`prompt` is {name:?}, which is not a prompt of this model: {known}"
            )))
        }
    }
}

/// One call of a batch.
pub(super) struct Asked<'a> {
    pub(super) texts: &'a Texts,
    pub(super) control: &'a Control,
}

/// One call, on an executor it holds.
pub(super) fn encode_alone(
    parts: &Parts,
    texts: &Texts,
    options: &EncodeOptions,
    hold: &mut Hold<'_>,
) -> Result<Embeddings> {
    let control = hold.control;
    let call = Asked { texts, control };
    let answers = encode(parts, &[call], options, hold.team, hold.arenas)?;
    answers.into_iter().next().unwrap_or_else(|| {
        Err(Error::new(
            Status::Internal,
            "a call of a batch got no answer",
        ))
    })
}

/// Calls of equal options, on an executor they hold: an outcome a call.
///
/// # Errors
/// What ends the whole batch, which is the call's own end when there is only one.
pub(super) fn encode(
    parts: &Parts,
    calls: &[Asked<'_>],
    options: &EncodeOptions,
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) -> Result<Vec<Result<Embeddings>>> {
    let request = Request::resolve(options, parts)?;
    for call in calls {
        call.control.report(0, call.texts.len() as u64);
    }
    // First of all: what cannot be had should not cost the tokenizing.
    let texts = calls.iter().map(|call| call.texts.len()).sum::<usize>();
    let mut data = zeros(
        texts.saturating_mul(request.dimensions),
        "the vectors of a call",
    )?;
    let tokenized = Tokenized::new(parts, calls, &request, team)?;
    data.truncate(tokenized.lengths.len() * request.dimensions);
    compute(parts, &request, &tokenized, &mut data, team, arenas)?;
    Ok(tokenized.answers(data, request.dimensions))
}

/// The texts of some calls as one ragged batch of token ids.
struct Tokenized<'a> {
    ids: Vec<u32>,
    positions: Vec<u32>,
    lengths: Vec<usize>,
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
    counts: Vec<super::tokenizer::Count>,
    refused: Option<Error>,
}

impl<'a> Tokenized<'a> {
    fn new(
        parts: &Parts,
        calls: &'a [Asked<'a>],
        request: &Request,
        team: &dyn ForkJoin,
    ) -> Result<Self> {
        let mut chunks: Vec<_> = calls.iter().flat_map(Chunk::of).collect();
        let mut joined = vec![String::new(); team.lanes()];
        for_each(team, &mut joined, &mut chunks, |joined, chunk| {
            chunk.refused = chunk.fill(parts, request, joined).err();
        });

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
    fn advance(&self, texts: &Range<usize>) {
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
    fn check(&self) -> Result<()> {
        let mut calls = self.calls.iter().flatten();
        match calls.all(|rows| rows.control.is_cancelled()) {
            true => Err(Error::aborted()),
            false => Ok(()),
        }
    }

    /// What each call gets of the vectors of all.
    fn answers(mut self, mut data: Vec<f32>, dimensions: usize) -> Vec<Result<Embeddings>> {
        // Nothing is copied for a call that is alone.
        let alone = self.calls.len() == 1;
        let calls = mem::take(&mut self.calls);
        let mut answer = |rows: Rows<'_>| {
            let texts = rows.texts;
            let numbers = texts.start * dimensions..texts.end * dimensions;
            Embeddings {
                rows: texts.len(),
                dimensions,
                data: part(&mut data, numbers, alone),
                tokens: part(&mut self.tokens, texts.clone(), alone),
                truncated: part(&mut self.truncated, texts, alone),
            }
        };
        calls
            .into_iter()
            .map(|rows| rows.map(&mut answer))
            .collect()
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

    fn fill(&mut self, parts: &Parts, request: &Request, joined: &mut String) -> Result<()> {
        let Asked { texts, control } = self.call;
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
            let count = parts.tokenizer.encode(text, &mut self.ids)?;
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

/// Some texts that go through the layers together, and where their vectors go.
struct Block<'a> {
    batch: Batch<'a>,
    texts: Range<usize>,
    out: &'a mut [f32],
    outcome: Result<()>,
}

fn compute(
    parts: &Parts,
    request: &Request,
    tokenized: &Tokenized<'_>,
    data: &mut [f32],
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) -> Result<()> {
    let plan = Plan::new(&tokenized.lengths, team.lanes());
    let mut blocks = lay_out(&plan.blocks, tokenized, request.dimensions, data);
    let check = || tokenized.check();
    let run = |team: &dyn ForkJoin, block: &mut Block<'_>, arena: &mut Arena| {
        block.run(parts, request, team, arena, &check)?;
        tokenized.advance(&block.texts);
        Ok(())
    };
    if plan.shared {
        let arena = &mut arenas[0];
        return blocks
            .iter_mut()
            .try_for_each(|block| run(team, block, arena));
    }
    for_each(team, arenas, &mut blocks, |arena, block| {
        block.outcome = run(&Solo, block, arena);
    });
    blocks.into_iter().try_for_each(|block| block.outcome)
}

/// Cuts the batch and the results along the plan's blocks.
fn lay_out<'a>(
    ranges: &[Range<usize>],
    tokenized: &'a Tokenized<'_>,
    dimensions: usize,
    mut data: &'a mut [f32],
) -> Vec<Block<'a>> {
    let mut start = 0;
    let mut blocks = Vec::with_capacity(ranges.len());
    for texts in ranges {
        let lengths = &tokenized.lengths[texts.clone()];
        let end = start + lengths.iter().sum::<usize>();
        let (out, rest) = data.split_at_mut(texts.len() * dimensions);
        data = rest;
        blocks.push(Block {
            batch: Batch {
                ids: &tokenized.ids[start..end],
                positions: &tokenized.positions[start..end],
                lengths,
            },
            texts: texts.clone(),
            out,
            outcome: Ok(()),
        });
        start = end;
    }
    blocks
}

impl Block<'_> {
    fn run(
        &mut self,
        parts: &Parts,
        request: &Request,
        team: &dyn ForkJoin,
        arena: &mut Arena,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let texts = self.texts.len();
        let spare = texts * parts.widths();
        let (states, spare) = parts.bert.forward(team, &self.batch, spare, arena, check)?;
        let hidden = parts.hidden();
        let (mut vectors, mut rest) = spare.split_at_mut(texts * hidden);
        let mut tokens = states;
        for (length, vector) in self
            .batch
            .lengths
            .iter()
            .zip(vectors.chunks_exact_mut(hidden))
        {
            let (own, others) = tokens.split_at(length * hidden);
            pool(request.pooling, own, request.skip, vector);
            tokens = others;
        }
        for head in &parts.heads {
            let (next, free) = rest.split_at_mut(texts * head.outputs());
            head.apply(parts.kernels, team, vectors, next);
            (vectors, rest) = (next, free);
        }
        let rows = vectors.chunks_exact(parts.dimensions());
        for (place, (vector, out)) in rows
            .zip(self.out.chunks_exact_mut(request.dimensions))
            .enumerate()
        {
            // A Matryoshka cut comes before normalising: what is left must have length one.
            out.copy_from_slice(&vector[..request.dimensions]);
            if request.normalize {
                normalize(out);
            }
            if !out.iter().all(|value| value.is_finite()) {
                return Err(Error::corrupt(format!(
                    "the vector of text {} is not finite: the model's weights overflow f32",
                    self.texts.start + place
                )));
            }
        }
        Ok(())
    }
}
