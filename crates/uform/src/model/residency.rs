//! Where a model's weights are.

use std::fmt;

use crate::executor::{Executor, ExecutorKind};
use crate::{Error, Result};

/// Where a model's weights are, which says who computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residency {
    /// In host memory: computed by host threads.
    Ram,
    /// In the memory of GPUs: computed there.
    Vram,
}

impl Residency {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Residency::Ram => "ram",
            Residency::Vram => "vram",
        }
    }

    /// Whether an executor computes models that reside here.
    ///
    /// # Errors
    /// `InvalidArgument` saying which is which.
    pub(super) fn fits(self, executor: &Executor) -> Result<()> {
        let kind = executor.kind();
        let (model, way_out) = match (self, kind) {
            (Residency::Ram, ExecutorKind::Vram) => (
                "host memory",
                "Executor.forRam, or load the model with Model.loadVram",
            ),
            (Residency::Vram, ExecutorKind::Vram) | (Residency::Ram, _) => return Ok(()),
            (Residency::Vram, _) => (
                "the memory of GPUs",
                "Executor.forVram, or load the model with Model.loadRam",
            ),
        };
        Err(Error::invalid(format!(
            "the model resides in {model} and the executor is {}: pass one made with {way_out}",
            kind.words()
        )))
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
