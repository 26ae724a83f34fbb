//! Dense layers whose blocks of sums are finished in the matrix unit's shadow.
//!
//! A step of four products takes the unit 64 cycles, in which the vectors have nothing to
//! do; and bias, activation and rounding of a block take the vectors about as long as its products take
//! the unit. So a block is finished while the next one is multiplied, some rows between one
//! product and the next: all at once, they would fill the core's window, and the next
//! products would not be in it. Sums leave the unit tile by tile as well, each when the next block
//! wants its register. Measured with MiniLM's layers in bf16 from 32 rows on: a tenth to two
//! fifths faster.

use std::arch::asm;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use super::{AmxBf16, AmxI8, TILE_ROWS, Unit};
use crate::linear::{Linear, Out};
use crate::operand::{STEP_BYTES, Tail};
use crate::packed::TILES_COLUMNS;
use crate::share;
use crate::vector::Simd;
use crate::vector::curves::Curve;
use crate::vector::linear::{WithCurve, with_curve};
use crate::vector::tiles::{self, Block, PASSING_BYTES, TILES_ROWS, Tiles, with_apart};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Bytes of a tile of weights.
const TILE_BYTES: usize = TILE_ROWS * STEP_BYTES;

/// Products of a step, between which rows are finished.
const PRODUCTS: usize = 4;

/// A precision in which the unit multiplies.
pub(crate) trait Multiplied {
    /// The same, block by block.
    type Alone: Tiles;

    /// A vector of sums as numbers: those at `sums`, of the next row to finish.
    ///
    /// # Safety
    /// The CPU has the vector's instructions, and the sums have left the unit.
    unsafe fn value<V: Simd>(of: &Finishing<'_>, sums: *const f32, column: usize) -> V;

    /// Adds a product to the tile of sums `SUM`: 0 and 1 are tile 4 times tiles 6 and 7, 2 and 3
    /// tile 5 times these.
    ///
    /// # Safety
    /// Tiles are configured.
    unsafe fn product<const SUM: usize>();
}

macro_rules! multiplied {
    ($name:ident, $alone:ident, $value:ident, $instruction:literal) => {
        pub(crate) struct $name;

        impl Multiplied for $name {
            type Alone = $alone;

            #[inline(always)]
            unsafe fn value<V: Simd>(of: &Finishing<'_>, sums: *const f32, column: usize) -> V {
                // SAFETY: handed on to the caller.
                unsafe { $value(of, sums, column) }
            }

            #[inline(always)]
            unsafe fn product<const SUM: usize>() {
                // SAFETY: only tile registers change, which nothing but this module uses.
                unsafe {
                    match SUM {
                        0 => asm!(concat!($instruction, " tmm0, tmm4, tmm6"), out("tmm0") _, options(nostack, nomem, preserves_flags)),
                        1 => asm!(concat!($instruction, " tmm1, tmm4, tmm7"), out("tmm1") _, options(nostack, nomem, preserves_flags)),
                        2 => asm!(concat!($instruction, " tmm2, tmm5, tmm6"), out("tmm2") _, options(nostack, nomem, preserves_flags)),
                        3 => asm!(concat!($instruction, " tmm3, tmm5, tmm7"), out("tmm3") _, options(nostack, nomem, preserves_flags)),
                        _ => unreachable!("a block has four tiles of sums"),
                    }
                }
            }
        }
    };
}

multiplied!(Bf16, AmxBf16, plain, "tdpbf16ps");
multiplied!(I8, AmxI8, scaled, "tdpbssd");

/// The sums themselves.
///
/// # Safety
/// As for [`Multiplied::value`].
#[inline(always)]
unsafe fn plain<V: Simd>(_: &Finishing<'_>, sums: *const f32, _: usize) -> V {
    // SAFETY: handed on to the caller.
    unsafe { V::load(sums) }
}

/// Integer sums with what is kept apart from them, times both scales.
///
/// # Safety
/// As for [`Multiplied::value`].
#[inline(always)]
unsafe fn scaled<V: Simd>(of: &Finishing<'_>, sums: *const f32, column: usize) -> V {
    // SAFETY: handed on to the caller; there is a tail for each row, and a scale for each column.
    unsafe {
        let tail = &*of.tail;
        let mut sum = V::load(sums);
        if tail.count > 0 {
            sum = with_apart(of.layer, tail, sum, of.column + column);
        }
        let scales = V::load(of.scales.add(column));
        sum.integers_to_floats()
            .mul(V::splat(tail.scale).mul(scales))
    }
}

/// Loads tile `TILE`, 4 to 7, whose rows lie `stride` bytes apart.
///
/// Weights, 6 and 7, pass by: the hint keeps them out of the nearest cache, where the rows of the other
/// side stay for the next panels. Measured with MiniLM's layers in bf16: a quarter faster.
///
/// # Safety
/// Tiles are configured, and the rows are there.
#[inline(always)]
unsafe fn load<const TILE: usize>(from: *const u8, stride: usize) {
    // SAFETY: handed on to the caller.
    unsafe {
        match TILE {
            4 => {
                asm!("tileloadd tmm4, [{} + {}]", in(reg) from, in(reg) stride, out("tmm4") _, options(nostack, readonly, preserves_flags))
            }
            5 => {
                asm!("tileloadd tmm5, [{} + {}]", in(reg) from, in(reg) stride, out("tmm5") _, options(nostack, readonly, preserves_flags))
            }
            6 => {
                asm!("tileloaddt1 tmm6, [{} + {}]", in(reg) from, in(reg) stride, out("tmm6") _, options(nostack, readonly, preserves_flags))
            }
            7 => {
                asm!("tileloaddt1 tmm7, [{} + {}]", in(reg) from, in(reg) stride, out("tmm7") _, options(nostack, readonly, preserves_flags))
            }
            _ => unreachable!("a factor's tile"),
        }
    }
}

/// Writes tile `SUM` to its quarter of a block of sums.
///
/// # Safety
/// Tiles are configured.
#[inline(always)]
unsafe fn leave<const SUM: usize>(block: &mut Block) {
    let stride = 4 * TILES_COLUMNS;
    let to = block.0.as_mut_ptr();
    // SAFETY: a quarter of a block has room for a tile.
    unsafe {
        match SUM {
            0 => {
                asm!("tilestored [{} + {}], tmm0", in(reg) to, in(reg) stride, options(nostack, preserves_flags))
            }
            1 => {
                asm!("tilestored [{} + {}], tmm1", in(reg) to.add(TILE_ROWS), in(reg) stride, options(nostack, preserves_flags))
            }
            2 => {
                asm!("tilestored [{} + {}], tmm2", in(reg) to.add(TILE_ROWS * TILES_COLUMNS), in(reg) stride, options(nostack, preserves_flags))
            }
            3 => {
                asm!("tilestored [{} + {}], tmm3", in(reg) to.add(TILE_ROWS * TILES_COLUMNS + TILE_ROWS), in(reg) stride, options(nostack, preserves_flags))
            }
            _ => unreachable!("a block has four tiles of sums"),
        }
    }
}

/// Makes tile `SUM` zero.
///
/// # Safety
/// Tiles are configured.
#[inline(always)]
unsafe fn clear<const SUM: usize>() {
    // SAFETY: only tile registers change.
    unsafe {
        match SUM {
            0 => asm!("tilezero tmm0", out("tmm0") _, options(nostack, nomem, preserves_flags)),
            1 => asm!("tilezero tmm1", out("tmm1") _, options(nostack, nomem, preserves_flags)),
            2 => asm!("tilezero tmm2", out("tmm2") _, options(nostack, nomem, preserves_flags)),
            3 => asm!("tilezero tmm3", out("tmm3") _, options(nostack, nomem, preserves_flags)),
            _ => unreachable!("a block has four tiles of sums"),
        }
    }
}

/// The given tiles of rows of the given panels, in the order of [`tiles::compute`].
///
/// # Safety
/// As there; the process may use AMX.
#[inline(always)]
pub(crate) unsafe fn compute<V: Simd, M: Multiplied>(
    layer: &Linear<'_>,
    tiles: Range<usize>,
    panels: Range<usize>,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        // A few rows wait for weights, whatever follows; panels that are not whole are rare.
        let few = layer.rows.rows() <= TILE_ROWS;
        if few || !layer.weight.outputs().is_multiple_of(TILES_COLUMNS) {
            tiles::compute::<V, M::Alone>(layer, tiles, panels);
            return;
        }
        let range = OutputRange::<V, M> {
            layer,
            tiles,
            panels,
            of: PhantomData,
        };
        with_curve(layer, range);
    }
}

struct OutputRange<'a, V, M> {
    layer: &'a Linear<'a>,
    tiles: Range<usize>,
    panels: Range<usize>,
    of: PhantomData<(V, M)>,
}

impl<V: Simd, M: Multiplied> WithCurve for OutputRange<'_, V, M> {
    #[inline(always)]
    unsafe fn run<C: Curve>(self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match &self.layer.out {
                Out::Rows(_) => self.blocks::<C, false>(),
                Out::Operand(_) => self.blocks::<C, true>(),
            }
        }
    }
}

impl<V: Simd, M: Multiplied> OutputRange<'_, V, M> {
    /// All blocks of the range; `ONWARD`: as an operand.
    ///
    /// # Safety
    /// As for [`compute`].
    #[inline(always)]
    unsafe fn blocks<C: Curve, const ONWARD: bool>(self) {
        let layer = self.layer;
        let weight = layer.weight;
        let steps = weight.steps();
        let panel_bytes = steps * STEP_BYTES * TILES_COLUMNS;
        let together = (PASSING_BYTES / panel_bytes).max(1);
        let step_lines = STEP_BYTES * TILES_COLUMNS / LINE_BYTES;
        // The hardware sees by itself that one tile of rows passes weights in the order of memory.
        let next_lines = match self.tiles.len() {
            1 => 0,
            tiles => step_lines.div_ceil(tiles),
        };
        let shares = shares(steps);
        let mut unit = Unit { rows: 0 };
        let mut block = Block([0.0; TILES_ROWS * TILES_COLUMNS]);
        let mut before = Finishing::nothing(layer);
        // Rows are spread evenly: a tile of a few would wait for weights.
        let count = layer.rows.rows();
        let all_tiles = count.div_ceil(TILES_ROWS);
        let mut forth = false;
        let mut start = self.panels.start;
        while start < self.panels.end {
            forth = !forth;
            let group = start..(start + together).min(self.panels.end);
            start = group.end;
            let mut next = weight.tiles(group.end - 1).as_ptr().cast::<u8>();
            next = next.wrapping_add(panel_bytes);
            for place in 0..self.tiles.len() {
                // There and back, so that tiles of one size follow each other.
                let tile = match forth {
                    true => self.tiles.start + place,
                    false => self.tiles.end - 1 - place,
                };
                let rows = share(count, all_tiles, tile);
                // SAFETY: rows and panels are within the layer, and the block's results are
                // this task's.
                unsafe {
                    if unit.rows != rows.len() {
                        before.end::<V, M, C, ONWARD>(&mut block);
                        unit.shape(rows.len());
                    }
                    for panel in group.clone() {
                        let factors = Factors {
                            steps,
                            left: layer.rows.row(rows.start),
                            left_stride: layer.rows.stride(),
                            right: weight.tiles(panel).as_ptr().cast(),
                            next,
                            next_lines,
                        };
                        if rows.len() > TILE_ROWS {
                            factors.multiply::<V, M, C, ONWARD, true>(before, &mut block, shares);
                        } else {
                            factors.multiply::<V, M, C, ONWARD, false>(before, &mut block, shares);
                        }
                        before = Finishing::new(layer, rows.clone(), panel * TILES_COLUMNS);
                        next = next.wrapping_add(next_lines * LINE_BYTES * steps);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { before.end::<V, M, C, ONWARD>(&mut block) };
    }
}

/// Asks for some cache lines that will be wanted later; returns where those after them are.
///
/// # Safety
/// The CPU has the vector's instructions.
#[inline(always)]
unsafe fn ask<V: Simd>(mut next: *const u8, lines: usize) -> *const u8 {
    for _ in 0..lines {
        // SAFETY: handed on to the caller.
        unsafe { V::prefetch_later(next.cast()) };
        next = next.wrapping_add(LINE_BYTES);
    }
    next
}

/// How many rows are finished after each product, so that all are in `steps` − 1 steps.
fn shares(steps: usize) -> [usize; PRODUCTS] {
    let rows = TILES_ROWS.div_ceil(steps.saturating_sub(1).max(1));
    std::array::from_fn(|product| share(rows, PRODUCTS, product).len())
}

/// A block whose products are done: what is left to finish of it. Pointers, because the
/// compiler cannot know that the assembly leaves a layer as it is.
#[derive(Clone, Copy)]
pub(crate) struct Finishing<'a> {
    layer: &'a Linear<'a>,
    /// The rows that are left, and how many the block has.
    left: usize,
    rows: usize,
    column: usize,
    /// Of the columns; null: there is none.
    bias: *const f32,
    factors: *const f32,
    /// Of the next row's columns.
    out: *mut u8,
    /// Bytes between rows of `out`.
    out_stride: usize,
    /// Whether results are added to what `out` holds, which are f32 rows.
    residual: bool,
    /// Of i8: the next row's tail, and the columns' scales.
    tail: *const Tail,
    scales: *const f32,
}

impl<'a> Finishing<'a> {
    fn nothing(layer: &'a Linear<'a>) -> Finishing<'a> {
        Finishing {
            layer,
            left: 0,
            rows: 0,
            column: 0,
            bias: ptr::null(),
            factors: ptr::null(),
            out: ptr::null_mut(),
            out_stride: 0,
            residual: false,
            tail: ptr::null(),
            scales: ptr::null(),
        }
    }

    /// # Safety
    /// Rows and columns are within the layer, and their results are the task's.
    #[inline(always)]
    unsafe fn new(layer: &'a Linear<'a>, rows: Range<usize>, column: usize) -> Finishing<'a> {
        let outputs = layer.weight.outputs();
        let at = rows.start * outputs + column;
        let of = |values: Option<&[f32]>| match values {
            Some(values) => values.as_ptr().wrapping_add(column),
            None => ptr::null(),
        };
        // SAFETY: handed on to the caller.
        let (out, out_stride) = unsafe {
            match &layer.out {
                Out::Rows(out) => (out.at(at).cast(), 4 * outputs),
                Out::Operand(operand) => {
                    let row = operand.row(rows.start);
                    (row.add(2 * column), operand.form.stride())
                }
            }
        };
        Finishing {
            layer,
            left: rows.len(),
            rows: rows.len(),
            column,
            bias: of(layer.epilogue.bias),
            factors: of(layer.epilogue.factors),
            out,
            out_stride,
            residual: layer.epilogue.residual,
            tail: layer.rows.tails().as_ptr().wrapping_add(rows.start),
            scales: layer.weight.scales().as_ptr().wrapping_add(column),
        }
    }

    /// Finishes at most so many of the rows that are left.
    ///
    /// # Safety
    /// The sums have left the unit; otherwise as for [`Finishing::new`].
    #[inline(always)]
    unsafe fn finish<V: Simd, M: Multiplied, C: Curve, const ONWARD: bool>(
        &mut self,
        block: &Block,
        count: usize,
    ) {
        for _ in 0..count {
            if self.left == 0 {
                return;
            }
            let sums = block
                .0
                .as_ptr()
                .wrapping_add((self.rows - self.left) * TILES_COLUMNS);
            let mut column = 0;
            while column < TILES_COLUMNS {
                // SAFETY: a vector of columns is within the panel's, for which there are
                // a bias and factors, if there are any.
                unsafe {
                    let mut value: V = M::value(self, sums.add(column), column);
                    if !self.bias.is_null() {
                        value = value.add(V::load(self.bias.add(column)));
                    }
                    value = C::at(value);
                    if !self.factors.is_null() {
                        value = value.mul(V::load(self.factors.add(column)));
                    }
                    if ONWARD {
                        value.store_bf16(self.out.cast::<u16>().add(column));
                    } else {
                        let out = self.out.cast::<f32>().add(column);
                        if self.residual {
                            value = value.add(V::load(out));
                        }
                        value.store(out);
                    }
                }
                column += V::LANES;
            }
            self.left -= 1;
            self.out = self.out.wrapping_add(self.out_stride);
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Finishes the block whose sums are still in the unit.
    ///
    /// # Safety
    /// As for [`Finishing::new`].
    #[inline(always)]
    unsafe fn end<V: Simd, M: Multiplied, C: Curve, const ONWARD: bool>(
        &mut self,
        block: &mut Block,
    ) {
        if self.left == 0 {
            return;
        }
        // SAFETY: handed on to the caller.
        unsafe {
            leave::<0>(block);
            leave::<1>(block);
            if self.rows > TILE_ROWS {
                leave::<2>(block);
                leave::<3>(block);
            }
            self.finish::<V, M, C, ONWARD>(block, TILES_ROWS);
        }
    }
}

/// The two sides of a block's products.
struct Factors {
    steps: usize,
    left: *const u8,
    left_stride: usize,
    right: *const u8,
    /// Cache lines that will be wanted later, so many a step.
    next: *const u8,
    next_lines: usize,
}

impl Factors {
    /// Multiplies a block of one row of tiles, or of `TWO`, and finishes the one before.
    ///
    /// # Safety
    /// Tiles are configured for the block and the one before; the factors are there.
    #[inline(always)]
    unsafe fn multiply<V: Simd, M: Multiplied, C: Curve, const ONWARD: bool, const TWO: bool>(
        self,
        mut before: Finishing<'_>,
        block: &mut Block,
        shares: [usize; PRODUCTS],
    ) {
        let Factors {
            steps,
            mut left,
            left_stride,
            mut right,
            mut next,
            next_lines,
        } = self;
        let pending = before.left > 0;
        // SAFETY: handed on to the caller: each side has its steps.
        unsafe {
            next = ask::<V>(next, next_lines);
            load::<6>(right, STEP_BYTES);
            load::<4>(left, left_stride);
            if pending {
                leave::<0>(block);
            }
            clear::<0>();
            M::product::<0>();
            load::<7>(right.wrapping_add(TILE_BYTES), STEP_BYTES);
            if pending {
                leave::<1>(block);
            }
            clear::<1>();
            M::product::<1>();
            if TWO {
                load::<5>(left.wrapping_add(TILE_ROWS * left_stride), left_stride);
                if pending {
                    leave::<2>(block);
                }
                clear::<2>();
                M::product::<2>();
                if pending {
                    leave::<3>(block);
                }
                clear::<3>();
                M::product::<3>();
            }
            for _ in 1..steps {
                next = ask::<V>(next, next_lines);
                left = left.wrapping_add(STEP_BYTES);
                right = right.wrapping_add(2 * TILE_BYTES);
                load::<6>(right, STEP_BYTES);
                load::<4>(left, left_stride);
                M::product::<0>();
                before.finish::<V, M, C, ONWARD>(block, shares[0]);
                load::<7>(right.wrapping_add(TILE_BYTES), STEP_BYTES);
                M::product::<1>();
                before.finish::<V, M, C, ONWARD>(block, shares[1]);
                if TWO {
                    load::<5>(left.wrapping_add(TILE_ROWS * left_stride), left_stride);
                    M::product::<2>();
                }
                before.finish::<V, M, C, ONWARD>(block, shares[2]);
                if TWO {
                    M::product::<3>();
                }
                before.finish::<V, M, C, ONWARD>(block, shares[3]);
            }
            before.finish::<V, M, C, ONWARD>(block, TILES_ROWS);
        }
    }
}
