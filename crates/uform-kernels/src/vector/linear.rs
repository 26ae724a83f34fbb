//! Dense layers on vectors. A tile runs over all inputs in one go ([`Product`]), is left in
//! the nearest cache, and is finished there: bias, activation, residual.

use std::marker::PhantomData;
use std::ops::Range;

use super::curves::{Curve, Gelu, GeluBf16, GeluTanh, Identity, Relu, Silu, Tanh};
use super::tile::{LINE, PREFETCH, Product, Tile};
use super::{Simd, load_up_to, store_up_to};
use crate::linear::{Activation, Linear, Out};
use crate::{Precision, share};

/// The given tiles of the given panels.
///
/// # Safety
/// The CPU has the class's instructions, the layer's slices fit each other, and
/// no other thread touches these tiles of `out`.
#[inline(always)]
pub(crate) unsafe fn compute<V: Simd>(
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
        // While a panel passes, the next one comes nearer, a share with each tile; before a single
        // tile, which waits for memory, the panel's own lines.
        let panel_lines = inputs * width / LINE;
        let next = match tiles.len() {
            1 => here.wrapping_add(PREFETCH * width),
            _ => here.wrapping_add(inputs * width),
        };
        for (place, index) in tiles.clone().enumerate() {
            let rows = share(count, all_tiles, index);
            let coming = share(panel_lines, tiles.len(), place);
            // SAFETY: the rows and the panel lie within their slices, `inputs` steps each; the
            // tile holds the most rows and vectors a class has. `finish` writes
            // `columns` elements of these rows, which are this task's.
            unsafe {
                V::product(&Product {
                    rows: rows.len(),
                    vectors: V::TILE_VECTORS,
                    depth: inputs,
                    left: layer.rows.floats().as_ptr().add(rows.start * inputs),
                    left_stride: inputs,
                    right: here,
                    out: tile.values(),
                    out_stride: width,
                    next: next.wrapping_add(coming.start * LINE),
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
/// As for [`compute`]; rows and columns are within `out`.
#[inline(always)]
pub(super) unsafe fn finish<V: Simd, S: Sums>(
    layer: &Linear<'_>,
    tile: *const f32,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let output = OutputTile {
        layer,
        tile,
        stride,
        rows,
        columns,
    };
    // SAFETY: handed on to the caller.
    unsafe { with_curve(layer, Finish::<V, S>(output, PhantomData)) }
}

/// What is compiled for each curve.
pub(crate) trait WithCurve {
    /// # Safety
    /// As the implementer says.
    unsafe fn run<C: Curve>(self);
}

/// Runs `what` for the layer's curve.
///
/// # Safety
/// As for `what`.
#[inline(always)]
pub(crate) unsafe fn with_curve(layer: &Linear<'_>, what: impl WithCurve) {
    // SAFETY: handed on to the caller.
    unsafe {
        match layer.epilogue.activation {
            Activation::Identity => what.run::<Identity>(),
            Activation::Gelu if layer.weight.precision() != Precision::F32 => {
                what.run::<GeluBf16>();
            }
            Activation::Gelu => what.run::<Gelu>(),
            Activation::GeluTanh => what.run::<GeluTanh>(),
            Activation::Relu => what.run::<Relu>(),
            Activation::Tanh => what.run::<Tanh>(),
            Activation::Silu => what.run::<Silu>(),
        }
    }
}

/// [`OutputTile::finish`], compiled for a curve.
struct Finish<'a, V, S>(OutputTile<'a>, PhantomData<(V, S)>);

impl<V: Simd, S: Sums> WithCurve for Finish<'_, V, S> {
    #[inline(always)]
    unsafe fn run<C: Curve>(self) {
        // SAFETY: handed on to the caller.
        unsafe { self.0.finish::<V, S, C>() }
    }
}

/// A tile's sums, and which of the layer's results they are.
struct OutputTile<'a> {
    layer: &'a Linear<'a>,
    tile: *const f32,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl OutputTile<'_> {
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

    /// A vector of columns at a time, down the rows: nothing but sums and results moves.
    ///
    /// # Safety
    /// As for [`finish`]; the columns are `WHOLE` vectors, or not.
    #[inline(always)]
    unsafe fn finish_vectors<V: Simd, S: Sums, C: Curve, const WHOLE: bool>(&self) {
        let Range { start, end } = self.columns;
        let mut column = start;
        while column < end {
            let count = if WHOLE {
                V::LANES
            } else {
                V::LANES.min(end - column)
            };
            let mut row = self.rows.start;
            // SAFETY: the rows are within the tile; the rest is handed on to the caller.
            unsafe {
                while V::FINISH_ROWS == 3 && self.rows.end - row >= 3 {
                    self.finish_rows::<V, S, C, WHOLE, 3>(row, column, count);
                    row += 3;
                }
                while row < self.rows.end {
                    self.finish_rows::<V, S, C, WHOLE, 1>(row, column, count);
                    row += 1;
                }
            }
            column += V::LANES;
        }
        if end == self.layer.weight.outputs() {
            // SAFETY: handed on to the caller.
            unsafe { self.finish_padding::<V>(column) };
        }
    }

    /// A vector of each of some rows from `row` on, `count` elements of it.
    ///
    /// # Safety
    /// As for [`finish`].
    #[inline(always)]
    unsafe fn finish_rows<V: Simd, S: Sums, C: Curve, const WHOLE: bool, const N: usize>(
        &self,
        row: usize,
        column: usize,
        count: usize,
    ) {
        let outputs = self.layer.weight.outputs();
        // SAFETY: `count` elements from `column` on are from each row's on within `out`. An operand's
        // row is padded to whole vectors.
        unsafe {
            let values = self.values::<V, S, C, N>(row, column, count);
            match &self.layer.out {
                Out::Rows(out) => {
                    let out = out.at(row * outputs + column);
                    for (place, value) in values.into_iter().enumerate() {
                        let out = out.wrapping_add(place * outputs);
                        if WHOLE {
                            value.store(out);
                        } else {
                            store_up_to(value, out, count);
                        }
                    }
                }
                Out::Operand(operand) => {
                    for (place, value) in values.into_iter().enumerate() {
                        value.store_bf16(operand.row(row + place).cast::<u16>().add(column));
                    }
                }
            }
        }
    }

    /// Vectors of results, `count` of them each, of some rows from `row` on.
    ///
    /// # Safety
    /// As for [`finish`].
    #[inline(always)]
    unsafe fn values<V: Simd, S: Sums, C: Curve, const N: usize>(
        &self,
        row: usize,
        column: usize,
        count: usize,
    ) -> [V; N] {
        let epilogue = &self.layer.epilogue;
        let within = (row - self.rows.start) * self.stride + (column - self.columns.start);
        let mut values = [V::ZERO; N];
        // SAFETY: `count` elements from `column` on are within the bias and the factors, and from the row's on
        // within `out`.
        unsafe {
            for (place, value) in values.iter_mut().enumerate() {
                let from = self.tile.add(within + place * self.stride);
                *value = S::load(self.layer, from, row + place, column);
            }
            if let Some(bias) = epilogue.bias {
                let bias: V = load_up_to(bias.as_ptr().add(column), count);
                for value in &mut values {
                    *value = value.add(bias);
                }
            }
            values = C::each(values);
            if let Some(factors) = epilogue.factors {
                let factors: V = load_up_to(factors.as_ptr().add(column), count);
                for value in &mut values {
                    *value = value.mul(factors);
                }
            }
            if let (true, Out::Rows(out)) = (epilogue.residual, &self.layer.out) {
                for (place, value) in values.iter_mut().enumerate() {
                    let at = (row + place) * self.layer.weight.outputs() + column;
                    *value = value.add(load_up_to(out.at(at), count));
                }
            }
            values
        }
    }

    /// Zeros from `column`, behind the last, to the end of an operand's rows.
    ///
    /// # Safety
    /// As for [`finish`].
    #[inline(always)]
    unsafe fn finish_padding<V: Simd>(&self, column: usize) {
        let Out::Operand(operand) = &self.layer.out else {
            return;
        };
        for row in self.rows.clone() {
            for column in (column..operand.form.stride() / 2).step_by(V::LANES) {
                // SAFETY: an operand's row is padded to whole vectors.
                unsafe { V::ZERO.store_bf16(operand.row(row).cast::<u16>().add(column)) };
            }
        }
    }
}
