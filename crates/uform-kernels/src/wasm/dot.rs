//! Products of i8 by dot products, exactly.
//!
//! Relaxed SIMD has an instruction for signed bytes by bytes of 7 bits, four products a sum. What it
//! makes of the eighth bit of the second bytes an engine may choose, by its processor, but it chooses
//! once and for all ("parameters are constant during the execution of any given program": WebAssembly
//! 3.0, Relaxed Operations). So it is asked first, by some products that tell. Weights go first, and a
//! row's numbers q, in −127..=127, second:
//!
//! - where the eighth bit is a sign, as they are;
//! - where it is one more bit and no sum of two products is cut to 16 bits, as q + 128. The sums begin
//!   at −128·Σ w.
//!
//! Where it is neither, and without relaxed SIMD, weights and rows are widened to 16 bits, which
//! there is a dot product of two for. (Two dot products of a row's number in two parts of 7 bits are
//! exact as well. But engines have neither only on processors that take five instructions for one.)
//!
//! A product's rows are brought into the form that is multiplied, some steps of them at a time; then
//! all columns of the panel pass by. Rows of no more steps than that are brought into it once for all
//! panels.

#[cfg(target_arch = "wasm32")]
use std::arch::wasm32::*;
#[cfg(target_arch = "wasm64")]
use std::arch::wasm64::*;
use std::mem::MaybeUninit;
use std::ptr;

use crate::operand::STEP_BYTES;
use crate::packed::TILES_COLUMNS;
use crate::share;
use crate::vector::tiles::{TileProduct, Tiles, column_words};

/// Columns of a vector.
const LANES: usize = 4;

/// Rows of bytes whose products are summed side by side: as many as registers have room for. A sum
/// waits for five cycles between two products, of which processors do two a cycle.
const TILE_ROWS: usize = 6;

/// Rows of numbers of 16 bits alike: a product takes a register before it is added.
const WORD_ROWS: usize = 4;

/// Bytes of a row that is prepared: all rows stay in the nearest cache.
const ROW_BYTES: usize = 1024;

/// Groups of four numbers to a step, and outputs to a half of a panel.
const SIDE: usize = STEP_BYTES / 4;

/// A row's groups of some steps.
#[repr(C, align(16))]
struct Groups([MaybeUninit<u8>; ROW_BYTES]);

/// How numbers are multiplied.
#[derive(Clone, Copy)]
enum Way {
    /// As bytes, with this added to those of a row.
    Bytes { offset: i8 },
    /// As numbers of 16 bits.
    Words,
}

/// i8 by dot products.
pub(super) struct Dot {
    /// The rows of a product, of some steps.
    rows: [Groups; Dot::ROWS],
    way: Way,
    /// The product's left side when these are all its steps. A task's rows do not change.
    whole: *const u8,
}

impl Tiles for Dot {
    const INTEGERS: bool = true;
    const ROWS: usize = 5 * TILE_ROWS;

    #[inline(always)]
    unsafe fn begin() -> Self {
        Dot {
            rows: [const { Groups([MaybeUninit::uninit(); ROW_BYTES]) }; Dot::ROWS],
            way: Way::here(),
            whole: ptr::null(),
        }
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        let way = self.way;
        // SAFETY: rows and steps are within the product; what is multiplied was prepared.
        unsafe {
            way.begin_sums(product);
            let most = ROW_BYTES / (SIDE * way.group_bytes());
            for first in (0..product.steps).step_by(most) {
                let steps = most.min(product.steps - first);
                if self.whole != product.left {
                    for (row, groups) in self.rows[..product.rows].iter_mut().enumerate() {
                        let left = product.left.add(row * product.left_stride);
                        way.prepare(left.add(first * STEP_BYTES), steps, groups);
                    }
                }
                let right = product.right.add(first * SIDE * TILES_COLUMNS);
                let tiles = product.rows.div_ceil(way.rows());
                let columns = way.columns();
                for column in (0..TILES_COLUMNS).step_by(columns) {
                    let right = right.add(column_words(column));
                    for tile in 0..tiles {
                        let rows = share(product.rows, tiles, tile);
                        let out = product.out.add(rows.start * TILES_COLUMNS + column);
                        let left = self.rows[rows.start..].as_ptr();
                        match rows.len() {
                            1 => multiply::<1>(way, left.cast(), right, steps, out),
                            2 => multiply::<2>(way, left.cast(), right, steps, out),
                            3 => multiply::<3>(way, left.cast(), right, steps, out),
                            4 => multiply::<4>(way, left.cast(), right, steps, out),
                            5 => multiply::<5>(way, left.cast(), right, steps, out),
                            6 => multiply::<6>(way, left.cast(), right, steps, out),
                            more => unreachable!("a tile of {more} rows"),
                        }
                    }
                }
            }
            if product.steps <= most {
                self.whole = product.left;
            }
        }
    }
}

impl Way {
    /// The engine's.
    #[inline(always)]
    fn here() -> Way {
        match bytes::offset() {
            Some(offset) => Way::Bytes { offset },
            None => Way::Words,
        }
    }

    /// Bytes of a group in the form that is multiplied.
    #[inline(always)]
    fn group_bytes(self) -> usize {
        match self {
            Way::Bytes { .. } => 4,
            Way::Words => 8,
        }
    }

    /// Rows whose products are summed side by side.
    #[inline(always)]
    fn rows(self) -> usize {
        match self {
            Way::Bytes { .. } => TILE_ROWS,
            Way::Words => WORD_ROWS,
        }
    }

    /// Columns whose products are summed side by side.
    #[inline(always)]
    fn columns(self) -> usize {
        match self {
            Way::Bytes { .. } => bytes::COLUMNS,
            Way::Words => LANES,
        }
    }

    /// What the sums of a product are before anything is added: what undoes the offset.
    ///
    /// # Safety
    /// As for [`Tiles::multiply`].
    #[inline(always)]
    unsafe fn begin_sums(self, product: &TileProduct) {
        let is_offset = matches!(self, Way::Bytes { offset: -128 });
        for column in (0..TILES_COLUMNS).step_by(LANES) {
            // SAFETY: rows and columns are within the product.
            unsafe {
                let sum = match is_offset {
                    true => v128_load(product.offsets.add(column).cast()),
                    false => i32x4_splat(0),
                };
                for row in 0..product.rows {
                    v128_store(product.out.add(row * TILES_COLUMNS + column).cast(), sum);
                }
            }
        }
    }

    /// Brings some steps of a row into the form that is multiplied.
    ///
    /// # Safety
    /// `row` has so many steps, and there is room for them.
    #[inline(always)]
    unsafe fn prepare(self, row: *const u8, steps: usize, groups: &mut Groups) {
        let groups = groups.0.as_mut_ptr().cast::<v128>();
        for at in 0..steps * STEP_BYTES / 16 {
            // SAFETY: handed on to the caller: 16 bytes are four groups.
            unsafe {
                let numbers = v128_load(row.add(16 * at).cast());
                match self {
                    Way::Bytes { offset } => {
                        v128_store(groups.add(at), i8x16_add(numbers, i8x16_splat(offset)));
                    }
                    Way::Words => {
                        v128_store(groups.add(2 * at), i16x8_extend_low_i8x16(numbers));
                        v128_store(groups.add(2 * at + 1), i16x8_extend_high_i8x16(numbers));
                    }
                }
            }
        }
    }
}

/// Adds some steps of some rows by a panel.
///
/// # Safety
/// The rows were prepared for so many steps, which the panel has from `right` on; `out` has
/// the rows' sums so far.
#[inline(never)]
unsafe fn multiply<const ROWS: usize>(
    way: Way,
    rows: *const [Groups; ROWS],
    right: *const u32,
    steps: usize,
    out: *mut f32,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        match way {
            Way::Bytes { .. } => bytes::add_sums::<ROWS>(&*rows, right, steps, out),
            Way::Words => add_words::<ROWS>(&*rows, right, steps, out),
        }
    }
}

#[cfg(target_feature = "relaxed-simd")]
mod bytes {
    //! Four products of bytes a sum.

    use std::hint::black_box;

    use super::*;

    /// Vectors of columns whose products are summed side by side.
    const VECTORS: usize = 2;

    /// Their columns.
    pub(super) const COLUMNS: usize = VECTORS * LANES;

    /// Does the same for each of `ROWS` rows. A loop would have to be unrolled, or sums lie in memory: a linker
    /// that makes a module small leaves one of 6 rows as it is.
    macro_rules! each_row {
        ($row:ident $do:block) => {
            each_row!($row $do 0 1 2 3 4 5)
        };
        ($row:ident $do:block $($at:literal)+) => {
            $(if $at < ROWS {
                let $row = $at;
                $do
            })+
        };
    }

    const _: () = assert!(TILE_ROWS == 6, "as many rows as are written out");

    /// What a row's numbers take to be multiplied exactly: by the engine's choice nothing, or 128 as a
    /// byte without a sign; `None`: it multiplies neither.
    #[inline(always)]
    pub(super) fn offset() -> Option<i8> {
        // The extremes, where a sum that is cut would show. No compiler may know better.
        let is = |left: i8, right: i8, product: i32| {
            let (left, right) = black_box((left, right));
            let (left, right) = (i8x16_splat(left), i8x16_splat(right));
            let sums = i32x4_relaxed_dot_i8x16_i7x16_add(left, right, i32x4_splat(0));
            i32x4_extract_lane::<0>(sums) == 4 * product
        };
        if is(127, -127, -127 * 127) && is(-127, -127, 127 * 127) && is(-127, 127, -127 * 127) {
            Some(0)
        } else if is(127, -1, 127 * 255) && is(-127, -1, -127 * 255) {
            Some(-128)
        } else {
            None
        }
    }

    /// Adds the products of some rows and some columns.
    ///
    /// # Safety
    /// The rows were prepared for so many steps, from which `right` has these columns'
    /// weights; `out` has the rows' sums so far, a panel's width apart.
    #[inline(always)]
    pub(super) unsafe fn add_sums<const ROWS: usize>(
        rows: &[Groups; ROWS],
        right: *const u32,
        steps: usize,
        out: *mut f32,
    ) {
        // SAFETY: handed on to the caller.
        unsafe {
            let mut sums = [[i32x4_splat(0); VECTORS]; ROWS];
            each_row!(row {
                let out = out.add(row * TILES_COLUMNS);
                sums[row] = [v128_load(out.cast()), v128_load(out.add(LANES).cast())];
            });
            for step in 0..steps {
                let right = right.add(step * SIDE * TILES_COLUMNS);
                for group in 0..SIDE {
                    let right = right.add(group * SIDE);
                    let weights = [v128_load(right.cast()), v128_load(right.add(LANES).cast())];
                    each_row!(row {
                        let numbers = rows[row].0.as_ptr().cast::<u32>();
                        let factors = v128_load32_splat(numbers.add(step * SIDE + group));
                        let [first, second] = sums[row];
                        sums[row] = [
                            i32x4_relaxed_dot_i8x16_i7x16_add(weights[0], factors, first),
                            i32x4_relaxed_dot_i8x16_i7x16_add(weights[1], factors, second),
                        ];
                    });
                }
            }
            each_row!(row {
                let out = out.add(row * TILES_COLUMNS);
                v128_store(out.cast(), sums[row][0]);
                v128_store(out.add(LANES).cast(), sums[row][1]);
            });
        }
    }
}

#[cfg(not(target_feature = "relaxed-simd"))]
mod bytes {
    //! There is no such dot product.

    pub(super) use super::{LANES as COLUMNS, add_words as add_sums};

    /// None is exact.
    #[inline(always)]
    pub(super) fn offset() -> Option<i8> {
        None
    }
}

/// Adds the products of some rows and a vector of columns, as numbers of 16 bits.
///
/// # Safety
/// The rows were prepared for so many steps, from which `right` has these columns'
/// weights; `out` has the rows' sums so far, a panel's width apart.
#[inline(always)]
unsafe fn add_words<const ROWS: usize>(
    rows: &[Groups; ROWS],
    right: *const u32,
    steps: usize,
    out: *mut f32,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        // Of two columns each: the products of a group's first two numbers, and of its others.
        let mut sums = [[i32x4_splat(0); 2]; ROWS];
        for step in 0..steps {
            let right = right.add(step * SIDE * TILES_COLUMNS);
            for group in 0..SIDE {
                let weights = right.add(group * SIDE).cast::<i8>();
                let low = i16x8_load_extend_i8x8(weights);
                let high = i16x8_load_extend_i8x8(weights.add(8));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let numbers = rows[row].0.as_ptr().cast::<u64>();
                    let factors = v128_load64_splat(numbers.add(step * SIDE + group));
                    sums[0] = i32x4_add(sums[0], i32x4_dot_i16x8(low, factors));
                    sums[1] = i32x4_add(sums[1], i32x4_dot_i16x8(high, factors));
                }
            }
        }
        for (row, [low, high]) in sums.into_iter().enumerate() {
            let out = out.add(row * TILES_COLUMNS).cast();
            let first = i32x4_shuffle::<0, 2, 4, 6>(low, high);
            let others = i32x4_shuffle::<1, 3, 5, 7>(low, high);
            let sum = i32x4_add(i32x4_add(first, others), v128_load(out));
            v128_store(out, sum);
        }
    }
}
