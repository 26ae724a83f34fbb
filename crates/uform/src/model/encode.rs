//! One `encode_text` call: texts to tokens, tokens to blocks, blocks to vectors.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

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
use crate::{Error, Result};

/// Texts a lane tokenizes before it asks for more: enough to make asking cheap.
const TOKENIZED_TOGETHER: usize = 16;

/// [`EncodeOptions`] as resolved against the model: nothing left to look up or to refuse.
pub(super) struct Request {
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
    pub(super) fn resolve(options: &EncodeOptions, parts: &Parts) -> Result<Request> {
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
        let prompt = prompt_text(options, parts)?;
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
fn prompt_text(options: &EncodeOptions, parts: &Parts) -> Result<String> {
    let settings = &parts.settings;
    let name = match (&options.prompt, &options.prompt_text) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid(
                "`prompt` names a prompt of the model and `promptText` is one: pass one of the two",
            ));
        }
        (None, Some(text)) => return Ok(text.clone()),
        (Some(name), None) => name,
        (None, None) => match &settings.prompts.default {
            Some(name) => name,
            None => return Ok(String::new()),
        },
    };
    match settings.prompts.named.get(name) {
        Some(text) => Ok(text.clone()),
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

/// The whole call, on an executor it holds.
pub(super) fn encode(
    parts: &Parts,
    texts: &Texts,
    options: &EncodeOptions,
    hold: &mut Hold<'_>,
) -> Result<Embeddings> {
    let request = Request::resolve(options, parts)?;
    hold.control.report(0, texts.len() as u64);
    let tokenized = Tokenized::new(parts, texts, &request, hold)?;
    let mut data = vec![0.0; texts.len() * request.dimensions];
    compute(parts, &request, &tokenized, &mut data, hold)?;
    Ok(Embeddings {
        rows: texts.len(),
        dimensions: request.dimensions,
        data,
        tokens: tokenized.tokens,
        truncated: tokenized.truncated,
    })
}

/// A call's texts as one ragged batch of token ids.
struct Tokenized {
    ids: Vec<u32>,
    positions: Vec<u32>,
    lengths: Vec<usize>,
    tokens: Vec<u32>,
    truncated: Vec<u8>,
}

/// Some texts' tokens, on their way into [`Tokenized`].
struct Chunk {
    texts: Range<usize>,
    ids: Vec<u32>,
    counts: Vec<super::tokenizer::Count>,
    outcome: Result<()>,
}

impl Tokenized {
    fn new(parts: &Parts, texts: &Texts, request: &Request, hold: &mut Hold<'_>) -> Result<Self> {
        let mut chunks: Vec<Chunk> = (0..texts.len())
            .step_by(TOKENIZED_TOGETHER)
            .map(|start| Chunk {
                texts: start..texts.len().min(start + TOKENIZED_TOGETHER),
                ids: Vec::new(),
                counts: Vec::new(),
                outcome: Ok(()),
            })
            .collect();
        let mut joined = vec![String::new(); hold.team.lanes()];
        for_each(hold.team, &mut joined, &mut chunks, |joined, chunk| {
            chunk.outcome = chunk.fill(parts, texts, request, joined, hold.control);
        });

        let tokens = chunks.iter().map(|chunk| chunk.ids.len()).sum();
        let mut all = Tokenized {
            ids: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            lengths: Vec::with_capacity(texts.len()),
            tokens: Vec::with_capacity(texts.len()),
            truncated: Vec::with_capacity(texts.len()),
        };
        for chunk in chunks {
            chunk.outcome?;
            all.ids.extend_from_slice(&chunk.ids);
            for count in chunk.counts {
                all.positions.extend(0..count.kept);
                all.lengths.push(count.kept as usize);
                all.tokens.push(count.tokens);
                all.truncated.push(u8::from(count.truncated()));
            }
        }
        Ok(all)
    }
}

impl Chunk {
    fn fill(
        &mut self,
        parts: &Parts,
        texts: &Texts,
        request: &Request,
        joined: &mut String,
        control: &Control,
    ) -> Result<()> {
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
    first: usize,
    out: &'a mut [f32],
    outcome: Result<()>,
}

fn compute(
    parts: &Parts,
    request: &Request,
    tokenized: &Tokenized,
    data: &mut [f32],
    hold: &mut Hold<'_>,
) -> Result<()> {
    let plan = Plan::new(&tokenized.lengths, hold.team.lanes());
    let mut blocks = lay_out(&plan.blocks, tokenized, request.dimensions, data);
    let total = tokenized.lengths.len() as u64;
    let done = AtomicUsize::new(0);
    let run = |team: &dyn ForkJoin, block: &mut Block<'_>, arena: &mut Arena| {
        block.run(parts, request, team, arena, hold.control)?;
        let texts = block.batch.lengths.len();
        let done = done.fetch_add(texts, Ordering::Relaxed) + texts;
        hold.control.report(done as u64, total);
        Ok(())
    };
    if plan.shared {
        let arena = &mut hold.arenas[0];
        return blocks
            .iter_mut()
            .try_for_each(|block| run(hold.team, block, arena));
    }
    for_each(hold.team, hold.arenas, &mut blocks, |arena, block| {
        block.outcome = run(&Solo, block, arena);
    });
    blocks.into_iter().try_for_each(|block| block.outcome)
}

/// Cuts the batch and the results along the plan's blocks.
fn lay_out<'a>(
    ranges: &[Range<usize>],
    tokenized: &'a Tokenized,
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
            first: texts.start,
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
        control: &Control,
    ) -> Result<()> {
        let texts = self.batch.lengths.len();
        let spare = texts * parts.widths();
        let (states, spare) = parts
            .bert
            .forward(team, &self.batch, spare, arena, control)?;
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
                    self.first + place
                )));
            }
        }
        Ok(())
    }
}
