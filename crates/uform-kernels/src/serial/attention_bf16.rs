//! Attention in bf16, the way the module `precision` writes it down.

use super::softmax;
use super::tiles::{SIDE, parts};
use crate::attention::{Attention, AttentionTask};
use crate::precision::to_bf16;

/// Numbers of a step.
const STEP: usize = 2 * SIDE;

/// One query's scores, and its weights after rounding.
pub(super) fn scratch(longest: usize, _head_size: usize) -> usize {
    2 * longest
}

/// # Safety
/// As stated at [`Kernels`](crate::Kernels); a tile is one query.
pub(super) unsafe fn attention_bf16(job: &Attention<'_>, task: &AttentionTask, space: *mut f32) {
    if task.tiles.is_empty() {
        return;
    }
    let (hidden, length) = (job.hidden, task.length);
    let head_size = hidden / job.heads;
    let scale = 1.0 / (head_size as f32).sqrt();
    let (from_stride, to_stride) = job.bf16_strides();
    // SAFETY: the caller keeps this much scratch for this lane.
    let space = unsafe { std::slice::from_raw_parts_mut(space, scratch(length, head_size)) };
    let (scores, weights) = space.split_at_mut(length);
    let rows: &[u16] = bytemuck::cast_slice(job.qkv);
    let number = |token: usize, column: usize| {
        widened(rows[2 * (task.first + token) * from_stride + column])
    };
    for head in task.heads.clone() {
        let first = head * head_size;
        for query in task.tiles.clone() {
            for (key, score) in scores.iter_mut().enumerate() {
                *score = dot(head_size, |column| {
                    let left = number(query, first + column);
                    (left, number(key, hidden + first + column))
                });
            }
            let share = 1.0 / softmax(scores, scale);
            for (weight, score) in weights.iter_mut().zip(&*scores) {
                *weight = widened(to_bf16(*score));
            }
            let at = (task.first + query) * to_stride;
            // SAFETY: this query's elements of this head are this task's alone, and the row's
            // padding the last head's.
            let out = unsafe {
                let row = job.out.at(at).cast::<u16>();
                if head + 1 == job.heads {
                    row.add(hidden).write_bytes(0, 2 * to_stride - hidden);
                }
                std::slice::from_raw_parts_mut(row.add(first), head_size)
            };
            for (column, out) in out.iter_mut().enumerate() {
                let sum = dot(length, |key| {
                    (weights[key], number(key, 2 * hidden + first + column))
                });
                *out = to_bf16(sum * share);
            }
        }
    }
}

/// The sum of `count` products of bf16 numbers.
fn dot(count: usize, factors: impl Fn(usize) -> (f32, f32)) -> f32 {
    let mut sum = 0.0;
    for first in (0..count).step_by(STEP) {
        let mut step = [0.0; 2];
        for at in first..count.min(first + STEP) {
            let (left, right) = factors(at);
            // A product of two bf16 numbers is exact in f32.
            step[at % 2] += left * right;
        }
        sum += step[0] + step[1];
    }
    sum
}

/// A bf16 number.
fn widened(number: u16) -> f32 {
    parts(u32::from(number)).0
}
