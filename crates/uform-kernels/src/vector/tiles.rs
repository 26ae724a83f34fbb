//! Dense layers whose weights are packed as matrix tiles, in bf16 and i8.
//!
//! Who multiplies the tiles is a [`Tiles`]: a matrix unit, or here, vectors that compute the
//! same bits. The sums are left in the nearest cache and finished there, as in f32.

use std::marker::PhantomData;
use std::ops::Range;

use super::Simd;
use super::linear::{Plain, Sums, finish};
use crate::linear::Linear;
use crate::operand::{STEP_BYTES, Tail};
use crate::packed::TILES_COLUMNS;

/// The most rows multiplied at a time: two matrix tiles.
pub(crate) const TILES_ROWS: usize = 32;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Numbers of i8 to a group.
const GROUP_BYTES: usize = 4;

/// Groups of four bytes to a step, and outputs to a half of a panel.
pub(crate) const SIDE: usize = STEP_BYTES / 4;

/// Some rows by one panel.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(
        dead_code,
        reason = "offsets and what comes next are for units of x86-64"
    )
)]
pub(crate) struct TileProduct {
    /// 1 to [`TILES_ROWS`].
    pub rows: usize,
    /// Steps of the panel.
    pub steps: usize,
    /// `[rows][steps]` of 64 bytes each, rows `left_stride` bytes apart.
    pub left: *const u8,
    pub left_stride: usize,
    /// A panel of `Packed`.
    pub right: *const u32,
    /// What i8 sums of rows offset by 128 must be added, one a column; of no use in bf16.
    pub offsets: *const i32,
    /// `[rows][32]`: f32 sums in bf16, `i32` sums in i8. Aligned to 64 bytes.
    pub out: *mut f32,
    /// Cache lines that will be wanted later, some a step: a multiple of 4.
    #[allow(dead_code, reason = "only matrix units wait for memory")]
    pub next: *const u8,
    #[allow(dead_code, reason = "as above")]
    pub next_lines: usize,
}

/// Who multiplies tiles. A task begins with one and drops it at its end.
pub(crate) trait Tiles {
    /// Whether sums are integers.
    const INTEGERS: bool;
    /// The rows a product has, but for a batch's last: at most [`TILES_ROWS`].
    const ROWS: usize = TILES_ROWS;

    /// # Safety
    /// The CPU has the instructions of the implementing class.
    unsafe fn begin() -> Self;

    /// Computes the product.
    ///
    /// # Safety
    /// As for [`begin`](Tiles::begin), and the pointers' shapes are as described.
    unsafe fn multiply(&mut self, product: &TileProduct);
}

/// The sums of some rows by one panel.
#[repr(C, align(64))]
pub(crate) struct Block(pub [f32; TILES_ROWS * TILES_COLUMNS]);

/// Bytes of panels that pass by all rows before the next ones come: these, the next and the rows
/// stay in a core's own cache. Measured with MiniLM: four times as many are a tenth slower.
pub(crate) const PASSING_BYTES: usize = 1 << 17;

/// The given tiles of rows, [`Tiles::ROWS`] each, of the given panels.
///
/// Some panels at a time, and for each tile of rows all of them: rows stay in the nearest
/// cache, panels in the next one, and results leave in the order of memory. Meanwhile the
/// next panels come nearer, a share with each tile. (Finishing a block of sums between the steps of
/// the next product, in a matrix unit's shadow, gained nothing: both wait for memory.)
///
/// # Safety
/// The CPU has the class's instructions, the layer's slices fit each other, and
/// no other thread touches these tiles of `out`.
#[inline(always)]
pub(crate) unsafe fn compute<V: Simd, T: Tiles>(
    layer: &Linear<'_>,
    tiles: Range<usize>,
    panels: Range<usize>,
) {
    let weight = layer.weight;
    let panel_bytes = weight.steps() * STEP_BYTES * TILES_COLUMNS;
    let together = (PASSING_BYTES / panel_bytes).max(1);
    let mut block = Block([0.0; TILES_ROWS * TILES_COLUMNS]);
    // SAFETY: rows and panels are within the layer, and a block holds a product's sums.
    // `finish` writes these rows' elements of the panel's columns, which are this task's.
    unsafe {
        let mut unit = T::begin();
        let mut start = panels.start;
        while start < panels.end {
            let group = start..(start + together).min(panels.end);
            start = group.end;
            // The next group, or what of it there is, and what follows the layer at its end.
            let mut next = weight.tiles(group.end - 1).as_ptr().cast::<u8>();
            next = next.wrapping_add(panel_bytes);
            // One tile of rows passes each panel once, in the order of memory: the hardware
            // sees that by itself.
            let step_lines = STEP_BYTES * TILES_COLUMNS / LINE_BYTES;
            let next_lines = match tiles.len() {
                1 => 0,
                tiles => step_lines.div_ceil(tiles).next_multiple_of(4),
            };
            for tile in tiles.clone() {
                let first_row = tile * T::ROWS;
                let rows = first_row..(first_row + T::ROWS).min(layer.rows.rows());
                for panel in group.clone() {
                    let first = panel * TILES_COLUMNS;
                    let columns = first..(first + TILES_COLUMNS).min(weight.outputs());
                    unit.multiply(&TileProduct {
                        rows: rows.len(),
                        steps: weight.steps(),
                        left: layer.rows.row(first_row),
                        left_stride: layer.rows.stride(),
                        right: weight.tiles(panel).as_ptr(),
                        offsets: weight.offsets().as_ptr().wrapping_add(first),
                        out: block.0.as_mut_ptr(),
                        next,
                        next_lines,
                    });
                    next = next.wrapping_add(next_lines * LINE_BYTES * weight.steps());
                    let (sums, rows) = (block.0.as_ptr(), rows.clone());
                    if T::INTEGERS {
                        finish::<V, Scaled>(layer, sums, TILES_COLUMNS, rows, columns);
                    } else {
                        finish::<V, Plain>(layer, sums, TILES_COLUMNS, rows, columns);
                    }
                }
            }
        }
    }
}

/// Integer sums, what is kept apart from them, and the scales that make them numbers.
struct Scaled;

impl Sums for Scaled {
    #[inline(always)]
    unsafe fn load<V: Simd>(layer: &Linear<'_>, from: *const f32, row: usize, column: usize) -> V {
        // SAFETY: handed on to the caller; there is a tail for each row, and a scale for each column
        // of every panel.
        unsafe {
            let tail = layer.rows.tails().get_unchecked(row);
            let scales = V::load(layer.weight.scales().as_ptr().add(column));
            let mut sum = V::load(from);
            if tail.count > 0 {
                sum = with_apart(layer, tail, sum, column);
            }
            sum.integers_to_floats()
                .mul(V::splat(tail.scale).mul(scales))
        }
    }
}

/// Integer sums of a vector of columns, and what a row keeps apart.
///
/// # Safety
/// The CPU has the class's instructions, and the column is within the layer, its padding included.
#[inline(always)]
pub(crate) unsafe fn with_apart<V: Simd>(
    layer: &Linear<'_>,
    tail: &Tail,
    mut sum: V,
    column: usize,
) -> V {
    // SAFETY: there is a group for each input of a row in each panel.
    unsafe {
        for apart in tail.apart() {
            let input = apart.input as usize;
            let group = layer.weight.groups_from(column / TILES_COLUMNS, input);
            let words = V::load(group.add(column_words(column % TILES_COLUMNS)).cast());
            sum = sum.add_byte_product(apart.number, words, input % GROUP_BYTES);
        }
        sum
    }
}

/// bf16 by vectors.
pub(crate) struct VectorBf16<V>(PhantomData<V>);

/// i8 by vectors.
#[cfg(not(target_family = "wasm"))]
pub(crate) struct VectorI8<V>(PhantomData<V>);

/// The groups of a step that a vector's columns have: `[16]` vectors, [`SIDE`] words apart.
#[inline(always)]
pub(crate) fn column_words(column: usize) -> usize {
    column / SIDE * SIDE * SIDE + column % SIDE
}

impl<V: Simd> Tiles for VectorBf16<V> {
    const INTEGERS: bool = false;

    #[inline(always)]
    unsafe fn begin() -> Self {
        VectorBf16(PhantomData)
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: handed on to the caller.
        unsafe {
            for column in (0..TILES_COLUMNS).step_by(2 * V::LANES) {
                let mut row = 0;
                while row < product.rows {
                    row += match product.rows - row {
                        6.. if V::WORD_ROWS == 6 => bf16_rows::<V, 6>(product, row, column),
                        3.. => bf16_rows::<V, 3>(product, row, column),
                        2 => bf16_rows::<V, 2>(product, row, column),
                        _ => bf16_rows::<V, 1>(product, row, column),
                    };
                }
            }
        }
    }
}

/// Some rows by two vectors of columns; returns how many.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[inline(always)]
unsafe fn bf16_rows<V: Simd, const ROWS: usize>(
    product: &TileProduct,
    row: usize,
    column: usize,
) -> usize {
    let zero = [V::ZERO; 2];
    // SAFETY: rows and columns are within the product.
    unsafe {
        let left = product.left.add(row * product.left_stride);
        let mut sums = [zero; ROWS];
        for step in 0..product.steps {
            let right = product.right.add(step * SIDE * TILES_COLUMNS);
            let right = [
                right.add(column_words(column)),
                right.add(column_words(column + V::LANES)),
            ];
            let left = left.add(step * STEP_BYTES);
            let (mut even, mut odd) = ([zero; ROWS], [zero; ROWS]);
            for group in 0..SIDE {
                let weights = [
                    V::load(right[0].add(group * SIDE).cast()).halves(),
                    V::load(right[1].add(group * SIDE).cast()).halves(),
                ];
                for row in 0..ROWS {
                    let word = left.add(row * product.left_stride + 4 * group);
                    let factor = V::splat(*word.cast::<f32>()).halves();
                    for vector in 0..2 {
                        even[row][vector] = factor.0.fma(weights[vector].0, even[row][vector]);
                        odd[row][vector] = factor.1.fma(weights[vector].1, odd[row][vector]);
                    }
                }
            }
            for row in 0..ROWS {
                for vector in 0..2 {
                    let step = even[row][vector].add(odd[row][vector]);
                    sums[row][vector] = sums[row][vector].add(step);
                }
            }
        }
        store_rows(product, row, column, &sums);
    }
    ROWS
}

/// # Safety
/// As for [`Tiles::multiply`].
#[inline(always)]
unsafe fn store_rows<V: Simd, const ROWS: usize>(
    product: &TileProduct,
    row: usize,
    column: usize,
    sums: &[[V; 2]; ROWS],
) {
    // SAFETY: rows and columns are within the product.
    unsafe {
        for (place, sums) in sums.iter().enumerate() {
            let out = product.out.add((row + place) * TILES_COLUMNS + column);
            sums[0].store(out);
            sums[1].store(out.add(V::LANES));
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl<V: Simd> Tiles for VectorI8<V> {
    const INTEGERS: bool = true;

    #[inline(always)]
    unsafe fn begin() -> Self {
        VectorI8(PhantomData)
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: handed on to the caller.
        unsafe {
            for column in (0..TILES_COLUMNS).step_by(2 * V::LANES) {
                let mut row = 0;
                while row < product.rows {
                    row += match product.rows - row {
                        6.. if V::WORD_ROWS == 6 => i8_rows::<V, 6>(product, row, column),
                        3.. => i8_rows::<V, 3>(product, row, column),
                        2 => i8_rows::<V, 2>(product, row, column),
                        _ => i8_rows::<V, 1>(product, row, column),
                    };
                }
            }
        }
    }
}

/// Some rows by two vectors of columns; returns how many.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[cfg(not(target_family = "wasm"))]
#[inline(always)]
unsafe fn i8_rows<V: Simd, const ROWS: usize>(
    product: &TileProduct,
    row: usize,
    column: usize,
) -> usize {
    // SAFETY: rows and columns are within the product.
    unsafe {
        let left = product.left.add(row * product.left_stride);
        let mut sums = [[V::ZERO; 2]; ROWS];
        for step in 0..product.steps {
            let right = product.right.add(step * SIDE * TILES_COLUMNS);
            let right = [
                right.add(column_words(column)),
                right.add(column_words(column + V::LANES)),
            ];
            let left = left.add(step * STEP_BYTES);
            for group in 0..SIDE {
                let weights: [V; 2] = [
                    V::load(right[0].add(group * SIDE).cast()),
                    V::load(right[1].add(group * SIDE).cast()),
                ];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let word = left.add(row * product.left_stride + 4 * group);
                    let factors = V::splat(*word.cast::<f32>());
                    for (sum, weights) in sums.iter_mut().zip(weights) {
                        *sum = sum.dot_bytes(factors, weights);
                    }
                }
            }
        }
        store_rows(product, row, column, &sums);
    }
    ROWS
}
