//! What the program does, one section after the other.
//!
//! Each runs in a process of its own: a fault ends a device for its process, and a crash would
//! hide what comes after it.

mod faults;
mod kernels;
mod loads;
mod memory;
mod model;
mod rates;

use std::path::PathBuf;

use uform::Result;

use crate::Report;

/// What a section works on.
#[derive(Clone, Debug)]
pub struct Context {
    /// NVIDIA's device of this number.
    pub device: u32,
    /// Sizes that an interpreter gets through; else those of real use.
    pub is_small: bool,
    /// The folder of the model.
    pub model: PathBuf,
}

/// A section: what it looks at it tells the report; an error is the end of it.
pub type Section = fn(&Context, &mut Report) -> Result<()>;

/// All of them, and what they are called.
pub const ALL: [(&str, Section); 6] = [
    ("loads", loads::run),
    ("kernels", kernels::run),
    ("rates", rates::run),
    ("model", model::run),
    ("memory", memory::run),
    ("faults", faults::run),
];
