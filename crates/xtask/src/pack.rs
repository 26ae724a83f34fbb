//! The published packages as tarballs.

use std::fs;

use crate::command::{npm, run};
use crate::{Result, build, target};

/// Both packages, into `target/package/`.
pub fn both() -> Result {
    build::all(build::Addon::Published)?;
    let folder = target()?.join("package");
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    run(npm()
        .args(["pack", ".", "./npm/linux-x64-gnu", "--pack-destination"])
        .arg(folder))
}
