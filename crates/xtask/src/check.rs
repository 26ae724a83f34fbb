//! What can be told without running anything.

use crate::command::{cargo, npm_program, run};
use crate::toolchain::{rust_component, rust_target};
use crate::{Result, hwloc, wasm};

/// Formatting and the compilers' opinion, of both languages.
pub fn lint() -> Result {
    rust_component("rustfmt", "fmt")?;
    rust_component("clippy", "clippy")?;
    hwloc::make()?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    // A workspace of its own, too long to compile for its warnings.
    let candle = "tests/bench/peers/candle/Cargo.toml";
    run(cargo().args(["fmt", "--check", "--manifest-path", candle]))?;
    run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    for project in ["tsconfig.json", "tsconfig.web.json"] {
        run(npm_program("tsc").args(["--project", project, "--noEmit"]))?;
    }
    // Fixtures and the bench's figures are written by programs.
    run(npm_program("prettier").args(["--check", ".", "!**/fixtures/**", "!docs/bench.json"]))
}

/// The engine without an operating system under it, and the module over it.
pub fn wasm() -> Result {
    rust_component("clippy", "clippy")?;
    rust_target(wasm::TARGET)?;
    run(cargo().args([
        "clippy",
        "--package",
        "uform-kernels",
        "--package",
        "uform",
        "--package",
        "uform-wasm",
        "--no-default-features",
        "--target",
        "wasm32-unknown-unknown",
        "--",
        "--deny",
        "warnings",
    ]))
}
