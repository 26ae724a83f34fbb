//! What is done to one row at a time: layer norm, and the embedding that opens a model.

use std::ops::Range;

use super::fork_join::Shared;
use super::operand::{Converted, Operand};
use super::{ForkJoin, Kernels, Precision, share};

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

/// The rows of a layer norm, in place. Each task writes only its own rows.
pub(super) struct Normed<'a> {
    pub rows: Shared<f32>,
    pub norm: Norm<'a>,
    /// Where the rows also go as the next dense layer's operand; absent: nowhere.
    pub into: Option<Converted>,
}

/// The rows of an embedding. Each task writes only its own rows.
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
    /// Normalises every row of `rows`, `[n][hidden]`, in place, and makes the next dense
    /// layer's operand of them in `space` ([`Kernels::operand_size`]); `hidden` is the gain's length.
    ///
    /// # Panics
    /// When a slice's length does not fit.
    pub fn layer_norm<'a>(
        &self,
        team: &dyn ForkJoin,
        rows: &'a mut [f32],
        norm: Norm<'_>,
        space: &'a mut [f32],
    ) -> Operand<'a> {
        norm.check();
        let hidden = norm.hidden();
        let count = rows.len() / hidden;
        assert_eq!(rows.len(), count * hidden, "rows are not whole");
        let normed = Normed {
            rows: Shared(rows.as_mut_ptr()),
            norm,
            into: self.into(space, count, hidden),
        };
        over_rows(team, count, |rows| {
            // SAFETY: the shapes were checked above, this machine has the class's
            // instructions (`Kernels::of`), and no row is given out twice.
            unsafe { (self.layer_norm)(&normed, rows) };
        });
        self.operand(rows, space, count, hidden)
    }

    /// Looks up each token and normalises: `out` is `[tokens][hidden]`, a row being the
    /// layer norm of `words[id] + kind + places[position]`. The operand is made as by
    /// [`Kernels::layer_norm`].
    ///
    /// # Panics
    /// When a slice's length does not fit, or an id or position is beyond its table.
    #[allow(clippy::too_many_arguments)] // What goes in, and the two places it goes to.
    pub fn embed<'a>(
        &self,
        team: &dyn ForkJoin,
        ids: &[u32],
        positions: &[u32],
        tables: Embedding<'_>,
        norm: Norm<'_>,
        out: &'a mut [f32],
        space: &'a mut [f32],
    ) -> Operand<'a> {
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
                into: self.into(space, ids.len(), hidden),
            },
        };
        over_rows(team, ids.len(), |rows| {
            // SAFETY: as for `layer_norm`; ids and positions are within their tables.
            unsafe { (self.embed)(&embedded, rows) };
        });
        self.operand(out, space, ids.len(), hidden)
    }

    /// Where the operand of f32 rows goes; nowhere in f32.
    fn into(&self, space: &mut [f32], rows: usize, width: usize) -> Option<Converted> {
        (self.precision != Precision::F32).then(|| self.converted(space, rows, width))
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
pub(super) fn over_rows(team: &dyn ForkJoin, count: usize, work: impl Fn(Range<usize>) + Sync) {
    let tasks = match team.lanes() {
        1 => count.min(1),
        lanes => count.div_ceil(ROWS_A_TASK).min(4 * lanes),
    };
    team.run(tasks, &|_, task| work(share(count, tasks, task)));
}
