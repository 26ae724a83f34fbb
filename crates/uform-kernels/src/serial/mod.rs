//! `serial`: plain loops, no instruction set assumed. The yardstick of the other classes.
//!
//! Independent of the vector code but for the curves' coefficients. The inner loops run
//! over neighbouring outputs, each with its own sum, so that a compiler can put
//! them in vectors without reordering a sum.

use std::ops::Range;

mod attention_bf16;
mod tiles;

use super::attention::{Attention, AttentionTask};
use super::coefficients::{
    EXP, EXP_LIMIT, GELU, GELU_BF16, GELU_BF16_LIMIT, GELU_BF16_SCALE, GELU_LIMIT, GELU_SCALE,
    GELU_TANH_CUBIC, GELU_TANH_INNER, LN_2_HIGH, LN_2_LOW, LOG2_E, ROUNDER,
};
use super::linear::{Activation, Linear, Out};
use super::operand::{Conversion, Converted};
use super::packed::TILES_COLUMNS;
use super::precision::{I8_MAXIMA, i8_row, to_bf16, to_i8};
use super::rows::{Embedded, Norm, Normed};
use super::{Kernels, Precision};
use crate::cpu::CpuClass;

/// Outputs whose sums are kept side by side.
const COLUMNS: usize = 16;

const TABLE: Kernels = Kernels {
    class: CpuClass::Serial,
    precision: Precision::F32,
    runs_here: || true,
    tile_rows: 1,
    panel_columns: COLUMNS,
    linear,
    layer_norm,
    embed,
    convert,
    query_rows: 1,
    attention,
    attention_scratch,
};

pub(super) static F32: Kernels = TABLE;
pub(super) static BF16: Kernels = Kernels {
    precision: Precision::Bf16,
    panel_columns: TILES_COLUMNS,
    linear: tiles::linear_bf16,
    attention: attention_bf16::attention_bf16,
    attention_scratch: attention_bf16::scratch,
    ..TABLE
};
pub(super) static I8: Kernels = Kernels {
    precision: Precision::I8,
    panel_columns: TILES_COLUMNS,
    linear: tiles::linear_i8,
    ..TABLE
};

/// `a·b + c`: rounded once where the target has an instruction for it.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

/// # Safety
/// As stated at [`Kernels`]; a tile is one row.
unsafe fn linear(layer: &Linear<'_>, rows: Range<usize>, panels: Range<usize>) {
    for panel in panels {
        for row in rows.clone() {
            // SAFETY: handed on to the caller.
            unsafe { linear_row(layer, row, panel) };
        }
    }
}

/// One row by one panel.
///
/// # Safety
/// The slices fit each other, and no other thread touches this part of `out`.
unsafe fn linear_row(layer: &Linear<'_>, row: usize, panel: usize) {
    let inputs = layer.weight.inputs();
    let mut sums = [0.0; COLUMNS];
    let (weights, _) = layer.weight.panel(panel).as_chunks::<COLUMNS>();
    for (factor, weights) in layer.rows.floats()[row * inputs..].iter().zip(weights) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = multiply_add(*factor, *weight, *sum);
        }
    }
    // SAFETY: handed on to the caller.
    unsafe { finish(layer, row, panel * COLUMNS, &mut sums) };
}

/// Bias, activation and residual of a row's sums from `column` on, and their place in `out`.
///
/// # Safety
/// As for [`linear_row`].
unsafe fn finish(layer: &Linear<'_>, row: usize, column: usize, sums: &mut [f32]) {
    let outputs = layer.weight.outputs();
    let columns = sums.len().min(outputs - column);
    let at = row * outputs + column;
    if let Some(bias) = layer.epilogue.bias {
        add(sums, &bias[column..][..columns]);
    }
    activate(layer.epilogue.activation, layer.weight.precision(), sums);
    if let Some(factors) = layer.epilogue.factors {
        for (sum, factor) in sums.iter_mut().zip(&factors[column..][..columns]) {
            *sum *= factor;
        }
    }
    match &layer.out {
        Out::Rows(out) => {
            // SAFETY: these elements of `out` are this task's.
            let out = unsafe { out.slice(at, columns) };
            if layer.epilogue.residual {
                add(sums, out);
            }
            out.copy_from_slice(&sums[..columns]);
        }
        Out::Operand(operand) => {
            // SAFETY: as above; a panel's padding is within the row's.
            let out = unsafe {
                let row = operand.row(row).cast::<u16>().add(column);
                std::slice::from_raw_parts_mut(row, sums.len())
            };
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = to_bf16(*sum);
            }
        }
    }
}

/// Adds as many as `more` has.
fn add(values: &mut [f32], more: &[f32]) {
    for (value, more) in values.iter_mut().zip(more) {
        *value += more;
    }
}

fn activate(activation: Activation, precision: Precision, values: &mut [f32]) {
    match activation {
        Activation::Identity => {}
        Activation::Gelu if precision != Precision::F32 => apply(values, |x| {
            gelu(x, GELU_BF16_LIMIT, GELU_BF16_SCALE, &GELU_BF16)
        }),
        Activation::Gelu => apply(values, |x| gelu(x, GELU_LIMIT, GELU_SCALE, &GELU)),
        Activation::GeluTanh => apply(values, gelu_tanh),
        Activation::Relu => apply(values, relu),
        Activation::Tanh => apply(values, tanh),
        Activation::Silu => apply(values, silu),
    }
}

fn apply(values: &mut [f32], curve: impl Fn(f32) -> f32) {
    for value in values {
        *value = curve(*value);
    }
}

/// `x` held to ±`limit`; NaN stays NaN. It is asked for, since a compiler that may use WebAssembly's
/// relaxed SIMD turns comparisons into an instruction that loses it.
fn hold(x: f32, limit: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let x = if x < -limit { -limit } else { x };
    if x > limit { limit } else { x }
}

/// `Σ coefficients[i]·xⁱ`.
fn horner<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let (rest, last) = coefficients.split_at(N - 1);
    rest.iter()
        .rev()
        .fold(last[0], |value, next| multiply_add(value, x, *next))
}

/// e^x as `(p, scale)` with e^x = scale·(1 + p): x = n·ln 2 + r, scale = 2ⁿ, p = e^r − 1.
fn exp_parts(x: f32) -> (f32, f32) {
    let x = hold(x, EXP_LIMIT);
    let shifted = multiply_add(x, LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add(n, -LN_2_LOW, multiply_add(n, -LN_2_HIGH, x));
    let p = multiply_add(r * r, horner(&EXP, r), r);
    (p, f32::from_bits(shifted.to_bits() << 23))
}

fn exp(x: f32) -> f32 {
    let (p, scale) = exp_parts(x);
    multiply_add(p, scale, scale)
}

fn gelu<const N: usize>(x: f32, limit: f32, scale: f32, terms: &[f32; N]) -> f32 {
    let held = hold(x, limit);
    let u = multiply_add(held * held, scale, -1.0);
    let x = if x < held { held } else { x };
    x * multiply_add(held, horner(terms, u), 0.5)
}

fn gelu_tanh(x: f32) -> f32 {
    let z = GELU_TANH_INNER * (x + GELU_TANH_CUBIC * x * x * x);
    x / (1.0 + exp(-2.0 * z))
}

fn relu(x: f32) -> f32 {
    // As for `hold`.
    if x.is_nan() {
        return x;
    }
    if x < 0.0 { 0.0 } else { x }
}

fn tanh(x: f32) -> f32 {
    let (p, scale) = exp_parts(2.0 * x);
    let less_one = multiply_add(p, scale, scale - 1.0);
    less_one / (less_one + 2.0)
}

fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// # Safety
/// As stated at [`Kernels`].
unsafe fn layer_norm(normed: &Normed<'_>, rows: Range<usize>) {
    let hidden = normed.norm.hidden();
    for row in rows {
        // SAFETY: the row is within the batch and this task's alone.
        let values =
            unsafe { std::slice::from_raw_parts_mut(normed.rows.at(row * hidden), hidden) };
        normalise(values, &normed.norm);
        if let Some(into) = &normed.into {
            // SAFETY: handed on to the caller.
            unsafe { convert_row(values, into, row) };
        }
    }
}

/// # Safety
/// As stated at [`Kernels`].
unsafe fn convert(conversion: &Conversion<'_>, rows: Range<usize>) {
    let width = conversion.into.form.width;
    for row in rows {
        let values = &conversion.from[row * width..][..width];
        // SAFETY: handed on to the caller.
        unsafe { convert_row(values, conversion.into, row) };
    }
}

/// One row as an operand.
///
/// # Safety
/// The row is within the batch, and the caller's own.
unsafe fn convert_row(values: &[f32], into: &Converted, row: usize) {
    let stride = into.form.stride();
    // SAFETY: handed on to the caller; a row has `stride` bytes.
    let out = unsafe { std::slice::from_raw_parts_mut(into.row(row), stride) };
    match into.form.precision {
        Precision::F32 => unreachable!("f32 rows are multiplied as they lie"),
        Precision::Bf16 => {
            let out = bytemuck::cast_slice_mut::<u8, u16>(out);
            let (numbers, padding) = out.split_at_mut(values.len());
            for (number, value) in numbers.iter_mut().zip(values) {
                *number = to_bf16(*value);
            }
            padding.fill(0);
        }
        Precision::I8 => {
            let mut maxima = [0; I8_MAXIMA];
            for (place, value) in values.iter().enumerate() {
                let maximum = &mut maxima[place % I8_MAXIMA];
                *maximum = value.abs().to_bits().max(*maximum);
            }
            let (tail, factor) = i8_row(values, maxima);
            // SAFETY: as above; there is one tail a row.
            unsafe { *into.tail(row) = tail };
            let (numbers, padding) = out.split_at_mut(values.len());
            for (number, value) in numbers.iter_mut().zip(values) {
                *number = to_i8(*value, factor) as u8;
            }
            for apart in tail.apart() {
                numbers[apart.input as usize] = 0;
            }
            padding.fill(0);
        }
    }
}

/// # Safety
/// As stated at [`Kernels`].
unsafe fn embed(embedded: &Embedded<'_>, rows: Range<usize>) {
    let norm = &embedded.normed.norm;
    let (hidden, tables) = (norm.hidden(), &embedded.tables);
    for row in rows {
        // SAFETY: the row is within the batch and this task's alone.
        let values = unsafe {
            std::slice::from_raw_parts_mut(embedded.normed.rows.at(row * hidden), hidden)
        };
        values.copy_from_slice(&tables.words[embedded.ids[row] as usize * hidden..][..hidden]);
        add(values, tables.kind);
        let place = embedded.positions[row] as usize * hidden;
        add(values, &tables.places[place..][..hidden]);
        normalise(values, norm);
        if let Some(into) = &embedded.normed.into {
            // SAFETY: handed on to the caller.
            unsafe { convert_row(values, into, row) };
        }
    }
}

fn normalise(values: &mut [f32], norm: &Norm<'_>) {
    let length = values.len() as f32;
    let mean = sum(values, |value| value) / length;
    let variance = sum(values, |value| (value - mean) * (value - mean)) / length;
    let scale = 1.0 / (variance + norm.epsilon).sqrt();
    for ((value, gain), bias) in values.iter_mut().zip(norm.gain).zip(norm.bias) {
        *value = multiply_add(*value - mean, gain * scale, *bias);
    }
}

/// The sum of `term` over all values, by [`COLUMNS`] sums side by side.
fn sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<COLUMNS>();
    let mut sums = [0.0; COLUMNS];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += term(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += term(*value);
    }
    sums.iter().sum()
}

/// A head's keys transposed, and one query's scores.
fn attention_scratch(longest: usize, head_size: usize) -> usize {
    longest * head_size + longest
}

/// # Safety
/// As stated at [`Kernels`]; a tile is one query.
unsafe fn attention(job: &Attention<'_>, task: &AttentionTask, scratch: *mut f32) {
    if task.tiles.is_empty() {
        return;
    }
    let (hidden, length) = (job.hidden, task.length);
    let head_size = hidden / job.heads;
    let scale = 1.0 / (head_size as f32).sqrt();
    // SAFETY: the caller keeps this much scratch for this lane.
    let scratch =
        unsafe { std::slice::from_raw_parts_mut(scratch, attention_scratch(length, head_size)) };
    let (keys, scores) = scratch.split_at_mut(length * head_size);
    let part = |token: usize, part: usize, head: usize| {
        let at = (3 * (task.first + token) + part) * hidden + head * head_size;
        &job.qkv[at..][..head_size]
    };

    for head in task.heads.clone() {
        for token in 0..length {
            for (column, value) in part(token, 1, head).iter().enumerate() {
                keys[column * length + token] = *value;
            }
        }
        for query in task.tiles.clone() {
            scores.fill(0.0);
            for (factor, keys) in part(query, 0, head).iter().zip(keys.chunks_exact(length)) {
                for (score, key) in scores.iter_mut().zip(keys) {
                    *score = multiply_add(*factor, *key, *score);
                }
            }
            let total = softmax(scores, scale);
            let at = (task.first + query) * hidden + head * head_size;
            // SAFETY: this query's elements of this head are this task's alone.
            let out = unsafe { std::slice::from_raw_parts_mut(job.out.at(at), head_size) };
            out.fill(0.0);
            for (token, weight) in scores.iter().enumerate() {
                for (out, value) in out.iter_mut().zip(part(token, 2, head)) {
                    *out = multiply_add(*weight, *value, *out);
                }
            }
            let share = 1.0 / total;
            for out in out {
                *out *= share;
            }
        }
    }
}

/// Replaces scores s by e^(scale·(s − the largest)), and returns their sum.
fn softmax(scores: &mut [f32], scale: f32) -> f32 {
    let largest = scores.iter().fold(
        f32::NEG_INFINITY,
        |most, &score| if most > score { most } else { score },
    );
    for score in scores.iter_mut() {
        *score = exp((*score - largest) * scale);
    }
    sum(scores, |weight| weight)
}
