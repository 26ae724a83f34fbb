//! The package as it is published: the addon beside its `package.json`, and `dist/`.

use std::fs;
use std::path::Path;

use crate::command::{cargo, npm_program, run};
use crate::{Result, hwloc, root, target};

/// Both halves; cargo and the TypeScript compiler skip what is up to date.
pub fn all() -> Result {
    addon()?;
    typescript()
}

fn addon() -> Result {
    hwloc::make()?;
    run(cargo()
        .args([
            "build",
            "--release",
            "--package",
            "uform-node",
            "--target-dir",
        ])
        .arg(target()?))?;
    let built = target()?.join("release/libuform_node.so");
    replace(&built, &root().join("npm/linux-x64-gnu/uform.node"))
}

fn typescript() -> Result {
    run(npm_program("tsc").args(["--project", "tsconfig.json"]))
}

/// Copies beside the destination and renames: a process that has the old addon mapped keeps it whole.
fn replace(from: &Path, to: &Path) -> Result {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh)
        .and_then(|_| fs::rename(&fresh, to))
        .map_err(|error| {
            format!(
                "cannot copy {} to {}: {error}",
                from.display(),
                to.display()
            )
        })
}
