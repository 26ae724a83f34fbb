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
    // SAFETY: handed on to the caller.
    unsafe {
        match layer.epilogue.activation {
            Activation::Identity => finish_with::<V, S, Identity>(layer, tile, stride, rows, columns),
            Activation::Gelu => finish_with::<V, S, Gelu>(layer, tile, stride, rows, columns),
            Activation::GeluTanh => finish_with::<V, S, GeluTanh>(layer, tile, stride, rows, columns),
            Activation::Relu => finish_with::<V, S, Relu>(layer, tile, stride, rows, columns),
            Activation::Tanh => finish_with::<V, S, Tanh>(layer, tile, stride, rows, columns),
            Activation::Silu => finish_with::<V, S, Silu>(layer, tile, stride, rows, columns),
        }
    }
}

/// [`finish`] for one activation.
///
/// # Safety
/// As for [`finish`].
#[inline(always)]
unsafe fn finish_with<V: Simd, S: Sums, C: Curve>(
    layer: &Linear<'_>,
    tile: *const f32,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let outputs = layer.weight.outputs();
    for (place, row) in rows.enumerate() {
        for column in columns.clone().step_by(V::LANES) {
            let count = V::LANES.min(columns.end - column);
            let within = place * stride + (column - columns.start);
            let at = row * outputs + column;
            // SAFETY: `count` elements from `column` on are within the bias, and from `at` on
            // within `out` and the residual, which has its shape. An operand's row is
            // padded to whole vectors.
            unsafe {
                let mut value: V = S::load(layer, tile.add(within), row, column);
                if let Some(bias) = layer.epilogue.bias {
                    value = value.add(load_up_to(bias.as_ptr().add(column), count));
                }
                value = C::at(value);
                if let Some(residual) = layer.epilogue.residual {
                    value = value.add(load_up_to(residual.as_ptr().add(at), count));
                }
                match &layer.out {
                    Out::Rows(out) => store_up_to(value, out.at(at), count),
                    Out::Operand(operand) => {
                        value.store_bf16(operand.row(row).cast::<u16>().add(column));
                    }
                }
            }
        }
        // SAFETY: as above; a panel's columns are within the padding.
        unsafe { finish_padding::<V>(layer, row, columns.end) };
    }
}

/// Zeros from the last column of all to the end of an operand's row.
///
/// # Safety
/// As for [`finish`].
#[inline(always)]
unsafe fn finish_padding<V: Simd>(layer: &Linear<'_>, row: usize, end: usize) {
    let Out::Operand(operand) = &layer.out else {
        return;
    };
    if end < layer.weight.outputs() {
        return;
    }
    for column in (end.next_multiple_of(V::LANES)..operand.form.stride() / 2).step_by(V::LANES) {
        // SAFETY: an operand's row is padded to whole vectors.
        unsafe { V::ZERO.store_bf16(operand.row(row).cast::<u16>().add(column)) };
    }
}
