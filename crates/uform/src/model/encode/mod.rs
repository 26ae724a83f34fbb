//! `encode_text`: texts to tokens, tokens to blocks, blocks to vectors.
//!
//! Several calls with equal options go through as one ragged batch. Their texts lie in it
//! end to end, call after call, and nothing but the rows says whose a text is: no vector
//! depends on its neighbours. A call whose text is refused leaves the batch before it is computed.

pub(in crate::model) mod call;
pub(in crate::model) mod embeddings;
mod plan;
mod pooling;
pub(in crate::model) mod request;
pub(in crate::model) mod texts;
pub(in crate::model) mod tokenized;

use std::ops::Range;

use self::embeddings::Embeddings;
use self::plan::Plan;
use self::pooling::{normalize, pool};
use self::request::Request;
use self::texts::Texts;
use self::tokenized::{Asked, Tokenized};
use crate::executor::{Arena, Hold, complete};
use crate::kernels::fork_join::for_each;
use crate::kernels::{ForkJoin, Solo};
use crate::memory::zeros;
use crate::model::ram::bert::Batch;
use crate::model::{EncodeOptions, Parts, Ram};
use crate::{Error, Result, Status};

/// One call, on an executor it holds.
pub(in crate::model) fn encode_alone(
    parts: &Parts,
    texts: &Texts,
    options: &EncodeOptions,
    hold: &mut Hold<'_>,
) -> Result<Embeddings> {
    let control = hold.control;
    let call = Asked { texts, control };
    let answers = complete(encode(parts, &[call], options, hold.team, hold.arenas))?;
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
pub(in crate::model) async fn encode(
    parts: &Parts,
    calls: &[Asked<'_>],
    options: &EncodeOptions,
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) -> Result<Vec<Result<Embeddings>>> {
    let ram = parts.ram()?;
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
    let tokenized = Tokenized::new(parts, calls, &request, team).await?;
    data.truncate(tokenized.lengths.len() * request.dimensions);
    compute(ram, &request, &tokenized, &mut data, team, arenas).await?;
    Ok(tokenized.answers(data, request.dimensions))
}

/// Some texts that go through the layers together, and where their vectors go.
struct Block<'a> {
    batch: Batch<'a>,
    texts: Range<usize>,
    out: &'a mut [f32],
    outcome: Result<()>,
}

async fn compute(
    ram: &Ram,
    request: &Request,
    tokenized: &Tokenized<'_>,
    data: &mut [f32],
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) -> Result<()> {
    let plan = Plan::new(&tokenized.lengths, team.lanes());
    let mut blocks = lay_out(&plan.blocks, tokenized, request.dimensions, data);
    let job = (ram, request, tokenized);
    if plan.shared || team.lanes() == 1 {
        for block in &mut blocks {
            block.run(job, team, &mut arenas[0]).await?;
        }
        return Ok(());
    }
    for_each(team, arenas, &mut blocks, |arena, block| {
        block.outcome = complete(block.run(job, &Solo, arena));
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
    async fn run(
        &mut self,
        (ram, request, tokenized): (&Ram, &Request, &Tokenized<'_>),
        team: &dyn ForkJoin,
        arena: &mut Arena,
    ) -> Result<()> {
        let check = || tokenized.check();
        let texts = self.texts.len();
        let spare = texts * ram.widths();
        let (states, spare) = ram
            .bert
            .forward(team, &self.batch, spare, arena, &check)
            .await?;
        let hidden = ram.hidden();
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
        for head in &ram.heads {
            let (next, free) = rest.split_at_mut(texts * head.outputs());
            head.apply(ram.head_kernels, team, vectors, next);
            (vectors, rest) = (next, free);
        }
        let rows = vectors.chunks_exact(ram.dimensions());
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
        tokenized.advance(&self.texts);
        Ok(())
    }
}
