//! Dense layers: `out = activation(rows · Wᵀ + bias) · factors`, or that added to `out`.
//!
//! The output is cut into tiles: a few rows by one panel of packed weights. Panels are the
//! outer loop and row tiles the inner one, so that a panel is read from memory once
//! for a block of rows. Rows are spread evenly over tiles: nine rows are five and four, not
//! eight and one.

use std::ops::Range;

use super::fork_join::Shared;
use super::operand::{Converted, Operand};
use super::{ForkJoin, Kernels, Packed, Precision, share};

/// Rows of a block take at most this many bytes, to stay in a core's own cache
/// while all panels pass by.
const BLOCK_BYTES: usize = 1 << 20;

/// The most rows of a block: their results share that cache.
const BLOCK_ROWS: usize = 512;

/// Rows that one lane turns into the next layer's operand in i8 before it computes more: their f32
/// results stay in its own cache, beside the weights that pass by.
const ONWARD_ROWS: usize = 96;

/// What is applied to each output of a dense layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x.
    #[default]
    Identity,
    /// x·Φ(x), Φ the normal distribution: the exact form, by the error function.
    Gelu,
    /// GELU's tanh form: ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// tanh x.
    Tanh,
    /// x/(1 + e^−x), also called swish.
    Silu,
}

/// What follows a dense layer's products: `activation(products + bias) · factors`, and the residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// One number an output; absent: none is added.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// One number an output, that the activation is multiplied by; absent: 1.
    pub factors: Option<&'a [f32]>,
    /// Whether all this is added to what the output holds, in place of it.
    pub residual: bool,
}

/// One dense layer over a batch. Each task writes only its own part of `out`.
pub(super) struct Linear<'a> {
    pub rows: Operand<'a>,
    pub weight: &'a Packed,
    pub epilogue: Epilogue<'a>,
    pub out: Out,
}

/// Where a dense layer's results go.
pub(super) enum Out {
    /// f32 rows, end to end.
    Rows(Shared<f32>),
    /// The left side of the next layer, in bf16.
    Operand(Converted),
}

impl Kernels {
    /// A dense layer: `out = activation(rows · Wᵀ + bias) · factors`, or `out +=` that, where `rows` are
    /// `[n][inputs]` and `out` is `[n][outputs]`, row-major.
    ///
    /// # Panics
    /// When a shape does not fit, or `rows` or `weight` are another class's or precision's.
    pub fn linear(
        &self,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        weight: &Packed,
        epilogue: Epilogue<'_>,
        out: &mut [f32],
    ) {
        let size = rows.rows() * weight.outputs();
        assert_eq!(out.len(), size, "out does not fit the rows");
        let out = Out::Rows(Shared(out.as_mut_ptr()));
        self.run_linear(
            team,
            &Linear {
                rows,
                weight,
                epilogue,
                out,
            },
        );
    }

    /// A dense layer whose results only go into the next one: `activation(rows · Wᵀ + bias) · factors`
    /// as that one's operand. It is made in `space` ([`Kernels::operand_size`]), by way of
    /// `out` where the precision takes [`Kernels::onward_size`] elements of it.
    ///
    /// # Panics
    /// As for [`Kernels::linear`], when `out` or `space` is too small, or when there is a residual.
    pub fn linear_onward<'a>(
        &self,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        weight: &Packed,
        epilogue: Epilogue<'_>,
        out: &'a mut [f32],
        space: &'a mut [f32],
    ) -> Operand<'a> {
        let (count, outputs) = (rows.rows(), weight.outputs());
        if self.precision == Precision::Bf16 {
            let layer = Linear {
                rows,
                weight,
                epilogue,
                out: Out::Operand(self.converted(space, count, outputs)),
            };
            self.run_linear(team, &layer);
            return self.operand(out, space, count, outputs);
        }
        assert!(!epilogue.residual, "what goes onward alone has no residual");
        if self.precision == Precision::F32 {
            let out = &mut out[..count * outputs];
            self.linear(team, rows, weight, epilogue, out);
            return self.operand(out, space, count, outputs);
        }
        // One lane converts results while they are near; several would meet after each few rows.
        let parts = if team.lanes() == 1 {
            count.div_ceil(ONWARD_ROWS)
        } else {
            1
        };
        let mut into = self.converted(space, count, outputs);
        for part in 0..parts {
            let part = share(count, parts, part);
            into.first = part.start;
            let out = &mut out[..part.len() * outputs];
            self.linear(team, rows.part(part.clone()), weight, epilogue, out);
            self.convert_into(team, out, &into);
        }
        self.operand(&[], space, count, outputs)
    }

    /// How many `f32` [`Kernels::linear_onward`] needs on the way for `rows` rows of `outputs`.
    pub fn onward_size(&self, rows: usize, outputs: usize) -> usize {
        match self.precision {
            Precision::Bf16 => 0,
            Precision::F32 | Precision::I8 => rows * outputs,
        }
    }

    fn run_linear(&self, team: &dyn ForkJoin, layer: &Linear<'_>) {
        let Linear {
            rows,
            weight,
            epilogue,
            ..
        } = layer;
        let count = rows.rows();
        let here = (self.class, self.precision);
        assert_eq!(
            (weight.class(), weight.precision()),
            here,
            "weights packed for other kernels"
        );
        assert_eq!(
            rows.precision(),
            self.precision,
            "rows of another precision"
        );
        assert_eq!(rows.width(), weight.inputs(), "rows of another width");
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), weight.outputs(), "one bias an output");
        }
        if let Some(factors) = epilogue.factors {
            assert_eq!(factors.len(), weight.outputs(), "one factor an output");
        }
        if count == 0 {
            return;
        }

        let grid = Grid::new(
            count.div_ceil(self.tile_rows),
            weight.panels(),
            count.div_ceil((BLOCK_BYTES / rows.stride()).clamp(self.tile_rows, BLOCK_ROWS)),
            team.lanes(),
        );
        team.run(grid.blocks * grid.groups, &|_, task| {
            let (tiles, panels) = grid.task(task);
            // SAFETY: the shapes were checked above and where `out` was made, this machine has
            // the class's instructions (`Kernels::of`), and tasks of a grid do not overlap.
            unsafe { (self.linear)(layer, tiles, panels) };
        });
    }
}

/// How a layer's tiles × panels are cut into tasks.
struct Grid {
    tiles: usize,
    panels: usize,
    /// Row tiles are cut into this many blocks …
    blocks: usize,
    /// … and panels into this many groups.
    groups: usize,
}

impl Grid {
    /// At least `blocks` blocks of rows, and as many tasks as keep all lanes busy to the end:
    /// first by cutting the panels, so that lanes share the reading of weights.
    fn new(tiles: usize, panels: usize, blocks: usize, lanes: usize) -> Grid {
        let wanted = if lanes == 1 { 1 } else { 4 * lanes };
        let groups = wanted.div_ceil(blocks).min(panels);
        Grid {
            tiles,
            panels,
            blocks: wanted.div_ceil(groups).max(blocks).min(tiles),
            groups,
        }
    }

    /// The tiles and panels of one task.
    fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        (
            share(self.tiles, self.blocks, task / self.groups),
            share(self.panels, self.groups, task % self.groups),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Grid;

    #[test]
    fn a_grid_covers_every_tile_of_every_panel_once() {
        for (tiles, panels, blocks, lanes) in [
            (1, 1, 1, 1),
            (1, 1, 1, 8),
            (1, 32, 1, 3),
            (64, 8, 1, 16),
            (64, 8, 5, 1),
            (7, 13, 2, 4),
            (100, 1, 3, 5),
        ] {
            let grid = Grid::new(tiles, panels, blocks, lanes);
            let mut seen = vec![0; tiles * panels];
            for task in 0..grid.blocks * grid.groups {
                let (tiles, columns) = grid.task(task);
                assert!(!tiles.is_empty() && !columns.is_empty());
                for tile in tiles {
                    for panel in columns.clone() {
                        seen[tile * panels + panel] += 1;
                    }
                }
            }
            assert!(seen.iter().all(|&times| times == 1));
            assert!(grid.blocks >= blocks);
        }
    }
}
