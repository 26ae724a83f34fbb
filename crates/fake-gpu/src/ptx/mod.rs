//! An interpreter of PTX, as far as kernels of this house use it (NVIDIA's "Parallel Thread
//! Execution ISA").
//!
//! `parse` takes a module's text apart; `decode` makes each statement an instruction, whose
//! arithmetic, if it is arithmetic, comes from `alu`. What is not understood is an error when the module is loaded, never
//! when it runs. `block` runs the blocks of a launch on the host's cores, `warp` the instructions: a register
//! is 32 lanes, and an instruction does them all. Lanes that take different ways run in the
//! order of the code, the ones furthest behind first, and join where they meet. `memory` is what loads and stores
//! reach, `matrix` the tensor cores.

use cudarc::driver::sys::CUresult;

mod alu;
mod block;
mod decode;
mod matrix;
mod memory;
mod parse;
mod warp;

pub use block::{Grid, run};
pub use parse::{Kernel, Module};

/// Threads of a warp.
pub const LANES: usize = 32;

/// A register of a warp: the lanes' values, each in as many low bits as its type has.
pub type Lanes = [u64; LANES];

/// What ends a launch: the driver's code, and the words for whoever looks for the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    /// `CUresult`.
    pub code: u32,
    /// What happened, and where.
    pub words: String,
}

impl Trap {
    fn new(code: u32, words: impl Into<String>) -> Trap {
        Trap {
            code,
            words: words.into(),
        }
    }
}

/// An access outside every allocation.
pub const ILLEGAL_ADDRESS: u32 = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as u32;
/// An access at an address that is no multiple of its size.
pub const MISALIGNED_ADDRESS: u32 = CUresult::CUDA_ERROR_MISALIGNED_ADDRESS as u32;
/// Everything that a device has no better name for.
pub const LAUNCH_FAILED: u32 = CUresult::CUDA_ERROR_LAUNCH_FAILED as u32;
