//! A made-up model of two small layers, for tests in other languages: the engine's example writes it.

use std::process::Command;

use crate::command::{cargo, run};
use crate::{Result, hwloc, target};

/// Writes the model's folder. Built with the whole workspace, as its tests are: alone it would have the
/// engine compiled once more, for other features of what both stand on.
pub fn make(folder: &str) -> Result {
    hwloc::make()?;
    run(cargo()
        .args(["build", "--workspace", "--example", "tiny_model"])
        .arg("--target-dir")
        .arg(target()?))?;
    run(Command::new(target()?.join("debug/examples/tiny_model")).args([folder, "small"]))
}
