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
    join_modules()?;
    // The same sources are CommonJS in the folder above.
    let package = root().join("dist/web/package.json");
    let text = "{ \"type\": \"module\", \"sideEffects\": [\"./web.js\"] }\n";
    fs::write(&package, text)
        .map_err(|error| format!("cannot write {}: {error}", package.display()))
}

/// Joins the modules behind each entry: to find, read and compile each by itself takes longer than all that
/// they do while they are imported.
fn join_modules() -> Result {
    let dist = root().join("dist");
    join(
        "ts/index.ts",
        &dist.join("uform.js"),
        &["--platform=node", "--format=cjs"],
    )?;
    // As compiled: the modules' JavaScript halves are beside that.
    join(
        "dist/web/web.js",
        &dist.join("web/web.js"),
        &["--format=esm", "--allow-overwrite"],
    )?;
    write_entry(&dist)
}

fn join(entry: &str, out: &Path, how: &[&str]) -> Result {
    run(npm_program("esbuild")
        .arg(entry)
        .args(["--bundle", "--target=es2022", "--log-level=warning"])
        .args(how)
        .arg(format!("--outfile={}", out.display())))
}

/// The entry for Node.js is a file of its own: an ES module that imports CommonJS has it looked through for
/// what it exports, letter by letter.
fn write_entry(dist: &Path) -> Result {
    let (joined, entry) = (dist.join("uform.js"), dist.join("index.js"));
    let text = fs::read_to_string(&joined)
        .map_err(|error| format!("cannot read {}: {error}", joined.display()))?;
    // What esbuild ends a module with, for whoever looks for its exports.
    let Some((_, names)) = text.rsplit_once("0 && (module.exports = {") else {
        return Err("esbuild no longer tells what a module exports".into());
    };
    let text = format!(
        "\"use strict\";\nconst uform = require(\"./uform.js\");\nmodule.exports = uform;\n\
         // What it has, for ES modules.\n0 && (module.exports = {{{names}"
    );
    fs::write(&entry, text).map_err(|error| format!("cannot write {}: {error}", entry.display()))
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
