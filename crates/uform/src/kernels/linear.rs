//! Dense layers: `out = activation(rows · Wᵀ + bias) + residual`.
//!
//! The output is cut into tiles that fit the registers: a few rows by one panel. A
//! tile runs over all inputs in one go ([`Product`]), is left in the nearest cache,
//! and is finished there: bias, activation, residual. Panels are the outer loop and
//! row tiles the inner one, so that a panel is read from memory once for a block of
//! rows. Rows are spread evenly over tiles: nine rows are five and four, not
//! eight and one.

use std::ops::Range;

use super::fork_join::Shared;
use super::math::{Curve, Gelu, GeluTanh, Identity, Relu, Silu, Tanh};
use super::simd::Simd;
use super::{ForkJoin, Kernels, Packed, share};

/// Rows of a block take at most this many bytes, to stay in a core's own cache
/// while all panels pass by.
const BLOCK_BYTES: usize = 256 << 10;

/// The most elements of a register tile: 8 rows of 3 vectors of 16 lanes.
const TILE: usize = 8 * 3 * 16;

/// Elements of a cache line.
const LINE: usize = 16;

/// Weights are asked for this many steps of `k` ahead: a panel is one stream through
/// memory, but hardware prefetchers stop at each page. Measured: a sixth faster at 8 rows.
const PREFETCH: usize = 24;

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

impl Linear<'_> {
    /// How many rows go in.
    pub(super) fn count(&self) -> usize {
        self.rows.len() / self.weight.inputs()
    }
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

/// The given tiles of the given panels.
///
/// # Safety
/// The CPU has the class's instructions, the layer's slices fit each other, and
/// nobody else touches these tiles of `out`.
#[inline(always)]
pub(super) unsafe fn piece<V: Simd>(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
    let (inputs, outputs) = (layer.weight.inputs(), layer.weight.outputs());
    let count = layer.count();
    let all_tiles = count.div_ceil(V::TILE_ROWS);
    let mut tile = Tile([0.0; TILE]);
    for panel in panels {
        let first = panel * layer.weight.columns();
        let columns = layer.weight.columns().min(outputs - first);
        for index in tiles.clone() {
            let rows = share(count, all_tiles, index);
            // SAFETY: the rows and the panel lie within their slices, `inputs` steps each; the
            // tile holds the most rows and vectors a class has. `finish` writes
            // `columns` elements of these rows, which are this task's.
            unsafe {
                V::product(&Product {
                    rows: rows.len(),
                    vectors: columns.div_ceil(V::LANES),
                    depth: inputs,
                    left: layer.rows.as_ptr().add(rows.start * inputs),
                    left_stride: inputs,
                    right: layer.weight.panel(panel).as_ptr(),
                    right_stride: layer.weight.columns(),
                    out: tile.0.as_mut_ptr(),
                    out_stride: V::TILE_VECTORS * V::LANES,
                });
                finish::<V>(layer, &tile, rows, first..first + columns);
            }
        }
    }
}

/// A register tile, left in memory.
#[repr(align(64))]
pub(super) struct Tile(pub(super) [f32; TILE]);

/// Bias, activation and residual of one tile, and its place in `out`.
///
/// # Safety
/// As for [`piece`]; rows and columns are within `out`.
#[inline(always)]
unsafe fn finish<V: Simd>(
    layer: &Linear<'_>,
    tile: &Tile,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        match layer.epilogue.activation {
            Activation::Identity => finish_with::<V, Identity>(layer, tile, rows, columns),
            Activation::Gelu => finish_with::<V, Gelu>(layer, tile, rows, columns),
            Activation::GeluTanh => finish_with::<V, GeluTanh>(layer, tile, rows, columns),
            Activation::Relu => finish_with::<V, Relu>(layer, tile, rows, columns),
            Activation::Tanh => finish_with::<V, Tanh>(layer, tile, rows, columns),
            Activation::Silu => finish_with::<V, Silu>(layer, tile, rows, columns),
        }
    }
}

/// [`finish`] for one activation.
///
/// # Safety
/// As for [`finish`].
#[inline(always)]
unsafe fn finish_with<V: Simd, C: Curve>(
    layer: &Linear<'_>,
    tile: &Tile,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let outputs = layer.weight.outputs();
    for (place, row) in rows.enumerate() {
        for column in columns.clone().step_by(V::LANES) {
            let count = V::LANES.min(columns.end - column);
            let within = place * V::TILE_VECTORS * V::LANES + (column - columns.start);
            let at = row * outputs + column;
            // SAFETY: `count` elements from `column` on are within the bias, and from `at` on
            // within `out` and the residual, which has its shape.
            unsafe {
                let mut value = V::load(tile.0.as_ptr().add(within));
                if let Some(bias) = layer.epilogue.bias {
                    value = value.add(load_up_to(bias.as_ptr().add(column), count));
                }
                value = C::at(value);
                if let Some(residual) = layer.epilogue.residual {
                    value = value.add(load_up_to(residual.as_ptr().add(at), count));
                }
                store_up_to(value, layer.out.at(at), count);
            }
        }
    }
}

/// Reads `count` elements, at most a vector; without a mask when it is a whole one.
///
/// # Safety
/// As for [`Simd::load_first`].
#[inline(always)]
pub(super) unsafe fn load_up_to<V: Simd>(from: *const f32, count: usize) -> V {
    // SAFETY: handed on to the caller.
    unsafe {
        if count == V::LANES {
            V::load(from)
        } else {
            V::load_first(from, count)
        }
    }
}

/// Writes `count` lanes, at most a vector; without a mask when it is a whole one.
///
/// # Safety
/// As for [`Simd::store_first`].
#[inline(always)]
pub(super) unsafe fn store_up_to<V: Simd>(value: V, to: *mut f32, count: usize) {
    // SAFETY: handed on to the caller.
    unsafe {
        if count == V::LANES {
            value.store(to);
        } else {
            value.store_first(to, count);
        }
    }
}

/// A register tile's work: `out[r][c] = Σ left[r][k]·right[k][c]`, k ascending in one chain
/// of fused multiply-adds.
pub(super) struct Product {
    /// Rows of `left` and `out`, 1 to [`Simd::TILE_ROWS`].
    pub rows: usize,
    /// Vectors to a row of `right` and `out`, 1 to [`Simd::TILE_VECTORS`].
    pub vectors: usize,
    /// How many products make a sum.
    pub depth: usize,
    /// `[rows][depth]`, rows `left_stride` apart.
    pub left: *const f32,
    pub left_stride: usize,
    /// `[depth][vectors]`, rows `right_stride` apart.
    pub right: *const f32,
    pub right_stride: usize,
    /// `[rows][vectors]`, rows `out_stride` apart.
    pub out: *mut f32,
    pub out_stride: usize,
}

impl Product {
    /// Computes the tile, by code of its own for each count of rows and vectors.
    ///
    /// # Safety
    /// The CPU has the class's instructions, and the pointers' shapes are as described.
    #[inline(always)]
    pub(super) unsafe fn run<V: Simd>(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match self.vectors {
                1 => self.run_vectors::<V, 1>(),
                2 if V::TILE_VECTORS >= 2 => self.run_vectors::<V, 2>(),
                3 if V::TILE_VECTORS >= 3 => self.run_vectors::<V, 3>(),
                more => unreachable!("a tile of {more} vectors"),
            }
        }
    }

    /// Computes the tile for a known count of vectors.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    unsafe fn run_vectors<V: Simd, const VECTORS: usize>(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match self.rows {
                1 => self.run_tile::<V, VECTORS, 1>(),
                2 => self.run_tile::<V, VECTORS, 2>(),
                3 => self.run_tile::<V, VECTORS, 3>(),
                4 => self.run_tile::<V, VECTORS, 4>(),
                5 if V::TILE_ROWS >= 5 => self.run_tile::<V, VECTORS, 5>(),
                6 if V::TILE_ROWS >= 6 => self.run_tile::<V, VECTORS, 6>(),
                7 if V::TILE_ROWS >= 7 => self.run_tile::<V, VECTORS, 7>(),
                8 if V::TILE_ROWS >= 8 => self.run_tile::<V, VECTORS, 8>(),
                more => unreachable!("a tile of {more} rows"),
            }
        }
    }

    /// Computes the tile in registers.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    unsafe fn run_tile<V: Simd, const VECTORS: usize, const ROWS: usize>(&self) {
        // SAFETY: the caller vouches for the pointers' shapes.
        unsafe {
            let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
            let mut right = self.right;
            for k in 0..self.depth {
                let mut columns = [V::splat(0.0); VECTORS];
                for (v, column) in columns.iter_mut().enumerate() {
                    *column = V::load(right.add(v * V::LANES));
                    if v * V::LANES % LINE == 0 {
                        let ahead = PREFETCH * self.right_stride + v * V::LANES;
                        V::prefetch(right.wrapping_add(ahead));
                    }
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let factor = V::splat(*self.left.add(r * self.left_stride + k));
                    for (sum, column) in row.iter_mut().zip(&columns) {
                        *sum = factor.fma(*column, *sum);
                    }
                }
                right = right.add(self.right_stride);
            }
            for (r, row) in sums.iter().enumerate() {
                for (v, sum) in row.iter().enumerate() {
                    sum.store(self.out.add(r * self.out_stride + v * V::LANES));
                }
            }
        }
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
