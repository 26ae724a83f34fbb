//! What can be told without running anything.

use crate::command::{cargo, in_checkout, npm_program, run, works};
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

/// The standard library for a target.
pub fn rust_target(target: &str) -> Result {
    // Without rustup the toolchain may still have it: cargo tells.
    if works(in_checkout("rustup").arg("--version")) {
        run(in_checkout("rustup").args(["target", "add", target]))?;
    }
    Ok(())
}

/// The source of the standard library, for targets it is compiled for along with everything else.
pub fn rust_source() -> Result {
    if works(in_checkout("rustup").arg("--version")) {
        run(in_checkout("rustup").args(["component", "add", "rust-src"]))?;
    }
    Ok(())
}

/// Minimal toolchains come without these.
fn rust_component(component: &str, verb: &str) -> Result {
    if works(cargo().args([verb, "--version"])) {
        return Ok(());
    }
    run(in_checkout("rustup").args(["component", "add", component]))
}
