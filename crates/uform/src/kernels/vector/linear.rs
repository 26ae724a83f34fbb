//! Dense layers on vectors. A tile runs over all inputs in one go ([`Product`]), is left in
//! the nearest cache, and is finished there: bias, activation, residual.

use std::ops::Range;

use super::curves::{Curve, Gelu, GeluTanh, Identity, Relu, Silu, Tanh};
use super::tile::{LINE, Product, Tile};
use super::{Simd, load_up_to, store_up_to};
use crate::kernels::linear::{Activation, Linear, Out};
use crate::kernels::share;

/// The given tiles of the given panels.
///
/// # Safety
/// The CPU has the class's instructions, the layer's slices fit each other, and
/// nobody else touches these tiles of `out`.
#[inline(always)]
pub(in crate::kernels) unsafe fn piece<V: Simd>(
    layer: &Linear<'_>,
    tiles: Range<usize>,
    panels: Range<usize>,
) {
    let (inputs, outputs) = (layer.weight.inputs(), layer.weight.outputs());
    let width = V::TILE_VECTORS * V::LANES;
    let count = layer.rows.rows();
    let all_tiles = count.div_ceil(V::TILE_ROWS);
    let mut tile = Tile::new();
    for panel in panels {
        let first = panel * width;
        let columns = width.min(outputs - first);
        let here = layer.weight.panel(panel).as_ptr();
        // While a panel passes, the next one comes nearer, a share with each tile.
        let panel_lines = inputs * width / LINE;
        for (place, index) in tiles.clone().enumerate() {
            let rows = share(count, all_tiles, index);
            let coming = share(panel_lines, tiles.len(), place);
            // SAFETY: the rows and the panel lie within their slices, `inputs` steps each; the
            // tile holds the most rows and vectors a class has. `finish` writes
            // `columns` elements of these rows, which are this task's.
            unsafe {
                V::product(&Product {
                    rows: rows.len(),
                    vectors: columns.div_ceil(V::LANES),
                    depth: inputs,
                    left: layer.rows.floats().as_ptr().add(rows.start * inputs),
                    left_stride: inputs,
                    right: here,
                    right_stride: width,
                    out: tile.values(),
                    out_stride: width,
                    next: here.wrapping_add((panel_lines + coming.start) * LINE),
                    next_lines: coming.len(),
                });
                finish::<V, Plain>(layer, tile.values(), width, rows, first..first + columns);
            }
        }
    }
}

/// What a tile in memory holds.
pub(super) trait Sums {
    /// The products' sums of a vector of columns from `column` on, which lie at `from`.
    ///
    /// # Safety
    /// The CPU has the class's instructions; `from` has a vector's elements, and row
    /// and column are within the layer, its padding included.
    unsafe fn load<V: Simd>(layer: &Linear<'_>, from: *const f32, row: usize, column: usize) -> V;
}

/// The sums themselves.
pub(super) struct Plain;

impl Sums for Plain {
    #[inline(always)]
    unsafe fn load<V: Simd>(_: &Linear<'_>, from: *const f32, _: usize, _: usize) -> V {
        // SAFETY: handed on to the caller.
        unsafe { V::load(from) }
    }
}

/// Bias, activation and residual of one tile, whose rows lie `stride` apart, and its place in `out`.
///
/// # Safety
/// As for [`piece`]; rows and columns are within `out`.
#[inline(always)]
pub(super) unsafe fn finish<V: Simd, S: Sums>(
    layer: &Linear<'_>,
    tile: *const f32,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let place = Place {
        layer,
        tile,
        stride,
        rows,
        columns,
    };
    // SAFETY: handed on to the caller.
    unsafe {
        match layer.epilogue.activation {
            Activation::Identity => place.finish::<V, S, Identity>(),
            Activation::Gelu => place.finish::<V, S, Gelu>(),
            Activation::GeluTanh => place.finish::<V, S, GeluTanh>(),
            Activation::Relu => place.finish::<V, S, Relu>(),
            Activation::Tanh => place.finish::<V, S, Tanh>(),
            Activation::Silu => place.finish::<V, S, Silu>(),
        }
    }
}

/// A tile's sums, and which of the layer's results they are.
struct Place<'a> {
    layer: &'a Linear<'a>,
    tile: *const f32,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Place<'_> {
    /// Finishes every element; whole vectors, the common case, without asking for each.
    ///
    /// # Safety
    /// As for [`finish`].
    #[inline(always)]
    unsafe fn finish<V: Simd, S: Sums, C: Curve>(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match self.columns.len().is_multiple_of(V::LANES) {
                true => self.finish_vectors::<V, S, C, true>(),
                false => self.finish_vectors::<V, S, C, false>(),
            }
        }
    }

    /// # Safety
    /// As for [`finish`]; the columns are `WHOLE` vectors, or not.
    #[inline(always)]
    unsafe fn finish_vectors<V: Simd, S: Sums, C: Curve, const WHOLE: bool>(&self) {
        let outputs = self.layer.weight.outputs();
        let Range { start, end } = self.columns;
        for (place, row) in self.rows.clone().enumerate() {
            // SAFETY: a vector's elements, or what there is of them, are within `out`, and an
            // operand's row is padded to whole vectors.
            unsafe {
                match &self.layer.out {
                    Out::Rows(out) => {
                        for column in self.columns.clone().step_by(V::LANES) {
                            let value = self.value::<V, S, C, WHOLE>(place, row, column);
                            let out = out.at(row * outputs + column);
                            if WHOLE {
                                value.store(out);
                            } else {
                                store_up_to(value, out, V::LANES.min(end - column));
                            }
                        }
                    }
                    Out::Operand(operand) => {
                        let out = operand.row(row).cast::<u16>();
                        for column in (start..end).step_by(V::LANES) {
                            let value = self.value::<V, S, C, WHOLE>(place, row, column);
                            value.store_bf16(out.add(column));
                        }
                        if end == outputs {
                            let padding = end.next_multiple_of(V::LANES)..operand.form.stride() / 2;
                            for column in padding.step_by(V::LANES) {
                                V::ZERO.store_bf16(out.add(column));
                            }
                        }
                    }
                }
            }
        }
    }

    /// A vector of results; `place` is the row's within the tile.
    ///
    /// # Safety
    /// As for [`finish`].
    #[inline(always)]
    unsafe fn value<V: Simd, S: Sums, C: Curve, const WHOLE: bool>(
        &self,
        place: usize,
        row: usize,
        column: usize,
    ) -> V {
        let count = if WHOLE {
            V::LANES
        } else {
            V::LANES.min(self.columns.end - column)
        };
        let at = row * self.layer.weight.outputs() + column;
        let within = place * self.stride + (column - self.columns.start);
        // SAFETY: `count` elements from `column` on are within the bias, and from `at` on within
        // the residual, which has `out`'s shape.
        unsafe {
            let mut value: V = S::load(self.layer, self.tile.add(within), row, column);
            if let Some(bias) = self.layer.epilogue.bias {
                value = value.add(load_up_to(bias.as_ptr().add(column), count));
            }
            value = C::at(value);
            if let Some(residual) = self.layer.epilogue.residual {
                value = value.add(load_up_to(residual.as_ptr().add(at), count));
            }
            value
        }
    }
}
