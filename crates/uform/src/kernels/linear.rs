//! Dense layers: `out = activation(rows · Wᵀ + bias) + residual`.
//!
//! The output is cut into tiles: a few rows by one panel of packed weights. Panels are the
//! outer loop and row tiles the inner one, so that a panel is read from memory once
//! for a block of rows. Rows are spread evenly over tiles: nine rows are five and four, not
//! eight and one.

use std::ops::Range;

use super::fork_join::Shared;
use super::{ForkJoin, Kernels, Packed, share};

/// Rows of a block take at most this many bytes, to stay in a core's own cache
/// while all panels pass by.
const BLOCK_BYTES: usize = 1 << 20;

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

/// What follows a dense layer's products: `activation(products + bias) + residual`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// One number an output; absent: none is added.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Of the output's shape, added last; absent: none is added.
    pub residual: Option<&'a [f32]>,
}

/// One dense layer over a batch. Whoever holds it may write to its own part of `out`.
pub(super) struct Linear<'a> {
    pub rows: &'a [f32],
    pub weight: &'a Packed,
    pub epilogue: Epilogue<'a>,
    pub out: Shared<f32>,
}

impl Kernels {
    /// A dense layer: `out = activation(rows · Wᵀ + bias) + residual`, where `rows` is
    /// `[n][inputs]` and `out` `[n][outputs]`, both row-major.
    ///
    /// # Panics
    /// When a slice's length does not fit, or `weight` was packed for another class.
    pub fn linear(
        &self,
        team: &dyn ForkJoin,
        rows: &[f32],
        weight: &Packed,
        epilogue: Epilogue<'_>,
        out: &mut [f32],
    ) {
        let (inputs, outputs) = (weight.inputs(), weight.outputs());
        let count = rows.len() / inputs;
        assert_eq!(
            weight.class(),
            self.class,
            "weights packed for another class"
        );
        assert_eq!(rows.len(), count * inputs, "rows are not whole");
        assert_eq!(out.len(), count * outputs, "out does not fit the rows");
        if let Some(bias) = epilogue.bias {
            assert_eq!(bias.len(), outputs, "one bias an output");
        }
        if let Some(residual) = epilogue.residual {
            assert_eq!(residual.len(), out.len(), "the residual has out's shape");
        }
        if count == 0 {
            return;
        }

        let grid = Grid::new(
            count.div_ceil(self.tile_rows),
            weight.panels(),
            count.div_ceil((BLOCK_BYTES / (4 * inputs)).max(self.tile_rows)),
            team.lanes(),
        );
        let layer = Linear {
            rows,
            weight,
            epilogue,
            out: Shared(out.as_mut_ptr()),
        };
        team.run(grid.blocks * grid.groups, &|_, task| {
            let (tiles, panels) = grid.task(task);
            // SAFETY: the shapes were checked above, this machine has the class's
            // instructions (`Kernels::of`), and tasks of a grid do not overlap.
            unsafe { (self.linear)(&layer, tiles, panels) };
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
