//! Arithmetic on slices: the dense layers, attention and norms of a transformer.
//!
//! One file a CPU class, one table of functions for each precision, chosen once. [`Kernels::of`]
//! walks the class's fall-to chain to the nearest class with code of its own; the
//! `serial` folder is plain Rust and the yardstick the others are compared with. The
//! vector classes share their algorithms, which are generic over an instruction set's
//! vector (`vector/`), and differ in that vector and the shape of the register tile.
//!
//! Dense layers multiply f32 rows, or rows in bf16 or i8: `precision` says how these round, to
//! the bit and for every class, and `operand` how the rows lie. `packed` lays out the weights,
//! and `region` finds the memory for them.
//!
//! Every operation works on a *ragged batch*: rows are the tokens of all texts
//! laid end to end. A row is computed by the same instructions in the same order
//! whatever else is in the batch and however the work is split over lanes: in f32 a
//! dot product is one chain of fused multiply-adds over ascending `k`, so that the
//! tile it falls in cannot change it, and a sum over a row has one order.
//!
//! The methods of [`Kernels`] are safe: they check every shape, cut the work into
//! tasks for a [`ForkJoin`] team, and call the class's function for each. Only
//! packing allocates.
//!
//! What the arithmetic stands on is here as well: [`error`], [`quoted`] and [`memory`], and [`cpu`], which says
//! which classes there are and which of them this machine runs. It asks [`features`], the only file
//! that differs from processor to processor.
//!
//! This is a crate of its own because it takes longer to compile than all that is built on it.

// Vectors of 64-bit WebAssembly, whose builds need the unstable standard library anyway.
#![cfg_attr(target_arch = "wasm64", feature(simd_wasm64))]

#[cfg(target_arch = "x86_64")]
mod amx_permission;
mod attention;
mod coefficients;
pub mod cpu;
pub mod error;
pub mod features;
pub mod fork_join;
mod linear;
pub mod memory;
mod operand;
mod packed;
mod precision;
pub mod quoted;
mod region;
mod rows;
mod serial;

#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod amx;
#[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
mod apple_m2;
#[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
mod aws_g2;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod haswell;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod icelake;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod sapphire;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod skylake;
#[cfg(test)]
mod tests;
#[cfg(all(
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        all(target_family = "wasm", target_feature = "simd128")
    ),
    not(feature = "monoversioned")
))]
mod vector;
#[cfg(all(
    target_family = "wasm",
    target_feature = "simd128",
    not(feature = "monoversioned")
))]
mod wasm;

use std::ops::Range;

pub use fork_join::{ForkJoin, Solo};
pub use linear::{Activation, Epilogue};
pub use operand::Operand;
pub use packed::{Packed, Quantized};
pub use precision::{Precision, balance, quantize};
pub use region::Region;
pub use rows::{Embedding, Norm};

use cpu::CpuClass;
pub use error::{Error, Result, Status};

/// The operations of one class in one precision.
///
/// Each function of the table does one task of an operation, and trusts its caller: the CPU
/// has the class's instructions, the job's slices fit each other, the task lies within
/// the batch, and no other thread touches its part of the output (nor its scratch).
pub struct Kernels {
    class: CpuClass,
    precision: Precision,
    /// Whether this machine has the class's instructions.
    runs_here: fn() -> bool,
    /// The most rows of a dense layer's tile.
    tile_rows: usize,
    /// How many outputs are packed side by side.
    panel_columns: usize,
    linear: unsafe fn(&linear::Linear<'_>, tiles: Range<usize>, panels: Range<usize>),
    layer_norm: unsafe fn(&rows::Normed<'_>, rows: Range<usize>),
    embed: unsafe fn(&rows::Embedded<'_>, rows: Range<usize>),
    convert: unsafe fn(&operand::Conversion<'_>, rows: Range<usize>),
    /// The most queries attention computes together.
    query_rows: usize,
    attention: unsafe fn(&attention::Attention<'_>, &attention::AttentionTask, scratch: *mut f32),
    /// Elements of scratch a lane needs, by the longest text and the head size.
    attention_scratch: fn(usize, usize) -> usize,
}

/// Every class with code of its own in this build, for each precision it has code for.
static TABLES: &[&Kernels] = &[
    &serial::F32,
    &serial::BF16,
    &serial::I8,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &haswell::F32,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &haswell::BF16,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &haswell::I8,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &skylake::F32,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &skylake::BF16,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &skylake::I8,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &icelake::I8,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &sapphire::BF16,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &sapphire::I8,
    #[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
    &aws_g2::F32,
    #[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
    &aws_g2::BF16,
    #[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
    &aws_g2::I8,
    #[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
    &apple_m2::BF16,
    #[cfg(all(target_arch = "aarch64", not(feature = "monoversioned")))]
    &apple_m2::I8,
    #[cfg(all(
        target_family = "wasm",
        target_feature = "simd128",
        not(feature = "monoversioned")
    ))]
    &wasm::F32,
    #[cfg(all(
        target_family = "wasm",
        target_feature = "simd128",
        not(feature = "monoversioned")
    ))]
    &wasm::BF16,
    #[cfg(all(
        target_family = "wasm",
        target_feature = "simd128",
        not(feature = "monoversioned")
    ))]
    &wasm::I8,
];

impl Kernels {
    /// The kernels of `class` in `precision`, or of the nearest class it falls to that has code
    /// for it; `serial` at the end.
    ///
    /// # Panics
    /// When this machine lacks the instructions of those kernels: a class is checked where the
    /// caller pins it.
    pub fn of(class: CpuClass, precision: Precision) -> &'static Kernels {
        let mut tables = TABLES.iter().filter(|one| one.precision == precision);
        let serial = tables
            .next()
            .expect("every precision has a table of `serial`, before all others");
        let mut chain = std::iter::successors(Some(class), |class| class.falls_to());
        let kernels = chain
            .find_map(|class| tables.clone().find(|one| one.class == class))
            .unwrap_or(serial);
        assert!(
            (kernels.runs_here)(),
            "this CPU lacks the instructions of {:?}",
            kernels.class
        );
        kernels
    }

    /// Every class's kernels in every precision it has code for, of those that run on this machine.
    pub fn here() -> impl Iterator<Item = &'static Kernels> {
        TABLES
            .iter()
            .copied()
            .filter(|kernels| (kernels.runs_here)())
    }

    /// The class whose code this is.
    pub fn class(&self) -> CpuClass {
        self.class
    }

    /// The number format in which dense layers multiply.
    pub fn precision(&self) -> Precision {
        self.precision
    }
}

/// The `index`-th of `shares` even shares of `0..items`, in order; the share after the last
/// is empty, at the end.
pub(crate) fn share(items: usize, shares: usize, index: usize) -> Range<usize> {
    let start = |index: usize| items * index.min(shares) / shares;
    start(index)..start(index + 1)
}
