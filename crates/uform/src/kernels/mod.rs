//! Arithmetic on slices: the dense layers, attention and norms of a transformer.
//!
//! One file a CPU class, one table of functions chosen once. [`Kernels::of`]
//! walks the class's fall-to chain to the nearest class with code of its own; the
//! `serial` file is plain Rust and the yardstick the others are compared with. The
//! vector classes share their algorithms, which are generic over an instruction set's
//! vector (`vector/`), and differ in that vector and the shape of the register tile.
//!
//! Every operation works on a *ragged batch*: rows are the tokens of all texts
//! laid end to end. A row is computed by the same instructions in the same order
//! whatever else is in the batch and however the work is split over lanes: a
//! dot product is one chain of fused multiply-adds over ascending `k`, so that the
//! tile it falls in cannot change it, and a sum over a row has one order.
//!
//! The methods of [`Kernels`] are safe: they check every shape, cut the work into
//! tasks for a [`ForkJoin`] team, and call the class's function for each. Only
//! [`Kernels::pack`] allocates.

mod attention;
mod coefficients;
pub mod fork_join;
mod linear;
mod packed;
mod rows;
mod serial;

#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod haswell;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod skylake;
#[cfg(test)]
mod tests;
#[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
mod vector;

use std::ops::Range;

pub use fork_join::{ForkJoin, Solo};
pub use linear::{Activation, Epilogue};
pub use packed::Packed;
pub use rows::{Embedding, Norm};

use crate::hardware::CpuClass;
use crate::{Error, Result};

/// The number format weights are multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// IEEE 754 single precision.
    #[default]
    F32,
}

impl Precision {
    /// The precision a caller's word stands for; `"auto"` is the class's fastest that keeps the
    /// published accuracy, today [`Precision::F32`] on every class.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for any other word, naming those that would do.
    pub fn parse(word: &str) -> Result<Precision> {
        match word {
            "auto" | "f32" => Ok(Precision::F32),
            _ => Err(Error::invalid(format!(
                "precision: {word:?} is not known; it is one of \"auto\", \"f32\""
            ))),
        }
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
        }
    }
}

/// The operations of one class.
///
/// Each function of the table does one task of an operation, and trusts its caller: the CPU
/// has the class's instructions, the job's slices fit each other, the task lies within
/// the batch, and nobody else touches its part of the output (nor its scratch).
pub struct Kernels {
    class: CpuClass,
    /// Whether this machine has the class's instructions.
    runs_here: fn() -> bool,
    /// The most rows of a register tile.
    tile_rows: usize,
    /// How many outputs are packed side by side.
    panel_columns: usize,
    linear: unsafe fn(&linear::Linear<'_>, tiles: Range<usize>, panels: Range<usize>),
    layer_norm: unsafe fn(&rows::Normed<'_>, rows: Range<usize>),
    embed: unsafe fn(&rows::Embedded<'_>, rows: Range<usize>),
    attention: unsafe fn(&attention::Attention<'_>, &attention::Piece, scratch: *mut f32),
    /// Elements of scratch a lane needs, by the longest text and the head size.
    attention_scratch: fn(usize, usize) -> usize,
}

/// Every class with code of its own in this build.
static TABLES: &[&Kernels] = &[
    &serial::KERNELS,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &haswell::KERNELS,
    #[cfg(all(target_arch = "x86_64", not(feature = "monoversioned")))]
    &skylake::KERNELS,
];

impl Kernels {
    /// The kernels of `class`, or of the nearest class it falls to; `serial` at the end.
    ///
    /// # Panics
    /// When this machine lacks the instructions of those kernels: a class is checked where the
    /// caller pins it.
    pub fn of(class: CpuClass, precision: Precision) -> &'static Kernels {
        match precision {
            Precision::F32 => {}
        }
        let mut chain = std::iter::successors(Some(class), |class| class.falls_to());
        let kernels = chain
            .find_map(|class| TABLES.iter().find(|kernels| kernels.class == class))
            .copied()
            .unwrap_or(&serial::KERNELS);
        assert!(
            (kernels.runs_here)(),
            "this CPU lacks the instructions of {:?}",
            kernels.class
        );
        kernels
    }

    /// The kernels of every class that has code of its own in this build and runs on this machine.
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
}

/// The `index`-th of `pieces` even shares of `0..items`, in order; the share after the last
/// is empty, at the end.
pub(crate) fn share(items: usize, pieces: usize, index: usize) -> Range<usize> {
    let start = |index: usize| items * index.min(pieces) / pieces;
    start(index)..start(index + 1)
}
