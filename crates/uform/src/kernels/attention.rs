//! Attention of each text over itself: `softmax(Q·Kᵀ/√d)·V`, head by head.
//!
//! For one head of one text, K is transposed and V copied into the lane's scratch, as panels
//! like those of a dense layer's weights. (V could be read where it lies, but for
//! common hidden sizes its rows are a multiple of 4 KiB apart and would evict each
//! other from the nearest cache.) Then a few queries at a time, a register tile's
//! rows: their scores against all keys, softmax over each row of scores, and the weighted
//! sum of values by the same register tiles, divided by the softmax's sum on the way out.

use std::ops::Range;

use super::fork_join::Shared;
use super::linear::{Product, Tile, load_up_to, store_up_to};
use super::math::exp;
use super::rows::total;
use super::simd::Simd;
use super::{ForkJoin, Kernels, share};

/// How many texts one job of the team covers: their starts are kept on the stack.
const TEXTS_A_JOB: usize = 256;

/// A text up to this many tokens is not cut into heads when there are texts enough.
const SHORT: usize = 64;

/// A head's queries are not cut into blocks smaller than this: each block packs K and V anew.
const QUERIES_A_BLOCK: usize = 32;

/// Attention over a batch. Whoever holds it may write to its own part of `out`.
pub(super) struct Attention<'a> {
    pub qkv: &'a [f32],
    pub hidden: usize,
    pub heads: usize,
    pub out: Shared<f32>,
}

/// Some heads and some queries of one text.
pub(super) struct Piece {
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
    /// When a slice's length does not fit, or `hidden` is not a multiple of `heads`.
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
        if out.is_empty() {
            return;
        }
        assert!(
            heads > 0 && hidden % heads == 0,
            "a hidden size of {hidden} is not made of {heads} heads"
        );
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let lane_scratch = (self.attention_scratch)(longest, hidden / heads);
        assert!(
            scratch.len() / team.lanes() >= lane_scratch,
            "attention needs {lane_scratch} elements of scratch a lane"
        );

        let scratch = Shared(scratch.as_mut_ptr());
        let job = Attention {
            qkv,
            hidden,
            heads,
            out: Shared(out.as_mut_ptr()),
        };
        let mut first = 0;
        for lengths in lengths.chunks(TEXTS_A_JOB) {
            let mut starts = [0; TEXTS_A_JOB];
            for (start, length) in starts.iter_mut().zip(lengths) {
                *start = first;
                first += length;
            }
            let (groups, blocks) = cuts(lengths.len(), heads, longest, team.lanes());
            team.run(lengths.len() * groups * blocks, &|lane, task| {
                let text = task / (groups * blocks);
                let tiles = lengths[text].div_ceil(self.tile_rows);
                let piece = Piece {
                    first: starts[text],
                    length: lengths[text],
                    heads: share(heads, groups, task / blocks % groups),
                    tiles: share(tiles, blocks, task % blocks),
                };
                // SAFETY: the shapes were checked above, this machine has the class's
                // instructions (`Kernels::of`), no two pieces overlap, and a lane has
                // its scratch to itself, which is as long as the longest text asks.
                unsafe { (self.attention)(&job, &piece, scratch.at(lane * lane_scratch)) };
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

/// How a matrix of some columns is cut into panels of whole vectors: as wide as
/// the register tile allows, and all about as wide.
#[derive(Clone, Copy)]
struct Panels {
    vectors: usize,
    width: usize,
}

impl Panels {
    #[inline(always)]
    fn new<V: Simd>(columns: usize) -> Panels {
        let vectors = columns.div_ceil(V::LANES);
        let count = vectors.div_ceil(V::TILE_VECTORS);
        Panels {
            vectors,
            width: vectors.div_ceil(count),
        }
    }

    /// How many panels there are.
    #[inline(always)]
    fn count(self) -> usize {
        self.vectors.div_ceil(self.width)
    }

    /// The vectors of one panel.
    #[inline(always)]
    fn of(self, panel: usize) -> Range<usize> {
        let start = panel * self.width;
        start..(start + self.width).min(self.vectors)
    }
}

/// Scratch of one lane, in `f32`: K and V as panels, the scores of a tile of queries, and
/// what aligns it all to cache lines.
pub(super) fn scratch<V: Simd>(longest: usize, head_size: usize) -> usize {
    let keys = longest.next_multiple_of(V::LANES);
    let values = head_size.next_multiple_of(V::LANES);
    let used = keys * head_size + longest * values + V::TILE_ROWS * keys;
    (used + 16).next_multiple_of(16)
}

/// Attention of one piece.
///
/// # Safety
/// The CPU has the class's instructions, the piece lies within the batch, nobody else
/// writes to its part of `out`, and `scratch` has [`scratch`] elements and no other user.
#[inline(always)]
pub(super) unsafe fn piece<V: Simd>(job: &Attention<'_>, piece: &Piece, scratch: *mut f32) {
    if piece.tiles.is_empty() {
        return;
    }
    let (hidden, length) = (job.hidden, piece.length);
    let head_size = hidden / job.heads;
    let stride = 3 * hidden;
    let scale = 1.0 / (head_size as f32).sqrt();
    let all_tiles = length.div_ceil(V::TILE_ROWS);
    let key_panels = Panels::new::<V>(length);
    let value_panels = Panels::new::<V>(head_size);
    let score_stride = key_panels.vectors * V::LANES;
    // SAFETY: rows of the piece are within `qkv` and `out`, a head's columns within
    // each third of a row; the scratch's three parts follow each other as `scratch` counted.
    unsafe {
        let keys = scratch.add(scratch.align_offset(64).min(16));
        let values = keys.add(score_stride * head_size);
        let scores = values.add(length * value_panels.vectors * V::LANES);
        for head in piece.heads.clone() {
            let query = job
                .qkv
                .as_ptr()
                .add(piece.first * stride + head * head_size);
            pack_keys::<V>(query.add(hidden), stride, length, head_size, keys);
            pack_values::<V>(query.add(2 * hidden), stride, length, head_size, values);
            for tile in piece.tiles.clone() {
                let rows = share(length, all_tiles, tile);
                for panel in 0..key_panels.count() {
                    let vectors = key_panels.of(panel);
                    V::product(&Product {
                        rows: rows.len(),
                        vectors: vectors.len(),
                        depth: head_size,
                        left: query.add(rows.start * stride),
                        left_stride: stride,
                        right: keys.add(vectors.start * V::LANES * head_size),
                        right_stride: vectors.len() * V::LANES,
                        out: scores.add(vectors.start * V::LANES),
                        out_stride: score_stride,
                    });
                }
                let mut sums = [0.0; 8];
                for (row, sum) in sums[..rows.len()].iter_mut().enumerate() {
                    *sum = softmax::<V>(scores.add(row * score_stride), length, scale);
                }
                let out = job
                    .out
                    .at((piece.first + rows.start) * hidden + head * head_size);
                for panel in 0..value_panels.count() {
                    let vectors = value_panels.of(panel);
                    let mut tile = std::mem::MaybeUninit::<Tile>::uninit();
                    let tile = tile.as_mut_ptr().cast::<f32>();
                    let tile_stride = vectors.len() * V::LANES;
                    V::product(&Product {
                        rows: rows.len(),
                        vectors: vectors.len(),
                        depth: length,
                        left: scores,
                        left_stride: score_stride,
                        right: values.add(vectors.start * V::LANES * length),
                        right_stride: tile_stride,
                        out: tile,
                        out_stride: tile_stride,
                    });
                    for (row, sum) in sums[..rows.len()].iter().enumerate() {
                        let share = V::splat(1.0 / sum);
                        for vector in vectors.clone() {
                            let column = vector * V::LANES;
                            let within = row * tile_stride + column - vectors.start * V::LANES;
                            store_up_to(
                                V::load(tile.add(within)).mul(share),
                                out.add(row * hidden + column),
                                V::LANES.min(head_size - column),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Transposes a head's keys into panels of `[head size][keys]`, the last vector padded with zeros.
///
/// # Safety
/// As for [`piece`].
#[inline(always)]
unsafe fn pack_keys<V: Simd>(
    from: *const f32,
    stride: usize,
    length: usize,
    head_size: usize,
    to: *mut f32,
) {
    let panels = Panels::new::<V>(length);
    for panel in 0..panels.count() {
        let vectors = panels.of(panel);
        let to_stride = vectors.len() * V::LANES;
        for vector in vectors.clone() {
            let key = vector * V::LANES;
            for at in (0..head_size).step_by(V::LANES) {
                // SAFETY: the block is within this head's keys; the panel starts after
                // `head_size` elements for each key before it, and the block's first
                // vector after `at` rows and the vectors before it.
                unsafe {
                    V::transpose(
                        from.add(key * stride + at),
                        stride,
                        V::LANES.min(length - key),
                        V::LANES.min(head_size - at),
                        to.add(
                            vectors.start * V::LANES * head_size
                                + at * to_stride
                                + (vector - vectors.start) * V::LANES,
                        ),
                        to_stride,
                    );
                }
            }
        }
    }
}

/// Copies a head's values into panels of `[keys][head size]`, the last vector padded with zeros.
///
/// # Safety
/// As for [`piece`].
#[inline(always)]
unsafe fn pack_values<V: Simd>(
    from: *const f32,
    stride: usize,
    length: usize,
    head_size: usize,
    to: *mut f32,
) {
    let panels = Panels::new::<V>(head_size);
    for panel in 0..panels.count() {
        let vectors = panels.of(panel);
        for key in 0..length {
            for vector in vectors.clone() {
                let column = vector * V::LANES;
                // SAFETY: the elements are within this key's value; the panel starts after
                // `length` rows of the vectors before it.
                unsafe {
                    load_up_to::<V>(
                        from.add(key * stride + column),
                        V::LANES.min(head_size - column),
                    )
                    .store(to.add(
                        (vectors.start * length + key * vectors.len() + vector - vectors.start)
                            * V::LANES,
                    ));
                }
            }
        }
    }
}

/// Replaces scores s by e^(scale·(s − the largest)), and returns their sum.
///
/// # Safety
/// The CPU has the class's instructions; `scores` has `length` elements rounded up to whole
/// vectors, and no other user. `length` is at least 1.
#[inline(always)]
unsafe fn softmax<V: Simd>(scores: *mut f32, length: usize, scale: f32) -> f32 {
    // SAFETY: whole vectors up to the last are within the row.
    unsafe {
        let least = V::splat(f32::NEG_INFINITY);
        let mut largest = least;
        for at in (0..length).step_by(V::LANES) {
            let score = V::load(scores.add(at));
            let count = length - at;
            largest = largest.max(if count < V::LANES {
                score.first_or(count, least)
            } else {
                score
            });
        }
        let largest = V::splat(largest.largest());
        let scale = V::splat(scale);

        let zero = V::splat(0.0);
        let mut sums = [zero; 4];
        let mut at = 0;
        while at < length {
            for sum in &mut sums {
                if at < length {
                    let count = length - at;
                    let weight = exp(V::load(scores.add(at)).sub(largest).mul(scale));
                    weight.store(scores.add(at));
                    *sum = sum.add(if count < V::LANES {
                        weight.first_or(count, zero)
                    } else {
                        weight
                    });
                    at += V::LANES;
                }
            }
        }
        total(sums)
    }
}
