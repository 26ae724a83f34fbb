//! Dense layers on matrix tiles, the way the module `precision` writes them down.

use std::ops::Range;

use super::finish;
use crate::linear::Linear;
use crate::operand::Apart;
use crate::packed::TILES_COLUMNS;

/// Groups to a step, and outputs to a half of a panel.
pub(super) const SIDE: usize = 16;

/// # Safety
/// As stated at [`Kernels`](crate::Kernels); a tile is one row.
pub(super) unsafe fn linear_bf16(layer: &Linear<'_>, rows: Range<usize>, panels: Range<usize>) {
    for panel in panels {
        for row in rows.clone() {
            let mut sums = products_bf16(layer, row, panel);
            // SAFETY: handed on to the caller.
            unsafe { finish(layer, row, panel * TILES_COLUMNS, &mut sums) };
        }
    }
}

/// The sums of one row by one panel.
fn products_bf16(layer: &Linear<'_>, row: usize, panel: usize) -> [f32; TILES_COLUMNS] {
    let mut sums = [0.0; TILES_COLUMNS];
    let (rows, _) = layer.rows.groups(row).as_chunks::<SIDE>();
    let (steps, _) = layer
        .weight
        .tiles(panel)
        .as_chunks::<{ SIDE * TILES_COLUMNS }>();
    for (factors, step) in rows.iter().zip(steps) {
        let (halves, _) = step.as_chunks::<{ SIDE * SIDE }>();
        for (half, sums) in halves.iter().zip(sums.chunks_exact_mut(SIDE)) {
            let (mut even, mut odd) = ([0.0; SIDE], [0.0; SIDE]);
            let (pairs, _) = half.as_chunks::<SIDE>();
            for (factor, weights) in factors.iter().zip(pairs) {
                let factor = parts(*factor);
                for (column, weight) in weights.iter().enumerate() {
                    let weight = parts(*weight);
                    // A product of two bf16 numbers is exact in f32.
                    even[column] += factor.0 * weight.0;
                    odd[column] += factor.1 * weight.1;
                }
            }
            for (sum, (even, odd)) in sums.iter_mut().zip(even.iter().zip(&odd)) {
                *sum += even + odd;
            }
        }
    }
    sums
}

/// The two numbers of a group: the even input's and the odd one's.
pub(super) fn parts(group: u32) -> (f32, f32) {
    (
        f32::from_bits(group << 16),
        f32::from_bits(group & 0xffff_0000),
    )
}

/// # Safety
/// As stated at [`Kernels`](crate::Kernels); a tile is one row.
pub(super) unsafe fn linear_i8(layer: &Linear<'_>, rows: Range<usize>, panels: Range<usize>) {
    for panel in panels {
        let first = panel * TILES_COLUMNS;
        for row in rows.clone() {
            let tail = &layer.rows.tails()[row];
            let mut values = [0.0; TILES_COLUMNS];
            let mut sums = products_i8(layer, row, panel);
            for apart in tail.apart() {
                add_products_i8(layer, apart, panel, &mut sums);
            }
            let scales = &layer.weight.scales()[first..];
            for ((value, sum), scale) in values.iter_mut().zip(sums).zip(scales) {
                *value = sum as f32 * (tail.scale * scale);
            }
            // SAFETY: handed on to the caller.
            unsafe { finish(layer, row, first, &mut values) };
        }
    }
}

/// The sums of one row by one panel.
fn products_i8(layer: &Linear<'_>, row: usize, panel: usize) -> [i32; TILES_COLUMNS] {
    let mut sums = [0; TILES_COLUMNS];
    let (rows, _) = layer.rows.groups(row).as_chunks::<SIDE>();
    let (steps, _) = layer
        .weight
        .tiles(panel)
        .as_chunks::<{ SIDE * TILES_COLUMNS }>();
    for (factors, step) in rows.iter().zip(steps) {
        let (halves, _) = step.as_chunks::<{ SIDE * SIDE }>();
        for (half, sums) in halves.iter().zip(sums.chunks_exact_mut(SIDE)) {
            let (fours, _) = half.as_chunks::<SIDE>();
            for (factor, weights) in factors.iter().zip(fours) {
                let factors = factor.to_le_bytes().map(|byte| i32::from(byte as i8));
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    let weights = weight.to_le_bytes().map(|byte| i32::from(byte as i8));
                    let products = factors.iter().zip(weights).map(|(a, b)| a * b);
                    *sum += products.sum::<i32>();
                }
            }
        }
    }
    sums
}

/// Adds the products of a number kept apart.
fn add_products_i8(
    layer: &Linear<'_>,
    apart: &Apart,
    panel: usize,
    sums: &mut [i32; TILES_COLUMNS],
) {
    let (group, byte) = (apart.input as usize / 4, apart.input as usize % 4);
    let step = &layer.weight.tiles(panel)[group / SIDE * SIDE * TILES_COLUMNS..];
    for (column, sum) in sums.iter_mut().enumerate() {
        let half = &step[column / SIDE * SIDE * SIDE..];
        let weights = half[group % SIDE * SIDE + column % SIDE].to_le_bytes();
        *sum += apart.number * i32::from(weights[byte] as i8);
    }
}
