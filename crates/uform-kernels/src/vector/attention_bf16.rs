//! Attention in bf16, on matrix tiles.
//!
//! For one head of one text, K and V are laid out in the lane's scratch as a dense layer's weights
//! are (`packed`): K as panels of 32 keys whose inputs are the head's columns, V as panels of
//! 32 columns whose inputs are the keys. Then 32 queries at a time, who multiplies a dense
//! layer's tiles multiplies these: scores, softmax over each row of them, and the weighted sum of
//! values, divided by the softmax's sum on its way into the next layer's operand.

use super::curves::exp;
use super::tiles::{TILES_ROWS, TileProduct, Tiles};
use super::{Simd, total};
use crate::attention::{Attention, AttentionTask};
use crate::operand::STEP_BYTES;
use crate::packed::TILES_COLUMNS;
use crate::share;

/// Groups to a step, and columns to a half of a panel.
const SIDE: usize = STEP_BYTES / 4;

/// Numbers of a step.
const STEP: usize = 2 * SIDE;

/// Words of a panel's step.
const STEP_WORDS: usize = SIDE * TILES_COLUMNS;

/// Words of a block of sums.
const BLOCK: usize = TILES_ROWS * TILES_COLUMNS;

/// Scratch of one lane, in `f32`: K and V as panels, and of a tile of queries scores,
/// weights, padded rows and sums; and what aligns it all to cache lines.
pub(crate) fn scratch(longest: usize, head_size: usize) -> usize {
    let (keys, columns) = (longest.div_ceil(STEP), head_size.div_ceil(STEP));
    let panels = 2 * keys * columns * STEP_WORDS;
    let weights = keys * TILES_ROWS * SIDE;
    let padded = columns * TILES_ROWS * SIDE;
    panels + keys * BLOCK + weights + padded + BLOCK + 16
}

/// The parts of a lane's scratch, as [`scratch`] counted.
struct Space {
    /// `[key panels][column steps]` of K.
    keys: *mut f32,
    /// `[column panels][key steps]` of V.
    values: *mut f32,
    /// `[key panels]` blocks of sums.
    scores: *mut f32,
    /// `[32][key steps]`: the left side of the weighted sum.
    weights: *mut f32,
    /// `[32][column steps]`: rows of heads that are not whole steps.
    padded: *mut f32,
    /// A block of sums.
    sums: *mut f32,
}

/// Attention of one task.
///
/// # Safety
/// The CPU has the instructions of both, the task lies within the batch, no other thread
/// writes to its part of `out`, and `scratch` has [`scratch`] elements and no other user.
#[inline(always)]
pub(crate) unsafe fn compute<V: Simd, T: Tiles>(
    job: &Attention<'_>,
    task: &AttentionTask,
    scratch: *mut f32,
) {
    if task.tiles.is_empty() {
        return;
    }
    let (hidden, length) = (job.hidden, task.length);
    let head_size = hidden / job.heads;
    let (from_stride, to_stride) = job.bf16_strides();
    let (key_steps, column_steps) = (length.div_ceil(STEP), head_size.div_ceil(STEP));
    let scale = 1.0 / (head_size as f32).sqrt();
    let all_tiles = length.div_ceil(TILES_ROWS);
    // SAFETY: rows of the task are within `qkv` and `out`, a head's columns within
    // each third of a row; the scratch's parts follow each other as `scratch` counted.
    unsafe {
        let keys = scratch.add(scratch.align_offset(64).min(16));
        let values = keys.add(key_steps * column_steps * STEP_WORDS);
        let scores = values.add(key_steps * column_steps * STEP_WORDS);
        let sums = scores.add(key_steps * BLOCK);
        let weights = sums.add(BLOCK);
        let space = Space {
            keys,
            values,
            scores,
            weights,
            padded: weights.add(key_steps * TILES_ROWS * SIDE),
            sums,
        };
        let mut unit = T::begin();
        for head in task.heads.clone() {
            let first = job.qkv.as_ptr().add(task.first * from_stride);
            let query = first.cast::<u16>().add(head * head_size);
            let text = Rows {
                start: query,
                stride: from_stride,
                columns: head_size,
            };
            pack_keys::<V>(text.part(hidden), length, &space);
            pack_values::<V>(text.part(2 * hidden), length, &space);
            for tile in task.tiles.clone() {
                let rows = share(length, all_tiles, tile);
                let left = text.whole(rows.start, rows.len(), space.padded);
                for panel in 0..key_steps {
                    unit.multiply(&product(
                        rows.len(),
                        left,
                        column_steps,
                        space.keys.add(panel * column_steps * STEP_WORDS),
                        space.scores.add(panel * BLOCK),
                    ));
                }
                let mut shares = [0.0; TILES_ROWS];
                for (row, share) in shares[..rows.len()].iter_mut().enumerate() {
                    let scores = space.scores.add(row * TILES_COLUMNS);
                    let weights = space.weights.add(row * key_steps * SIDE).cast();
                    *share = 1.0 / softmax::<V>(scores, length, scale, weights);
                }
                let out = job.out.at((task.first + rows.start) * to_stride);
                let out = out.cast::<u16>().add(head * head_size);
                for panel in 0..column_steps {
                    unit.multiply(&product(
                        rows.len(),
                        (space.weights, key_steps * SIDE),
                        key_steps,
                        space.values.add(panel * key_steps * STEP_WORDS),
                        space.sums,
                    ));
                    let first = panel * TILES_COLUMNS;
                    let columns = TILES_COLUMNS.min(head_size - first);
                    for (row, share) in shares[..rows.len()].iter().enumerate() {
                        let sums = space.sums.add(row * TILES_COLUMNS);
                        let out = out.add(row * 2 * to_stride + first);
                        store_context::<V>(sums, *share, columns, out);
                    }
                }
                if head + 1 == job.heads {
                    for row in 0..rows.len() {
                        let end = out.add(row * 2 * to_stride + head_size);
                        end.write_bytes(0, 2 * to_stride - hidden);
                    }
                }
            }
        }
    }
}

/// A product of some rows, whose words lie `left.1` apart, and a panel.
#[inline(always)]
fn product(
    rows: usize,
    left: (*const f32, usize),
    steps: usize,
    right: *const f32,
    out: *mut f32,
) -> TileProduct {
    TileProduct {
        rows,
        steps,
        left: left.0.cast(),
        left_stride: 4 * left.1,
        right: right.cast(),
        offsets: std::ptr::null(),
        out,
        next: std::ptr::null(),
        next_lines: 0,
    }
}

/// A head's queries, keys or values: a row a token, `stride` words apart.
#[derive(Clone, Copy)]
struct Rows {
    start: *const u16,
    stride: usize,
    columns: usize,
}

impl Rows {
    /// What lies so many numbers further on in each row.
    #[inline(always)]
    fn part(self, numbers: usize) -> Rows {
        Rows {
            start: self.start.wrapping_add(numbers),
            ..self
        }
    }

    /// At most 32 rows in whole steps, and the words between them: where they lie, or a
    /// copy of them padded with zeros.
    ///
    /// # Safety
    /// The rows are there; `padded` has room for them.
    #[inline(always)]
    unsafe fn whole(self, first: usize, count: usize, padded: *mut f32) -> (*const f32, usize) {
        // SAFETY: handed on to the caller.
        unsafe {
            let from = self.start.add(2 * first * self.stride);
            if self.columns.is_multiple_of(STEP) {
                return (from.cast(), self.stride);
            }
            let stride = self.columns.div_ceil(STEP) * SIDE;
            for row in 0..count {
                let to = padded.add(row * stride).cast::<u16>();
                to.copy_from_nonoverlapping(from.add(2 * row * self.stride), self.columns);
                to.add(self.columns)
                    .write_bytes(0, 2 * stride - self.columns);
            }
            (padded, stride)
        }
    }
}

/// Lays out a head's keys as panels of 32 keys. Columns of keys that are not there may hold
/// anything: their scores are not read.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
unsafe fn pack_keys<V: Simd>(rows: Rows, length: usize, space: &Space) {
    let steps = rows.columns.div_ceil(STEP);
    for first in (0..length).step_by(TILES_COLUMNS) {
        let count = TILES_COLUMNS.min(length - first);
        // SAFETY: the keys are the text's; a block of words is transposed from within whole
        // steps of them to within the panel.
        unsafe {
            let (from, stride) = rows.whole(first, count, space.padded);
            let panel = space.keys.add(first * steps * SIDE);
            for step in 0..steps {
                for key in (0..count).step_by(V::LANES) {
                    for group in (0..SIDE).step_by(V::LANES) {
                        let column = key / SIDE * SIDE * SIDE + key % SIDE;
                        V::transpose(
                            from.add(key * stride + step * SIDE + group),
                            stride,
                            V::LANES.min(count - key),
                            V::LANES,
                            panel.add(step * STEP_WORDS + group * SIDE + column),
                            SIDE,
                        );
                    }
                }
            }
        }
    }
}

/// Lays out a head's values as panels of 32 columns, the last step padded with zeros.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
unsafe fn pack_values<V: Simd>(rows: Rows, length: usize, space: &Space) {
    static NOTHING: [u16; TILES_COLUMNS] = [0; TILES_COLUMNS];
    let (steps, panels) = (length.div_ceil(STEP), rows.columns.div_ceil(TILES_COLUMNS));
    for step in 0..steps {
        let count = STEP.min(length - step * STEP);
        // SAFETY: the values are the text's, in whole steps of 32 columns; a group of each is
        // within its panel.
        unsafe {
            let (from, stride) = rows.whole(step * STEP, count, space.padded);
            for panel in 0..panels {
                let to = space.values.add((panel * steps + step) * STEP_WORDS);
                for group in 0..SIDE {
                    let mut pair = [NOTHING.as_ptr(); 2];
                    for (place, row) in pair.iter_mut().enumerate() {
                        let key = 2 * group + place;
                        if key < count {
                            *row = from.add(key * stride).cast::<u16>().add(panel * STEP);
                        }
                    }
                    let [even, odd] = pair;
                    for column in (0..TILES_COLUMNS).step_by(V::LANES) {
                        let at = column / SIDE * SIDE * SIDE + group * SIDE + column % SIDE;
                        V::join(even.add(column), odd.add(column)).store(to.add(at));
                    }
                }
            }
        }
    }
}

/// Of scores s, which lie in blocks, e^(scale·(s − the largest)): rounded as `weights`, padded
/// with zeros to whole steps, and their sum before rounding.
///
/// # Safety
/// The CPU has the class's instructions; both rows have whole steps. `length` is at least 1.
#[inline(always)]
unsafe fn softmax<V: Simd>(
    scores: *const f32,
    length: usize,
    scale: f32,
    weights: *mut u16,
) -> f32 {
    // SAFETY: whole vectors up to the last are within the rows.
    unsafe {
        let least = V::splat(f32::NEG_INFINITY);
        let mut largest = least;
        for at in (0..length).step_by(V::LANES) {
            let score = V::load(scores.add(in_blocks(at)));
            let count = length - at;
            largest = largest.max(if count < V::LANES {
                score.first_or(count, least)
            } else {
                score
            });
        }
        let largest = V::splat(largest.largest());
        let scale = V::splat(scale);

        let mut sums = [V::ZERO; 4];
        let mut at = 0;
        while at < length {
            for sum in &mut sums {
                if at < length {
                    let count = length - at;
                    let score = V::load(scores.add(in_blocks(at)));
                    let weight = exp(score.sub(largest).mul(scale));
                    let weight = if count < V::LANES {
                        weight.first_or(count, V::ZERO)
                    } else {
                        weight
                    };
                    weight.store_bf16(weights.add(at));
                    *sum = sum.add(weight);
                    at += V::LANES;
                }
            }
        }
        while at < length.next_multiple_of(STEP) {
            V::ZERO.store_bf16(weights.add(at));
            at += V::LANES;
        }
        total(sums)
    }
}

/// Where a row's element is, the row being spread over blocks of sums.
#[inline(always)]
fn in_blocks(at: usize) -> usize {
    at / TILES_COLUMNS * BLOCK + at % TILES_COLUMNS
}

/// Writes a row's sums, shared out, as bf16.
///
/// # Safety
/// `sums` has 32 elements, `out` has `columns`, at most 32.
#[inline(always)]
unsafe fn store_context<V: Simd>(sums: *const f32, share: f32, columns: usize, out: *mut u16) {
    // SAFETY: handed on to the caller; what is beyond the columns stays here.
    unsafe {
        let share = V::splat(share);
        for at in (0..columns).step_by(V::LANES) {
            let context = V::load(sums.add(at)).mul(share);
            if columns - at >= V::LANES {
                context.store_bf16(out.add(at));
            } else {
                let mut last = [0; TILES_COLUMNS];
                context.store_bf16(last.as_mut_ptr());
                out.add(at)
                    .copy_from_nonoverlapping(last.as_ptr(), columns - at);
            }
        }
    }
}
