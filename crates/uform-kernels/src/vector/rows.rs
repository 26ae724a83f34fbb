//! Layer norm and embedding on vectors.

use std::ops::Range;

use super::convert::convert_row;
use super::{Simd, load_up_to, store_up_to, total};
use crate::rows::{Embedded, Norm, Normed};

/// Layer norm of the given rows.
///
/// # Safety
/// The CPU has the class's instructions, the rows are within the batch, and no other thread
/// touches them.
#[inline(always)]
pub(crate) unsafe fn layer_norm<V: Simd>(normed: &Normed<'_>, rows: Range<usize>) {
    let mut row = rows.start;
    // SAFETY: the rows are within the batch and this task's alone.
    unsafe {
        while row + 1 < rows.end {
            finish::<V, 2>(normed, [row, row + 1]);
            row += 2;
        }
        if row < rows.end {
            finish::<V, 1>(normed, [row]);
        }
    }
}

/// Layer norm of a few rows, in place and to where their operands go.
///
/// # Safety
/// As for [`layer_norm`].
#[inline(always)]
unsafe fn finish<V: Simd, const ROWS: usize>(normed: &Normed<'_>, rows: [usize; ROWS]) {
    // SAFETY: handed on to the caller.
    unsafe {
        let mut values = [std::ptr::null_mut(); ROWS];
        for (values, row) in values.iter_mut().zip(rows) {
            *values = normed.rows.at(row * normed.norm.hidden());
        }
        match normed.norm.hidden().is_multiple_of(V::LANES) {
            true => normalise::<V, ROWS, true>(values, &normed.norm),
            false => normalise::<V, ROWS, false>(values, &normed.norm),
        }
        if let Some(into) = &normed.into {
            for (values, row) in values.into_iter().zip(rows) {
                convert_row::<V>(values, into, row);
            }
        }
    }
}

/// Embedding of the given tokens.
///
/// # Safety
/// As for [`layer_norm`]; ids and positions are within their tables.
#[inline(always)]
pub(crate) unsafe fn embed<V: Simd>(embedded: &Embedded<'_>, rows: Range<usize>) {
    let hidden = embedded.normed.norm.hidden();
    let tables = &embedded.tables;
    for row in rows {
        let word = embedded.ids[row] as usize * hidden;
        let place = embedded.positions[row] as usize * hidden;
        // SAFETY: the caller vouches for the tables; `count` elements from `at` on are within
        // a row of each of them, and of `out`.
        unsafe {
            let out = embedded.normed.rows.at(row * hidden);
            for at in (0..hidden).step_by(V::LANES) {
                let count = V::LANES.min(hidden - at);
                let sum = load_up_to::<V>(tables.words.as_ptr().add(word + at), count)
                    .add(load_up_to(tables.kind.as_ptr().add(at), count))
                    .add(load_up_to(tables.places.as_ptr().add(place + at), count));
                store_up_to(sum, out.add(at), count);
            }
            finish::<V, 1>(&embedded.normed, [row]);
        }
    }
}

/// Layer norm of a few rows, in place: three passes while they are in the nearest cache. A row waits
/// for its sums, which have one order; so two take turns.
///
/// # Safety
/// The CPU has the class's instructions; each row has the norm's length, of `WHOLE` vectors or not,
/// and no other user.
#[inline(always)]
unsafe fn normalise<V: Simd, const ROWS: usize, const WHOLE: bool>(
    rows: [*mut f32; ROWS],
    norm: &Norm<'_>,
) {
    let hidden = norm.hidden();
    // SAFETY: `count` elements from `at` on are within the rows, the gain and the bias.
    unsafe {
        let zero = V::splat(0.0);
        let mut sums = [[zero; ROWS]; 4];
        let mut at = 0;
        while at < hidden {
            for sums in &mut sums {
                if at < hidden {
                    let count = width::<V, WHOLE>(hidden - at);
                    for (sum, row) in sums.iter_mut().zip(rows) {
                        *sum = sum.add(load_up_to(row.add(at), count));
                    }
                    at += V::LANES;
                }
            }
        }
        let mut means = [zero; ROWS];
        for (place, mean) in means.iter_mut().enumerate() {
            *mean = V::splat(total(column(&sums, place)) / hidden as f32);
        }

        let mut squares = [[zero; ROWS]; 4];
        let mut at = 0;
        while at < hidden {
            for squares in &mut squares {
                if at < hidden {
                    let count = width::<V, WHOLE>(hidden - at);
                    for (place, square) in squares.iter_mut().enumerate() {
                        let off = load_up_to::<V>(rows[place].add(at), count).sub(means[place]);
                        let off = if WHOLE {
                            off
                        } else {
                            off.first_or(count, zero)
                        };
                        *square = off.fma(off, *square);
                    }
                    at += V::LANES;
                }
            }
        }
        let mut scales = [zero; ROWS];
        for (place, scale) in scales.iter_mut().enumerate() {
            let variance = total(column(&squares, place)) / hidden as f32;
            *scale = V::splat(1.0 / (variance + norm.epsilon).sqrt());
        }

        for at in (0..hidden).step_by(V::LANES) {
            let count = width::<V, WHOLE>(hidden - at);
            let gain = load_up_to::<V>(norm.gain.as_ptr().add(at), count);
            let bias = load_up_to(norm.bias.as_ptr().add(at), count);
            for (place, row) in rows.into_iter().enumerate() {
                let off = load_up_to::<V>(row.add(at), count).sub(means[place]);
                let value = off.fma(gain.mul(scales[place]), bias);
                store_up_to(value, row.add(at), count);
            }
        }
    }
}

/// Elements of the next vector of a row with so many left.
#[inline(always)]
fn width<V: Simd, const WHOLE: bool>(left: usize) -> usize {
    if WHOLE { V::LANES } else { V::LANES.min(left) }
}

/// One row's four sums.
#[inline(always)]
fn column<V: Copy, const ROWS: usize>(sums: &[[V; ROWS]; 4], place: usize) -> [V; 4] {
    [
        sums[0][place],
        sums[1][place],
        sums[2][place],
        sums[3][place],
    ]
}
