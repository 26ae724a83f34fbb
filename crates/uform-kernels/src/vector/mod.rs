//! The algorithms of the vector classes, written once.
//!
//! [`Simd`] is one vector of `f32` lanes: the little that the kernels ask of an
//! instruction set. Everything here is generic over it and marked `#[inline(always)]` down
//! to the last method. A class file instantiates it inside functions that enable the
//! class's instructions; there it is inlined and becomes straight code of that
//! instruction set. The generic code holds no closures, since a closure would not inherit the
//! enabled instructions.

pub(super) mod attention;
pub(super) mod attention_bf16;
pub(super) mod convert;
pub(super) mod curves;
pub(super) mod linear;
pub(super) mod rows;
pub(super) mod tile;
pub(super) mod tiles;

use tile::Product;

#[cfg(target_family = "wasm")]
pub(crate) use built_in as detected;
#[cfg(target_arch = "aarch64")]
pub(crate) use std::arch::is_aarch64_feature_detected as detected;
#[cfg(target_arch = "x86_64")]
pub(crate) use std::arch::is_x86_feature_detected as detected;

/// What a module was built with, an engine that loaded it has.
#[cfg(target_family = "wasm")]
macro_rules! built_in {
    ($feature:tt) => {
        cfg!(target_feature = $feature)
    };
}
#[cfg(target_family = "wasm")]
pub(crate) use built_in;

/// The tables of a class and their entry points: the generic algorithms, compiled with the
/// class's instructions. The features are named once, so that what is compiled and what is
/// looked for on the machine cannot differ. `$i8` is who multiplies tiles of i8.
macro_rules! class {
    ($vector:ident, $class:expr, [$($feature:tt),+]) => {
        vector::class!($vector, $class, [$($feature),+], VectorI8<$vector>);
    };
    ($vector:ident, $class:expr, [$($feature:tt),+], $i8:ty) => {
        pub(super) const TABLE: Kernels = Kernels {
            class: $class,
            precision: Precision::F32,
            runs_here: || $(vector::detected!($feature))&&+,
            tile_rows: $vector::TILE_ROWS,
            panel_columns: $vector::TILE_VECTORS * $vector::LANES,
            linear,
            layer_norm,
            embed,
            convert,
            query_rows: $vector::TILE_ROWS,
            attention,
            attention_scratch: vector::attention::scratch::<$vector>,
        };

        pub(super) const BF16_TABLE: Kernels = Kernels {
            precision: Precision::Bf16,
            tile_rows: TILES_ROWS,
            panel_columns: TILES_COLUMNS,
            linear: linear_bf16,
            query_rows: TILES_ROWS,
            attention: attention_bf16,
            attention_scratch: vector::attention_bf16::scratch,
            ..TABLE
        };
        pub(super) const I8_TABLE: Kernels = Kernels {
            precision: Precision::I8,
            tile_rows: <$i8 as vector::tiles::Tiles>::ROWS,
            panel_columns: TILES_COLUMNS,
            linear: linear_i8,
            ..TABLE
        };

        pub(super) static F32: Kernels = TABLE;
        pub(super) static BF16: Kernels = BF16_TABLE;
        pub(super) static I8: Kernels = I8_TABLE;

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn linear(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::linear::compute::<$vector>(layer, tiles, panels) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn linear_bf16(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::tiles::compute::<$vector, VectorBf16<$vector>>(layer, tiles, panels) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn linear_i8(layer: &Linear<'_>, tiles: Range<usize>, panels: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::tiles::compute::<$vector, $i8>(layer, tiles, panels) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn layer_norm(normed: &Normed<'_>, rows: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::rows::layer_norm::<$vector>(normed, rows) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn embed(embedded: &Embedded<'_>, rows: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::rows::embed::<$vector>(embedded, rows) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn convert(conversion: &Conversion<'_>, rows: Range<usize>) {
            // SAFETY: handed on to the caller.
            unsafe { vector::convert::convert::<$vector>(conversion, rows) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn attention(job: &Attention<'_>, task: &AttentionTask, scratch: *mut f32) {
            // SAFETY: handed on to the caller.
            unsafe { vector::attention::compute::<$vector>(job, task, scratch) }
        }

        /// # Safety
        /// As stated at [`Kernels`].
        #[target_feature($(enable = $feature),+)]
        unsafe fn attention_bf16(job: &Attention<'_>, task: &AttentionTask, scratch: *mut f32) {
            // SAFETY: handed on to the caller.
            unsafe {
                vector::attention_bf16::compute::<$vector, VectorBf16<$vector>>(job, task, scratch);
            }
        }

        /// # Safety
        /// As for [`Product::run`].
        #[target_feature($(enable = $feature),+)]
        #[inline(never)]
        unsafe fn product(product: &Product) {
            // SAFETY: handed on to the caller.
            unsafe { product.run::<$vector>() }
        }
    };
}
pub(super) use class;

/// A vector of [`Simd::LANES`] lanes of `f32`.
///
/// # Safety
/// Common to all methods: the CPU has the instructions of the implementing class. Methods
/// that take a pointer say in addition how many elements they touch from there on;
/// no alignment is needed.
pub(crate) trait Simd: Copy {
    /// How many `f32` one vector holds.
    const LANES: usize;
    /// Rows of the register tile, at most 8.
    const TILE_ROWS: usize;
    /// Vectors to a row of the register tile, at most 4.
    const TILE_VECTORS: usize;
    /// Steps of a register tile between two counts: few where code is downloaded.
    const TILE_STEPS: usize;
    /// Rows whose bf16 or i8 products are summed side by side: 3 or 6.
    const WORD_ROWS: usize;
    /// Rows of a tile whose results are computed side by side: 1, or 3 where constants have to be read
    /// again and again.
    const FINISH_ROWS: usize = 1;
    /// All bits zero.
    const ZERO: Self;

    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self;
    /// The same numbers, where the class reads them best: as constants, or from memory.
    #[inline(always)]
    fn kept<const N: usize>(numbers: &'static [f32; N]) -> &'static [f32; N] {
        numbers
    }
    /// Asks for a cache line, at any address, into the core's own large cache.
    unsafe fn prefetch_later(from: *const f32);
    /// Reads `LANES` elements.
    unsafe fn load(from: *const f32) -> Self;
    /// Reads `count` elements, at most `LANES`; the other lanes are zero.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut f32);
    /// Writes the first `count` lanes, at most `LANES`.
    unsafe fn store_first(self, to: *mut f32, count: usize);
    /// The first `count` lanes of `self`, the others of `rest`.
    unsafe fn first_or(self, count: usize, rest: Self) -> Self;

    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// `self − other`.
    unsafe fn sub(self, other: Self) -> Self;
    /// `self · other`.
    unsafe fn mul(self, other: Self) -> Self;
    /// `self / other`.
    unsafe fn div(self, other: Self) -> Self;
    /// `self · factor + term`, rounded once where the class has an instruction for it, else twice.
    unsafe fn fma(self, factor: Self, term: Self) -> Self;
    /// The larger; `other` when either is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The larger; anything when either is NaN.
    #[inline(always)]
    unsafe fn max_of_numbers(self, other: Self) -> Self {
        // SAFETY: handed on to the caller.
        unsafe { self.max(other) }
    }
    /// The smaller; `other` when either is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// The smaller; anything when either is NaN.
    #[inline(always)]
    unsafe fn min_of_numbers(self, other: Self) -> Self {
        // SAFETY: handed on to the caller.
        unsafe { self.min(other) }
    }
    /// Each lane's bits shifted left by 23, from the low end of the mantissa to the exponent.
    unsafe fn mantissa_to_exponent(self) -> Self;

    /// Of lanes that are two bf16 numbers, the even ones (in the low half) and the odd ones.
    unsafe fn halves(self) -> (Self, Self);
    /// Of `LANES` bf16 numbers each, lanes that are two of them: `even` in the low half, `odd` in
    /// the high one.
    unsafe fn join(even: *const u16, odd: *const u16) -> Self;
    /// Writes `LANES` bf16 numbers, the nearest, as the module `precision` says.
    unsafe fn store_bf16(self, to: *mut u16);
    /// Lanes that are `i32`: `self` plus the products, summed, of the four signed bytes of
    /// `left`'s lane with those of `right`'s.
    #[cfg(not(target_family = "wasm"))]
    unsafe fn dot_bytes(self, left: Self, right: Self) -> Self;
    /// Lanes that are `i32`: `self` plus `factor` times the signed byte of `right`'s lane at
    /// `byte`, counted from the lowest, 0 to 3.
    unsafe fn add_byte_product(self, factor: i32, right: Self, byte: usize) -> Self;
    /// Lanes that are `i32`, as numbers, to nearest even.
    unsafe fn integers_to_floats(self) -> Self;
    /// The larger of `self`'s bits and those of `other`'s magnitude, as integers: NaN is
    /// larger than any number.
    unsafe fn larger_magnitude(self, other: Self) -> Self;
    /// Writes `LANES` bytes: the lowest of each lane.
    unsafe fn store_low_bytes(self, to: *mut u8);
    /// [`store_low_bytes`](Simd::store_low_bytes) of four vectors, end to end.
    #[inline(always)]
    unsafe fn store_low_bytes_of_four(four: [Self; 4], to: *mut u8) {
        for (place, one) in four.into_iter().enumerate() {
            // SAFETY: handed on to the caller.
            unsafe { one.store_low_bytes(to.add(place * Self::LANES)) };
        }
    }

    /// The sum of all lanes, always added in the same order.
    unsafe fn sum(self) -> f32;
    /// The largest lane; some lane when one of them is NaN.
    unsafe fn largest(self) -> f32;

    /// Transposes the block of `rows` × `columns` elements (at most `LANES` each)
    /// whose rows lie `stride` apart at `from`, into `columns` vectors that lie
    /// `to_stride` apart at `to`. Lanes from `rows` on are zero.
    unsafe fn transpose(
        from: *const f32,
        stride: usize,
        rows: usize,
        columns: usize,
        to: *mut f32,
        to_stride: usize,
    );

    /// A product of `ROWS` rows by `VECTORS` vectors, in registers.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    unsafe fn tile<const VECTORS: usize, const ROWS: usize>(product: &Product) {
        // SAFETY: handed on to the caller.
        unsafe { product.run_tile::<Self, VECTORS, ROWS>() }
    }

    /// [`Product::run`] compiled for this class, out of line: many tiles, one copy.
    ///
    /// # Safety
    /// As for [`Product::run`].
    unsafe fn product(product: &Product);
}

/// Reads `count` elements, at most a vector; without a mask when it is a whole one.
///
/// # Safety
/// As for [`Simd::load_first`].
#[inline(always)]
pub(crate) unsafe fn load_up_to<V: Simd>(from: *const f32, count: usize) -> V {
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
pub(crate) unsafe fn store_up_to<V: Simd>(value: V, to: *mut f32, count: usize) {
    // SAFETY: handed on to the caller.
    unsafe {
        if count == V::LANES {
            value.store(to);
        } else {
            value.store_first(to, count);
        }
    }
}

/// The sum over four vectors.
///
/// # Safety
/// The CPU has the class's instructions.
#[inline(always)]
pub(crate) unsafe fn total<V: Simd>(sums: [V; 4]) -> f32 {
    // SAFETY: handed on to the caller.
    unsafe { sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum() }
}
