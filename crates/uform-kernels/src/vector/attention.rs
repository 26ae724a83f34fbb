//! Attention on vectors.
//!
//! For one head of one text, K is transposed and V copied into the lane's scratch, as panels
//! like those of a dense layer's weights. (V could be read where it lies, but for
//! common hidden sizes its rows are a multiple of 4 KiB apart and would evict each
//! other from the nearest cache.) Then a few queries at a time, a register tile's
//! rows: their scores against all keys, softmax over each row of scores, and the weighted
//! sum of values by the same register tiles, divided by the softmax's sum on the way out.

use std::ops::Range;

use super::curves::exp_of_negative;
use super::tile::{MOST_ROWS, Product, Tile};
use super::{Simd, load_up_to, store_up_to, total};
use crate::attention::{Attention, AttentionTask};
use crate::share;

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
pub(crate) fn scratch<V: Simd>(longest: usize, head_size: usize) -> usize {
    let keys = longest.next_multiple_of(V::LANES);
    let values = head_size.next_multiple_of(V::LANES);
    let used = keys * head_size + longest * values + V::TILE_ROWS * keys;
    (used + 16).next_multiple_of(16)
}

/// Attention of one task.
///
/// # Safety
/// The CPU has the class's instructions, the task lies within the batch, no other thread
/// writes to its part of `out`, and `scratch` has [`scratch`] elements and no other user.
#[inline(always)]
pub(crate) unsafe fn compute<V: Simd>(
    job: &Attention<'_>,
    task: &AttentionTask,
    scratch: *mut f32,
) {
    if task.tiles.is_empty() {
        return;
    }
    let (hidden, length) = (job.hidden, task.length);
    let head_size = hidden / job.heads;
    let stride = 3 * hidden;
    let scale = 1.0 / (head_size as f32).sqrt();
    let all_tiles = length.div_ceil(V::TILE_ROWS);
    let key_panels = Panels::new::<V>(length);
    let value_panels = Panels::new::<V>(head_size);
    let score_stride = key_panels.vectors * V::LANES;
    // SAFETY: rows of the task are within `qkv` and `out`, a head's columns within
    // each third of a row; the scratch's three parts follow each other as `scratch` counted.
    unsafe {
        let keys = scratch.add(scratch.align_offset(64).min(16));
        let values = keys.add(score_stride * head_size);
        let scores = values.add(length * value_panels.vectors * V::LANES);
        let mut tile = Tile::new();
        let tile = tile.values();
        for head in task.heads.clone() {
            let query = job.qkv.as_ptr().add(task.first * stride + head * head_size);
            pack_keys::<V>(query.add(hidden), stride, length, head_size, keys);
            pack_values::<V>(query.add(2 * hidden), stride, length, head_size, values);
            for queries in task.tiles.clone() {
                let rows = share(length, all_tiles, queries);
                for panel in 0..key_panels.count() {
                    let vectors = key_panels.of(panel);
                    let panel_keys = keys.add(vectors.start * V::LANES * head_size);
                    V::product(&Product {
                        rows: rows.len(),
                        vectors: vectors.len(),
                        depth: head_size,
                        left: query.add(rows.start * stride),
                        left_stride: stride,
                        right: panel_keys,
                        out: scores.add(vectors.start * V::LANES),
                        out_stride: score_stride,
                        next: panel_keys,
                        next_lines: 0,
                    });
                }
                let mut sums = [0.0; MOST_ROWS];
                for (row, sum) in sums[..rows.len()].iter_mut().enumerate() {
                    *sum = softmax::<V>(scores.add(row * score_stride), length, scale);
                }
                let out = job
                    .out
                    .at((task.first + rows.start) * hidden + head * head_size);
                for panel in 0..value_panels.count() {
                    let vectors = value_panels.of(panel);
                    let tile_stride = vectors.len() * V::LANES;
                    let panel_values = values.add(vectors.start * V::LANES * length);
                    V::product(&Product {
                        rows: rows.len(),
                        vectors: vectors.len(),
                        depth: length,
                        left: scores,
                        left_stride: score_stride,
                        right: panel_values,
                        out: tile,
                        out_stride: tile_stride,
                        next: panel_values,
                        next_lines: 0,
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
/// As for [`compute`].
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
/// As for [`compute`].
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
            // A NaN's own weight will be one.
            largest = largest.max_of_numbers(if count < V::LANES {
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
        while length - at >= 4 * V::LANES {
            let mut weights = [zero; 4];
            for (place, weight) in weights.iter_mut().enumerate() {
                let score = V::load(scores.add(at + place * V::LANES));
                *weight = score.sub(largest).mul(scale);
            }
            weights = exp_of_negative(weights);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                weight.store(scores.add(at));
                *sum = sum.add(weight);
                at += V::LANES;
            }
        }
        while at < length {
            for sum in &mut sums {
                if at < length {
                    let count = length - at;
                    let score = V::load(scores.add(at));
                    let [weight] = exp_of_negative([score.sub(largest).mul(scale)]);
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
