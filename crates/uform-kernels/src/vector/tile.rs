//! The register tile: some rows by some vectors of sums, all in registers, fed by
//! broadcasts of one side and vectors of the other. Dense layers and attention both
//! stand on it.

use super::Simd;

/// The most rows of any class's tile.
pub(super) const MOST_ROWS: usize = 8;

/// The most elements of any class's tile: these rows of 3 vectors of 16 lanes.
const TILE: usize = MOST_ROWS * 3 * 16;

/// Elements of a cache line.
pub(crate) const LINE: usize = 16;

/// The weights of a single tile of rows are asked for this many steps of `k` ahead: a panel is one
/// stream through memory, but hardware prefetchers stop at each page. Measured with weights from
/// beyond a core's caches: twice as fast as without, and a tenth faster than 24 steps ahead.
pub(crate) const PREFETCH: usize = 64;

/// A register tile's work: `out[r][c] = Σ left[r][k]·right[k][c]`, k ascending in one chain
/// of fused multiply-adds.
pub(crate) struct Product {
    /// Rows of `left` and `out`, 1 to [`Simd::TILE_ROWS`].
    pub rows: usize,
    /// Vectors to a row of `right` and `out`, 1 to [`Simd::TILE_VECTORS`].
    pub vectors: usize,
    /// How many products make a sum.
    pub depth: usize,
    /// `[rows][depth]`, rows `left_stride` apart.
    pub left: *const f32,
    pub left_stride: usize,
    /// `[depth][vectors]`.
    pub right: *const f32,
    /// `[rows][vectors]`, rows `out_stride` apart.
    pub out: *mut f32,
    pub out_stride: usize,
    /// Cache lines that will be wanted later, asked for evenly over the steps; any address there is
    /// when none will.
    pub next: *const f32,
    pub next_lines: usize,
}

impl Product {
    /// Computes the tile, by code of its own for each count of rows and vectors.
    ///
    /// # Safety
    /// The CPU has the class's instructions, and the pointers' shapes are as described.
    #[inline(always)]
    pub(crate) unsafe fn run<V: Simd>(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match self.vectors {
                1 => self.run_vectors::<V, 1>(),
                2 if V::TILE_VECTORS >= 2 => self.run_vectors::<V, 2>(),
                3 if V::TILE_VECTORS >= 3 => self.run_vectors::<V, 3>(),
                4 if V::TILE_VECTORS >= 4 => self.run_vectors::<V, 4>(),
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
                1 => V::tile::<VECTORS, 1>(self),
                2 => V::tile::<VECTORS, 2>(self),
                3 => V::tile::<VECTORS, 3>(self),
                4 => V::tile::<VECTORS, 4>(self),
                5 if V::TILE_ROWS >= 5 => V::tile::<VECTORS, 5>(self),
                6 if V::TILE_ROWS >= 6 => V::tile::<VECTORS, 6>(self),
                7 if V::TILE_ROWS >= 7 => V::tile::<VECTORS, 7>(self),
                8 if V::TILE_ROWS >= 8 => V::tile::<VECTORS, 8>(self),
                more => unreachable!("a tile of {more} rows"),
            }
        }
    }

    /// Computes the tile in registers, by broadcasts from memory: [`Simd::tile`] where those
    /// cost nothing beside a load.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    pub(super) unsafe fn run_tile<V: Simd, const VECTORS: usize, const ROWS: usize>(&self) {
        // SAFETY: handed on to the caller.
        unsafe {
            match self.next_lines.saturating_mul(V::TILE_STEPS) <= self.depth {
                true => self.run_rounds::<V, VECTORS, ROWS, false>(),
                false => self.run_rounds::<V, VECTORS, ROWS, true>(),
            }
        }
    }

    /// Computes the tile by rounds of [`Simd::TILE_STEPS`] steps, with one count and one move of each
    /// pointer to a round, in which one of the next lines is asked for, or as many as it takes
    /// (`MANY`).
    ///
    /// All that is not a product takes its place in the core, and its share of the power: measured on
    /// AVX-512 in MiniLM's layers of 256 rows, this is an eighth faster than steps that count each for
    /// itself and ask for their weights, which the hardware brings nearer unasked.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    unsafe fn run_rounds<V: Simd, const VECTORS: usize, const ROWS: usize, const MANY: bool>(
        &self,
    ) {
        let rounds = self.depth / V::TILE_STEPS;
        let lines = match MANY {
            true => self.next_lines.div_ceil(rounds.max(1)),
            false => 1,
        };
        // SAFETY: the caller vouches for the pointers' shapes.
        unsafe {
            let mut sums = [[V::ZERO; VECTORS]; ROWS];
            let (mut left, mut right, mut next) = (self.left, self.right, self.next);
            for _ in 0..rounds {
                for _ in 0..lines {
                    V::prefetch_later(next);
                    next = next.wrapping_add(LINE);
                }
                for step in 0..V::TILE_STEPS {
                    let right = right.add(step * VECTORS * V::LANES);
                    add_step(&mut sums, left.add(step), self.left_stride, right);
                }
                left = left.add(V::TILE_STEPS);
                right = right.add(V::TILE_STEPS * VECTORS * V::LANES);
            }
            for _ in 0..self.depth % V::TILE_STEPS {
                add_step(&mut sums, left, self.left_stride, right);
                left = left.add(1);
                right = right.add(VECTORS * V::LANES);
            }
            for (r, row) in sums.iter().enumerate() {
                for (v, sum) in row.iter().enumerate() {
                    sum.store(self.out.add(r * self.out_stride + v * V::LANES));
                }
            }
        }
    }
}

/// Adds the products of one step: a number of each row, `left_stride` apart, times the vectors at
/// `right`.
///
/// # Safety
/// As for [`Product::run`].
#[inline(always)]
unsafe fn add_step<V: Simd, const VECTORS: usize, const ROWS: usize>(
    sums: &mut [[V; VECTORS]; ROWS],
    left: *const f32,
    left_stride: usize,
    right: *const f32,
) {
    // SAFETY: handed on to the caller.
    unsafe {
        let mut columns = [V::ZERO; VECTORS];
        for (v, column) in columns.iter_mut().enumerate() {
            *column = V::load(right.add(v * V::LANES));
        }
        for (r, row) in sums.iter_mut().enumerate() {
            let factor = V::splat(*left.add(r * left_stride));
            for (sum, column) in row.iter_mut().zip(&columns) {
                *sum = factor.fma(*column, *sum);
            }
        }
    }
}

/// A register tile, left in memory.
#[repr(align(64))]
pub(super) struct Tile([f32; TILE]);

impl Tile {
    /// A tile of zeros.
    pub(super) fn new() -> Tile {
        Tile([0.0; TILE])
    }

    /// Its elements, in rows as far apart as its user likes.
    pub(super) fn values(&mut self) -> *mut f32 {
        self.0.as_mut_ptr()
    }
}
