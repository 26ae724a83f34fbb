//! The NEON kernels' tests, on a machine that is not an Arm.
//!
//! Debian's cross compiler links the kernels' and the engine's unit tests for 64-bit Arm, and QEMU runs
//! those of them that meet a class: the kernels', the classes' own, and a small model through them all. They run
//! twice, on a CPU with every instruction QEMU knows and on one with none beyond the floor, where
//! an instruction that a class does not promise ends the tests. hwloc is not made for Arm, so
//! the feature `native` is off.

use std::process::Command;

use crate::Result;
use crate::command::{cargo, in_checkout, run, works};
use crate::toolchain::rust_target;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The cross compiler's, from Debian's `gcc-aarch64-linux-gnu`.
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Where Debian's `libc6-arm64-cross` has the dynamic linker and the C library.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// QEMU's emulation of one process.
const EMULATOR: &str = "qemu-aarch64";

/// The CPU with every instruction QEMU knows, and the one with the floor alone.
const EVERYTHING: &str = "max";
const FLOOR: &str = "cortex-a72";

/// The CPU, the package, and which of its tests run: all where none is named. On the floor a
/// few, which go through every kernel.
const RUNS: [(&str, &str, &[&str]); 4] = [
    (EVERYTHING, "uform-kernels", &[]),
    (EVERYTHING, "uform", &["hardware::c", "model::tests::"]),
    (
        FLOOR,
        "uform-kernels",
        &[
            "tests::a_batch_larger",
            "tests::attention_in_bf16",
            "tests::attention_over_many",
            "tests::bf16_and_i8",
            "tests::conversion",
            "tests::layer_norm",
            "tests::what_goes_onward",
        ],
    ),
    (FLOOR, "uform", &["model::tests::"]),
];

/// Compiles the tests; returns a command for each CPU they run on: none on an Arm, where the ordinary tests
/// run these kernels. `None`, said on standard error, where the tools for it are not there.
pub fn tests() -> Result<Option<Vec<Command>>> {
    if cfg!(target_arch = "aarch64") {
        return Ok(Some(Vec::new()));
    }
    for program in [LINKER, EMULATOR] {
        if !works(in_checkout(program).arg("--version")) {
            eprintln!(
                "SKIPPED: the NEON kernels, which take {program} (bootstrap.mjs installs it)"
            );
            return Ok(None);
        }
    }
    if let Err(missing) = rust_target(TARGET) {
        eprintln!("SKIPPED: the NEON kernels: {missing}");
        return Ok(None);
    }
    run(compile(&["uform-kernels", "uform"]).arg("--no-run"))?;
    let command = |(cpu, package, names): &(&str, &str, &[&str])| {
        let mut command = compile(&[package]);
        command.args(["--quiet", "--"]).args(*names).env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{EMULATOR} -cpu {cpu} -L {LIBRARIES}"),
        );
        command
    };
    Ok(Some(RUNS.iter().map(command).collect()))
}

fn compile(packages: &[&str]) -> Command {
    let mut command = cargo();
    command
        .args(["test", "--lib", "--no-default-features"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .args(["--profile", "arm", "--target", TARGET])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command
}
