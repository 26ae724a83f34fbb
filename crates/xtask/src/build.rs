//! The package: the addon beside its `package.json`, and `dist/` with the WebAssembly modules.
//!
//! Published, the addon is optimised across crates, which takes minutes. A checkout's demos and tests
//! compile it in half the time, nearly as fast.

use std::fs;
use std::path::Path;
use std::thread;

use crate::command::{cargo, npm_program, run};
use crate::{Result, hwloc, root, target, wasm};

/// How the addon is compiled: a profile of `Cargo.toml`.
#[derive(Clone, Copy)]
pub enum Addon {
    Published,
    Checkout,
}

impl Addon {
    fn profile(self) -> &'static str {
        match self {
            Addon::Published => "release",
            Addon::Checkout => "checkout",
        }
    }
}

/// All of the package; cargo and the TypeScript compiler skip what is up to date.
pub fn all(addon: Addon) -> Result {
    // What is missing is told before minutes of compiling.
    wasm::prepare()?;
    make_addon(addon)?;
    wasm::make(&[])?;
    typescript_for_node()?;
    typescript_for_the_web()
}

/// What the demos in Node.js run: no WebAssembly.
pub fn for_node() -> Result {
    eprintln!("Building the addon: two to three minutes the first time, on two cores.");
    make_addon(Addon::Checkout)?;
    typescript_for_node()
}

/// Compiles the addon.
fn make_addon(addon: Addon) -> Result {
    let build = |package: &str| {
        let mut command = cargo();
        command
            .args(["build", "--profile", addon.profile(), "--package", package])
            .arg("--target-dir");
        run(command.arg(target()?))
    };
    thread::scope(|scope| {
        // The kernels need nothing of hwloc, most of which is made on one core.
        let kernels = scope.spawn(|| build("uform-kernels"));
        hwloc::make()?;
        kernels
            .join()
            .unwrap_or_else(|_| Err("compiling the kernels panicked".into()))
    })?;
    build("uform-node")?;
    let built = target()?.join(addon.profile()).join("libuform_node.so");
    replace(&built, &root().join("npm/linux-x64-gnu/uform.node"))
}

fn typescript_for_node() -> Result {
    run(npm_program("tsc").args(["--project", "tsconfig.json"]))?;
    let dist = root().join("dist");
    join(
        "ts/index.ts",
        &dist.join("uform.js"),
        &["--platform=node", "--format=cjs"],
    )?;
    write_entry(&dist)
}

fn typescript_for_the_web() -> Result {
    run(npm_program("tsc").args(["--project", "tsconfig.web.json"]))?;
    let web = root().join("dist/web");
    // As compiled: the modules' JavaScript halves are beside that.
    join(
        "dist/web/web.js",
        &web.join("web.js"),
        &["--format=esm", "--allow-overwrite"],
    )?;
    // The same sources are CommonJS in the folder above.
    let package = web.join("package.json");
    let text = "{ \"type\": \"module\", \"sideEffects\": [\"./web.js\"] }\n";
    fs::write(&package, text)
        .map_err(|error| format!("cannot write {}: {error}", package.display()))
}

/// Joins the modules behind an entry: to find, read and compile each by itself takes longer than all that
/// they do while they are imported.
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
    // esbuild ends a module with this list, for programs that look for its exports.
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
