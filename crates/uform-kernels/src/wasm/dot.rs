//! Products of i8 by dot products, exactly.
//!
//! Relaxed SIMD has an instruction for signed bytes by bytes of 7 bits, four products a sum, whose
//! result is the same in every engine as long as the second ones lie in 0..=127: no pair of products
//! then exceeds 16 bits, so that it does not matter which way a processor sums them, nor
//! whether it takes the eighth bit for a sign. Weights go first. A row's numbers q, in −127..=127,
//! are offset by 127 and halved: ⌊(q + 127)/2⌋ and what is left of q + 127 are both of 7 bits, and
//! two dot products of one weight add up to (q + 127)·w. The sums begin at −127·Σ w.
//!
//! Without relaxed SIMD both are widened to 16 bits, which there is a dot product of two for.
//!
//! Either way a row's group of four numbers is eight bytes. A product's rows are brought into this
//! form, some steps of them at a time; then all columns of the panel pass by. Rows of no more steps
//! than that are brought into it once for all panels.

#[cfg(target_arch = "wasm32")]
use std::arch::wasm32::*;
#[cfg(target_arch = "wasm64")]
use std::arch::wasm64::*;
use std::mem::MaybeUninit;
use std::ptr;

use crate::operand::STEP_BYTES;
use crate::packed::TILES_COLUMNS;
use crate::share;
use crate::vector::tiles::{TILES_ROWS, TileProduct, Tiles};

/// Rows whose products are summed side by side.
const ROWS: usize = if cfg!(target_feature = "relaxed-simd") {
    6
} else {
    4
};

/// Vectors of columns whose products are.
const VECTORS: usize = if cfg!(target_feature = "relaxed-simd") {
    2
} else {
    1
};

/// Columns of a vector.
const LANES: usize = 4;

/// Steps that rows are prepared for at a time: they stay in the nearest cache.
const STEPS: usize = 8;

/// Groups of four bytes to a step, and outputs to a half of a panel.
const SIDE: usize = STEP_BYTES / 4;

/// A row's groups of some steps, eight bytes each.
type Groups = [MaybeUninit<u64>; STEPS * SIDE];

/// i8 by dot products.
pub(super) struct Dot {
    /// The rows of a product, of some steps.
    rows: [Groups; TILES_ROWS],
    /// The product's left side when these are all its steps. A task's rows do not change.
    whole: *const u8,
}

impl Tiles for Dot {
    const INTEGERS: bool = true;

    #[inline(always)]
    unsafe fn begin() -> Self {
        Dot {
            rows: [[MaybeUninit::uninit(); STEPS * SIDE]; TILES_ROWS],
            whole: ptr::null(),
        }
    }

    #[inline(always)]
    unsafe fn multiply(&mut self, product: &TileProduct) {
        // SAFETY: rows and steps are within the product; what is multiplied was prepared.
        unsafe {
            begin_sums(product);
            for first in (0..product.steps).step_by(STEPS) {
                let steps = STEPS.min(product.steps - first);
                if self.whole != product.left {
                    for (row, groups) in self.rows[..product.rows].iter_mut().enumerate() {
                        let left = product.left.add(row * product.left_stride);
                        prepare(left.add(first * STEP_BYTES), steps, groups);
                    }
                }
                let tiles = product.rows.div_ceil(ROWS);
                for tile in 0..tiles {
                    let rows = share(product.rows, tiles, tile);
                    let out = product.out.add(rows.start * TILES_COLUMNS);
                    let right = product.right.add(first * SIDE * TILES_COLUMNS);
                    let left = self.rows[rows.start..].as_ptr();
                    match rows.len() {
                        1 => multiply::<1>(left.cast(), right, steps, out),
                        2 => multiply::<2>(left.cast(), right, steps, out),
                        3 => multiply::<3>(left.cast(), right, steps, out),
                        4 => multiply::<4>(left.cast(), right, steps, out),
                        5 if ROWS > 4 => multiply::<5>(left.cast(), right, steps, out),
                        6 if ROWS > 4 => multiply::<6>(left.cast(), right, steps, out),
                        more => unreachable!("a tile of {more} rows"),
                    }
                }
            }
            if product.steps <= STEPS {
                self.whole = product.left;
            }
        }
    }
}

/// What the sums of a product are before anything is added.
///
/// # Safety
/// As for [`Tiles::multiply`].
#[inline(always)]
unsafe fn begin_sums(product: &TileProduct) {
    for column in (0..TILES_COLUMNS).step_by(LANES) {
        // SAFETY: rows and columns are within the product.
        unsafe {
            let sum = begin(product.offsets.wrapping_add(column));
            for row in 0..product.rows {
                v128_store(product.out.add(row * TILES_COLUMNS + column).cast(), sum);
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
    rows: *const [Groups; ROWS],
    right: *const u32,
    steps: usize,
    out: *mut f32,
) {
    for column in (0..TILES_COLUMNS).step_by(VECTORS * LANES) {
        let at = column / SIDE * SIDE * SIDE + column % SIDE;
        // SAFETY: handed on to the caller; columns are within the panel.
        unsafe { add_sums::<ROWS>(&*rows, right.add(at), steps, out.add(column)) };
    }
}

/// Brings some steps of a row into the form that is multiplied.
///
/// # Safety
/// `row` has so many steps.
#[inline(always)]
unsafe fn prepare(row: *const u8, steps: usize, groups: &mut Groups) {
    let groups = groups.as_mut_ptr().cast::<v128>();
    for at in 0..steps * STEP_BYTES / 16 {
        // SAFETY: as many groups as the steps have, two to a vector.
        unsafe {
            let [low, high] = spread(v128_load(row.add(16 * at).cast()));
            v128_store(groups.add(2 * at), low);
            v128_store(groups.add(2 * at + 1), high);
        }
    }
}

#[cfg(target_feature = "relaxed-simd")]
mod by {
    //! Two dot products of 7 bits.

    use super::*;

    /// Four groups, eight bytes each: one half of q + 127, then the other.
    #[inline(always)]
    pub(super) fn spread(bytes: v128) -> [v128; 2] {
        let offset = i8x16_add(bytes, i8x16_splat(127));
        let half = v128_and(u16x8_shr(offset, 1), i8x16_splat(0x7f));
        let rest = i8x16_sub(offset, half);
        [
            i32x4_shuffle::<0, 4, 1, 5>(half, rest),
            i32x4_shuffle::<2, 6, 3, 7>(half, rest),
        ]
    }

    /// What sums begin at: −127·Σ w, of −128·Σ w.
    ///
    /// # Safety
    /// There is a vector of `offsets`.
    #[inline(always)]
    pub(super) unsafe fn begin(offsets: *const i32) -> v128 {
        // SAFETY: handed on to the caller.
        let by_128 = unsafe { v128_load(offsets.cast()) };
        i32x4_sub(by_128, i32x4_shr(by_128, 7))
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
            for (row, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = v128_load(out.add(row * TILES_COLUMNS + vector * LANES).cast());
                }
            }
            for step in 0..steps {
                let right = right.add(step * SIDE * TILES_COLUMNS);
                for group in 0..SIDE {
                    let mut weights = [i32x4_splat(0); VECTORS];
                    for (vector, weights) in weights.iter_mut().enumerate() {
                        *weights = v128_load(right.add(group * SIDE + vector * LANES).cast());
                    }
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let halves = rows[row].as_ptr().add(step * SIDE + group).cast::<u32>();
                        for half in 0..2 {
                            let factors = v128_load32_splat(halves.add(half));
                            for (sum, weights) in sums.iter_mut().zip(weights) {
                                *sum = i32x4_relaxed_dot_i8x16_i7x16_add(weights, factors, *sum);
                            }
                        }
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (vector, sum) in sums.iter().enumerate() {
                    v128_store(out.add(row * TILES_COLUMNS + vector * LANES).cast(), *sum);
                }
            }
        }
    }
}

#[cfg(not(target_feature = "relaxed-simd"))]
mod by {
    //! Dot products of 16 bits.

    use super::*;

    /// Four groups, eight bytes each: numbers of 16 bits.
    #[inline(always)]
    pub(super) fn spread(bytes: v128) -> [v128; 2] {
        [
            i16x8_extend_low_i8x16(bytes),
            i16x8_extend_high_i8x16(bytes),
        ]
    }

    /// What sums begin at: there is no offset to undo.
    ///
    /// # Safety
    /// None asked.
    #[inline(always)]
    pub(super) unsafe fn begin(_: *const i32) -> v128 {
        i32x4_splat(0)
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
            // Of two columns each: the products of a group's first two numbers, and of its others.
            let mut sums = [[i32x4_splat(0); 2]; ROWS];
            for step in 0..steps {
                let right = right.add(step * SIDE * TILES_COLUMNS);
                for group in 0..SIDE {
                    let weights = right.add(group * SIDE).cast::<i8>();
                    let low = i16x8_load_extend_i8x8(weights);
                    let high = i16x8_load_extend_i8x8(weights.add(8));
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let numbers = rows[row].as_ptr().add(step * SIDE + group);
                        let factors = v128_load64_splat(numbers.cast());
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
}

use by::{add_sums, begin, spread};
