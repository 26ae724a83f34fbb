//! The package as it is published: the addon beside its `package.json`, and `dist/` with the
//! WebAssembly modules.

use std::fs;
use std::path::Path;

use crate::command::{cargo, npm_program, run};
use crate::{Result, hwloc, root, target, wasm};

/// All of it; cargo and the TypeScript compiler skip what is up to date.
pub fn all() -> Result {
    // What is missing is told before minutes of compiling.
    wasm::prepare()?;
    addon()?;
    wasm::make(&[])?;
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
    run(npm_program("tsc").args(["--project", "tsconfig.json"]))?;
    run(npm_program("tsc").args(["--project", "tsconfig.web.json"]))?;
    // The same sources are CommonJS in the folder above.
    let package = root().join("dist/web/package.json");
    let text = "{ \"type\": \"module\", \"sideEffects\": [\"./web.js\"] }\n";
    fs::write(&package, text)
        .map_err(|error| format!("cannot write {}: {error}", package.display()))
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
