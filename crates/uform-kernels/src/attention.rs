//! Attention of each text over itself: `softmax(Q·Kᵀ/√d)·V`, head by head, in f32 or in bf16
//! (`precision` says what is rounded there).
//!
//! The texts of a batch are laid end to end without padding; a task is some heads of one
//! text, and some of its queries when the text is long and lanes are many.

use std::ops::Range;

use super::fork_join::Shared;
use super::operand::{Form, Operand};
use super::{ForkJoin, Kernels, Precision, share};

/// How many texts one job of the team covers: their starts are kept on the stack.
const TEXTS_A_JOB: usize = 256;

/// A text up to this many tokens is not cut into heads when there are texts enough.
const SHORT: usize = 64;

/// A head's queries are not cut into blocks smaller than this: each block packs K and V anew.
const QUERIES_A_BLOCK: usize = 32;

/// Attention over a batch. Each task writes only its own part of `out`. In bf16 the rows of
/// both are those of an operand.
pub(super) struct Attention<'a> {
    pub qkv: &'a [f32],
    pub hidden: usize,
    pub heads: usize,
    pub out: Shared<f32>,
}

impl Attention<'_> {
    /// `f32` from one row to the next of `qkv` and of `out`, in bf16.
    pub(super) fn bf16_strides(&self) -> (usize, usize) {
        let stride = |width| {
            let precision = Precision::Bf16;
            Form { precision, width }.stride() / 4
        };
        (stride(3 * self.hidden), stride(self.hidden))
    }
}

/// Some heads and some queries of one text.
pub(super) struct AttentionTask {
    /// The text's first row in the batch.
    pub first: usize,
    /// The text's tokens.
    pub length: usize,
    pub heads: Range<usize>,
    /// The queries are spread evenly over `⌈length / tile rows⌉` tiles; these of them.
    pub tiles: Range<usize>,
}

impl Kernels {
    /// How many `f32` of scratch [`Kernels::attention`] needs for `lanes` lanes when no text has
    /// more than `longest` tokens.
    pub fn attention_scratch(&self, lanes: usize, longest: usize, head_size: usize) -> usize {
        lanes * (self.attention_scratch)(longest, head_size)
    }

    /// Attention within each text. `qkv` is `[tokens][3·hidden]`, a row being the
    /// token's query, key and value, each `[heads][head size]`; `lengths` are the
    /// texts' tokens, in order; `out` is `[tokens][hidden]`. `scratch` has at
    /// least [`Kernels::attention_scratch`] elements, of any value.
    ///
    /// # Panics
    /// When a slice's length does not fit, `hidden` is not a multiple of `heads`, or the
    /// precision is bf16, whose attention is [`Kernels::attention_onward`].
    pub fn attention(
        &self,
        team: &dyn ForkJoin,
        qkv: &[f32],
        lengths: &[usize],
        heads: usize,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let tokens: usize = lengths.iter().sum();
        let hidden = out.len().checked_div(tokens).unwrap_or(0);
        assert_eq!(out.len(), tokens * hidden, "out does not fit the tokens");
        assert_eq!(qkv.len(), 3 * out.len(), "qkv does not fit out");
        assert_ne!(self.precision, Precision::Bf16, "rows of another precision");
        let job = Attention {
            qkv,
            hidden,
            heads,
            out: Shared(out.as_mut_ptr()),
        };
        self.run_attention(team, &job, lengths, scratch);
    }

    /// [`Kernels::attention`] in bf16: from the operand that the layer of queries, keys and values
    /// left ([`Kernels::linear_onward`]) to that of the layer after, made in `space`
    /// ([`Kernels::operand_size`]).
    ///
    /// # Panics
    /// When a length does not fit, `hidden` is not a multiple of `heads`, or the precision is
    /// not bf16.
    pub fn attention_onward<'a>(
        &self,
        team: &dyn ForkJoin,
        qkv: Operand<'_>,
        lengths: &[usize],
        heads: usize,
        scratch: &mut [f32],
        space: &'a mut [f32],
    ) -> Operand<'a> {
        let tokens: usize = lengths.iter().sum();
        let hidden = qkv.width() / 3;
        assert_eq!(
            qkv.width(),
            3 * hidden,
            "rows are not queries, keys, values"
        );
        assert_eq!(qkv.rows(), tokens, "qkv does not fit the texts");
        let here = (self.precision, qkv.precision());
        let both = (Precision::Bf16, Precision::Bf16);
        assert_eq!(here, both, "rows of another precision");
        let job = Attention {
            qkv: qkv.floats(),
            hidden,
            heads,
            out: self.converted(space, tokens, hidden).out,
        };
        self.run_attention(team, &job, lengths, scratch);
        self.operand(&[], space, tokens, hidden)
    }

    /// The shapes of `job` fit `lengths`.
    fn run_attention(
        &self,
        team: &dyn ForkJoin,
        job: &Attention<'_>,
        lengths: &[usize],
        scratch: &mut [f32],
    ) {
        let (hidden, heads) = (job.hidden, job.heads);
        if job.qkv.is_empty() {
            return;
        }
        assert!(
            heads > 0 && hidden.is_multiple_of(heads),
            "a hidden size of {hidden} is not made of {heads} heads"
        );
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let lane_scratch = (self.attention_scratch)(longest, hidden / heads);
        assert!(
            scratch.len() / team.lanes() >= lane_scratch,
            "attention needs {lane_scratch} elements of scratch a lane"
        );

        let scratch = Shared(scratch.as_mut_ptr());
        let mut first = 0;
        for lengths in lengths.chunks(TEXTS_A_JOB) {
            let mut starts = [0; TEXTS_A_JOB];
            for (start, length) in starts.iter_mut().zip(lengths) {
                *start = first;
                first += length;
            }
            let (groups, blocks) = cuts(lengths.len(), heads, longest, team.lanes());
            team.run(lengths.len() * groups * blocks, &|lane, index| {
                let text = index / (groups * blocks);
                let tiles = lengths[text].div_ceil(self.query_rows);
                let task = AttentionTask {
                    first: starts[text],
                    length: lengths[text],
                    heads: share(heads, groups, index / blocks % groups),
                    tiles: share(tiles, blocks, index % blocks),
                };
                // SAFETY: the shapes were checked above, this machine has the class's
                // instructions (`Kernels::of`), no two tasks overlap, and a lane has
                // its scratch to itself, which is as long as the longest text asks.
                unsafe { (self.attention)(job, &task, scratch.at(lane * lane_scratch)) };
            });
        }
    }
}

/// Into how many groups of heads, and how many blocks of queries, each text is cut: as few
/// as keep all lanes busy to the end.
fn cuts(texts: usize, heads: usize, longest: usize, lanes: usize) -> (usize, usize) {
    let wanted = 4 * lanes;
    if lanes == 1 || (longest <= SHORT && texts >= 2 * wanted) {
        return (1, 1);
    }
    let blocks = wanted.div_ceil(texts * heads);
    (heads, blocks.min(longest.div_ceil(QUERIES_A_BLOCK)))
}
