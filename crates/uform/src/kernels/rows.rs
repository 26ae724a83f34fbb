//! What is done to one row at a time: layer norm, and the embedding that opens a model.

use std::ops::Range;

use super::fork_join::Shared;
use super::linear::{load_up_to, store_up_to};
use super::simd::Simd;
use super::{ForkJoin, Kernels, share};

/// Rows that are not worth cutting into more tasks.
const ROWS_A_TASK: usize = 8;

/// A layer norm: `gain·(x − mean)/√(variance + epsilon) + bias`, mean and variance (divided
/// by n) those of the row (Ba, Kiros and Hinton, 2016).
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// One factor an element of a row.
    pub gain: &'a [f32],
    /// One number an element of a row.
    pub bias: &'a [f32],
    /// Keeps the root away from zero.
    pub epsilon: f32,
}

/// The tables whose rows make up a token's first vector.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    /// `[vocabulary][hidden]`, by token id.
    pub words: &'a [f32],
    /// `[positions][hidden]`, by the token's position in its text.
    pub places: &'a [f32],
    /// `[hidden]`: the row of the one token type there is here, 0.
    pub kind: &'a [f32],
}

/// The rows of a layer norm, in place. Whoever holds it may write to its own rows.
pub(super) struct Normed<'a> {
    pub rows: Shared<f32>,
    pub norm: Norm<'a>,
}

/// The rows of an embedding. Whoever holds it may write to its own rows.
pub(super) struct Embedded<'a> {
    pub ids: &'a [u32],
    pub positions: &'a [u32],
    pub tables: Embedding<'a>,
    pub normed: Normed<'a>,
}

impl Norm<'_> {
    /// Length of a row.
    pub(super) fn hidden(&self) -> usize {
        self.gain.len()
    }

    fn check(&self) {
        assert!(!self.gain.is_empty(), "a norm is over at least one element");
        assert_eq!(self.bias.len(), self.gain.len(), "one bias a gain");
    }
}

impl Kernels {
    /// Normalises every row of `rows`, `[n][hidden]`, in place; `hidden` is the gain's length.
    ///
    /// # Panics
    /// When a slice's length does not fit.
    pub fn layer_norm(&self, team: &dyn ForkJoin, rows: &mut [f32], norm: Norm<'_>) {
        norm.check();
        let count = rows.len() / norm.hidden();
        assert_eq!(rows.len(), count * norm.hidden(), "rows are not whole");
        let normed = Normed {
            rows: Shared(rows.as_mut_ptr()),
            norm,
        };
        over_rows(team, count, |rows| {
            // SAFETY: the shapes were checked above, this machine has the class's
            // instructions (`Kernels::of`), and no row is given out twice.
            unsafe { (self.layer_norm)(&normed, rows) };
        });
    }

    /// Looks up each token and normalises: `out` is `[tokens][hidden]`, a row being the
    /// layer norm of `words[id] + kind + places[position]`.
    ///
    /// # Panics
    /// When a slice's length does not fit, or an id or position is beyond its table.
    pub fn embed(
        &self,
        team: &dyn ForkJoin,
        ids: &[u32],
        positions: &[u32],
        tables: Embedding<'_>,
        norm: Norm<'_>,
        out: &mut [f32],
    ) {
        norm.check();
        let hidden = norm.hidden();
        assert_eq!(positions.len(), ids.len(), "one position a token");
        assert_eq!(
            tables.kind.len(),
            hidden,
            "the token type's row does not fit"
        );
        assert_eq!(out.len(), ids.len() * hidden, "out does not fit the tokens");
        check_within("token id", ids, tables.words.len() / hidden);
        check_within("position", positions, tables.places.len() / hidden);
        let embedded = Embedded {
            ids,
            positions,
            tables,
            normed: Normed {
                rows: Shared(out.as_mut_ptr()),
                norm,
            },
        };
        over_rows(team, ids.len(), |rows| {
            // SAFETY: as for `layer_norm`; ids and positions are within their tables.
            unsafe { (self.embed)(&embedded, rows) };
        });
    }
}

/// Panics with both numbers when an index is beyond its table.
fn check_within(what: &str, indexes: &[u32], rows: usize) {
    for &index in indexes {
        assert!(
            (index as usize) < rows,
            "{what} {index} is beyond a table of {rows} rows"
        );
    }
}

/// Shares out `count` rows.
fn over_rows(team: &dyn ForkJoin, count: usize, work: impl Fn(Range<usize>) + Sync) {
    let pieces = match team.lanes() {
        1 => count.min(1),
        lanes => count.div_ceil(ROWS_A_TASK).min(4 * lanes),
    };
    team.run(pieces, &|_, piece| work(share(count, pieces, piece)));
}

/// Layer norm of the given rows.
///
/// # Safety
/// The CPU has the class's instructions, the rows are within the batch, and nobody else
/// touches them.
#[inline(always)]
pub(super) unsafe fn layer_norm<V: Simd>(normed: &Normed<'_>, rows: Range<usize>) {
    for row in rows {
        // SAFETY: the row is within the batch and this task's alone.
        unsafe { normalise::<V>(normed.rows.at(row * normed.norm.hidden()), &normed.norm) };
    }
}

/// Embedding of the given tokens.
///
/// # Safety
/// As for [`layer_norm`]; ids and positions are within their tables.
#[inline(always)]
pub(super) unsafe fn embed<V: Simd>(embedded: &Embedded<'_>, rows: Range<usize>) {
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
            normalise::<V>(out, &embedded.normed.norm);
        }
    }
}

/// Layer norm of one row, in place: three passes while it is in the nearest cache.
///
/// # Safety
/// The CPU has the class's instructions; `row` has the norm's length and no other user.
#[inline(always)]
unsafe fn normalise<V: Simd>(row: *mut f32, norm: &Norm<'_>) {
    let hidden = norm.hidden();
    // SAFETY: `count` elements from `at` on are within the row, the gain and the bias.
    unsafe {
        let zero = V::splat(0.0);
        let mut sums = [zero; 4];
        let mut at = 0;
        while at < hidden {
            for sum in &mut sums {
                if at < hidden {
                    let count = V::LANES.min(hidden - at);
                    *sum = sum.add(load_up_to(row.add(at), count));
                    at += V::LANES;
                }
            }
        }
        let mean = V::splat(total(sums) / hidden as f32);

        let mut squares = [zero; 4];
        let mut at = 0;
        while at < hidden {
            for square in &mut squares {
                if at < hidden {
                    let count = V::LANES.min(hidden - at);
                    let off = load_up_to::<V>(row.add(at), count).sub(mean);
                    let off = off.first_or(count, zero);
                    *square = off.fma(off, *square);
                    at += V::LANES;
                }
            }
        }
        let variance = total(squares) / hidden as f32;
        let scale = V::splat(1.0 / (variance + norm.epsilon).sqrt());

        for at in (0..hidden).step_by(V::LANES) {
            let count = V::LANES.min(hidden - at);
            let gain = load_up_to::<V>(norm.gain.as_ptr().add(at), count).mul(scale);
            let bias = load_up_to(norm.bias.as_ptr().add(at), count);
            let off = load_up_to::<V>(row.add(at), count).sub(mean);
            store_up_to(off.fma(gain, bias), row.add(at), count);
        }
    }
}

/// The sum over four vectors.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
pub(super) unsafe fn total<V: Simd>(sums: [V; 4]) -> f32 {
    // SAFETY: handed on to the caller.
    unsafe { sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum() }
}
