//! A batch over devices: texts to tokens on host threads, tokens to vectors on all devices at once.
//!
//! One host thread submits a block to each device by turns and goes on before they are done, so
//! that no device waits for it. It waits when a [`WINDOW`] of turns is submitted: to say how far the
//! call is, and whether it is still wanted. A call that is given up stops between two layers and then waits
//! for what was submitted.

use std::ops::Range;
use std::sync::Arc;

use super::super::EncodeOptions;
use super::super::Parts;
use super::super::Texts;
use super::embeddings::{DeviceEmbeddings, Part};
use super::forward::Block;
use super::split::{BLOCK_TOKENS, blocks, split};
use super::{Replica, Vram};
use crate::device::{Download, Place};
use crate::executor::{Devices, DrivenDevice, Hold, ResultBuffer, complete};
use crate::kernels::ForkJoin;
use crate::memory::{reserve, with_room};
use crate::model::encode::request::Request;
use crate::model::encode::tokenized::{Asked, Tokenized};
use crate::{Error, Result, Status};

/// Blocks of a device that are submitted before it is waited for.
const WINDOW: usize = 8;

/// One call, on an executor it holds.
pub(in super::super) fn encode_alone(
    parts: &Parts,
    texts: &Texts,
    options: &EncodeOptions,
    hold: &mut Hold<'_>,
    devices: &Devices,
) -> Result<DeviceEmbeddings> {
    let control = hold.control;
    let call = Asked { texts, control };
    let answers = encode(parts, &[call], options, hold.team, devices)?;
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
pub(in super::super) fn encode(
    parts: &Parts,
    calls: &[Asked<'_>],
    options: &EncodeOptions,
    team: &dyn ForkJoin,
    devices: &Devices,
) -> Result<Vec<Result<DeviceEmbeddings>>> {
    let vram = parts.vram()?;
    let request = Request::resolve(options, parts)?;
    for call in calls {
        call.control.report(0, call.texts.len() as u64);
    }
    let tokenized = complete(Tokenized::new(parts, calls, &request, team))?;
    devices.lend(|driven| {
        let mut shares = vram.shares(driven)?;
        let calls: Vec<_> = tokenized.texts().flatten().collect();
        let runs = split(&calls, &tokenized.lengths, shares.len());
        let mut tokens = 0;
        for run in runs.iter().flatten() {
            tokens += shares[run.device].take(&run.texts, tokens, &tokenized)?;
        }
        compute(vram, &request, &tokenized, &mut shares)?;
        let buffers: Vec<_> = shares.into_iter().map(|share| share.results).collect();
        let mut next = vec![0; buffers.len()];
        let mut runs = runs.into_iter();
        let dimensions = request.dimensions;
        Ok(tokenized.answer(|_, tokens, truncated| {
            let parts = runs.next().into_iter().flatten().filter_map(|run| {
                let (device, buffer) = &buffers[run.device];
                let (first, rows) = (next[run.device], run.texts.len());
                next[run.device] += rows;
                Some(Part {
                    device: *device,
                    buffer: buffer.clone()?,
                    offset: first * dimensions * size_of::<f32>(),
                    rows,
                })
            });
            DeviceEmbeddings::new(dimensions, parts.collect(), tokens, truncated)
        }))
    })
}

/// What one device does of a batch.
struct Share<'a> {
    replica: &'a Replica,
    driven: &'a mut DrivenDevice,
    ids: Vec<u32>,
    positions: Vec<u32>,
    lengths: Vec<usize>,
    /// Which texts of the batch they are.
    runs: Vec<Range<usize>>,
    /// Its ordinal, and where its rows go; `None`: it has none.
    results: (u32, Option<Arc<ResultBuffer>>),
}

impl Vram {
    /// A share for each device that has the weights and is driven.
    fn shares<'a>(&'a self, driven: &'a mut [DrivenDevice]) -> Result<Vec<Share<'a>>> {
        let shares: Vec<_> = driven
            .iter_mut()
            .filter_map(|driven| {
                let own = self.replicas.iter();
                let replica = own
                    .clone()
                    .find(|replica| replica.place.ordinal == driven.place.ordinal)?;
                Some(Share {
                    replica,
                    results: (driven.place.ordinal, None),
                    driven,
                    ids: Vec::new(),
                    positions: Vec::new(),
                    lengths: Vec::new(),
                    runs: Vec::new(),
                })
            })
            .collect();
        match shares.is_empty() {
            true => Err(Error::new(
                Status::Internal,
                "no device of a call has its model",
            )),
            false => Ok(shares),
        }
    }

    /// How many tokens go through the layers of a device together.
    fn block_tokens(&self, limit: Option<usize>) -> usize {
        const SAMPLE: usize = 1024;
        let Some(limit) = limit else {
            return BLOCK_TOKENS;
        };
        let each = self.encoder.scratch_bytes(SAMPLE).div_ceil(SAMPLE);
        (limit / each.max(1)).clamp(1, BLOCK_TOKENS)
    }
}

impl Share<'_> {
    /// Adds texts of the batch to those it has, whose tokens begin at `start`; how many those are.
    fn take(
        &mut self,
        texts: &Range<usize>,
        start: usize,
        tokenized: &Tokenized<'_>,
    ) -> Result<usize> {
        let lengths = &tokenized.lengths[texts.clone()];
        let tokens = lengths.iter().sum::<usize>();
        for (own, all) in [
            (&mut self.ids, &tokenized.ids),
            (&mut self.positions, &tokenized.positions),
        ] {
            reserve(own, tokens, "the tokens of a call")?;
            own.extend_from_slice(&all[start..start + tokens]);
        }
        self.lengths.extend_from_slice(lengths);
        self.runs.push(texts.clone());
        Ok(tokens)
    }

    /// The texts of the batch that some of its own are.
    fn texts(&self, own: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        let own = own.clone();
        self.runs.iter().filter_map(move |run| {
            let (start, end) = (own.start.max(first), own.end.min(first + run.len()));
            let texts =
                start.saturating_sub(first) + run.start..end.saturating_sub(first) + run.start;
            first += run.len();
            (start < end).then_some(texts)
        })
    }
}

/// A block that was submitted.
struct Submitted {
    share: usize,
    texts: Range<usize>,
    flags: Download<f32>,
}

fn compute(
    vram: &Vram,
    request: &Request,
    tokenized: &Tokenized<'_>,
    shares: &mut [Share<'_>],
) -> Result<()> {
    let mut cut = with_room(shares.len(), "the blocks of a call")?;
    for share in &mut *shares {
        if !share.lengths.is_empty() {
            let rows = share.lengths.len().saturating_mul(request.dimensions);
            let bytes = rows.saturating_mul(size_of::<f32>());
            let results = share.driven.allocate_results(bytes)?;
            share.results.1 = Some(Arc::new(results));
        }
        let most = vram.block_tokens(share.driven.scratch.limit());
        cut.push(Cut {
            blocks: blocks(&share.lengths, most),
            token: 0,
        });
    }
    let turns = cut.iter().map(|cut| cut.blocks.len()).max().unwrap_or(0);
    let mut submitted = Vec::new();
    for turn in 0..turns {
        for (at, (share, cut)) in shares.iter_mut().zip(&mut cut).enumerate() {
            let Some(texts) = cut.blocks.get(turn).cloned() else {
                continue;
            };
            let flags = submit(vram, request, tokenized, share, &texts, &mut cut.token)?;
            submitted.push(Submitted {
                share: at,
                texts,
                flags,
            });
        }
        if (turn + 1) % WINDOW == 0 || turn + 1 == turns {
            wait(shares, &mut submitted, tokenized)?;
            tokenized.check()?;
        }
    }
    Ok(())
}

/// A share's blocks, and how many of its tokens were submitted.
struct Cut {
    blocks: Vec<Range<usize>>,
    token: usize,
}

fn submit(
    vram: &Vram,
    request: &Request,
    tokenized: &Tokenized<'_>,
    share: &mut Share<'_>,
    texts: &Range<usize>,
    token: &mut usize,
) -> Result<Download<f32>> {
    let lengths = &share.lengths[texts.clone()];
    let tokens = *token..*token + lengths.iter().sum::<usize>();
    *token = tokens.end;
    let block = Block {
        ids: &share.ids[tokens.clone()],
        positions: &share.positions[tokens],
        lengths,
    };
    let Some(results) = &share.results.1 else {
        return Err(Error::new(Status::Internal, "rows have no place to go"));
    };
    let dimensions = request.dimensions;
    let rows = Place::new(
        texts.start * dimensions * size_of::<f32>(),
        texts.len() * dimensions,
    );
    let out = results.view(rows)?;
    let check = || tokenized.check();
    vram.encoder
        .submit(share.replica, share.driven, &block, request, out, &check)
}

/// Waits for all devices, and looks at what they say of the blocks.
fn wait(
    shares: &mut [Share<'_>],
    submitted: &mut Vec<Submitted>,
    tokenized: &Tokenized<'_>,
) -> Result<()> {
    for share in &mut *shares {
        share.driven.staging.wait()?;
    }
    for Submitted {
        share,
        texts,
        flags,
    } in submitted.drain(..)
    {
        let share = &shares[share];
        let flags = share.driven.staging.downloaded(&flags)?;
        // Two a text.
        if let Some(at) = flags.iter().position(|flag| !flag.is_finite()) {
            let text = texts.start + at / 2;
            let text = share.texts(&(text..text + 1)).next();
            return Err(Error::corrupt(format!(
                "the vector of text {} is not finite: the model's weights overflow the numbers \
                 it is computed in",
                text.map_or(0, |text| text.start),
            )));
        }
        for texts in share.texts(&texts) {
            tokenized.advance(&texts);
        }
    }
    Ok(())
}
