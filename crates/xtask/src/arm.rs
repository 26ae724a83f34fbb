//! The NEON kernels' tests, on a machine that is not an Arm.
//!
//! Debian's cross compiler links the engine's unit tests for 64-bit Arm, and QEMU runs those of them
//! that meet a class: the kernels', the classes' own, and a small model through them all. They run
//! twice, on a CPU with every instruction QEMU knows and on one with none beyond the floor, where
//! an instruction that a class does not promise ends the tests. hwloc is not made for Arm, so
//! the feature `native` is off.

use std::process::Command;

use crate::Result;
use crate::check::rust_target;
use crate::command::{cargo, in_checkout, run, works};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The cross compiler's, from Debian's `gcc-aarch64-linux-gnu`.
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Where Debian's `libc6-arm64-cross` has the dynamic linker and the C library.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// QEMU's emulation of one process.
const EMULATOR: &str = "qemu-aarch64";

/// What the tests run on, and which of them. On the CPU with every instruction: all that meet a class. On
/// the one with the floor alone: a few, which go through every kernel.
const CPUS: [(&str, &[&str]); 2] = [
    ("max", &["kernels::", "hardware::c", "model::tests::"]),
    (
        "cortex-a72",
        &[
            "kernels::tests::a_batch_larger",
            "kernels::tests::attention_in_bf16",
            "kernels::tests::attention_over_many",
            "kernels::tests::bf16_and_i8",
            "kernels::tests::conversion",
            "kernels::tests::layer_norm",
            "kernels::tests::what_goes_onward",
            "model::tests::",
        ],
    ),
];

/// Compiles the tests; returns a command for each CPU they run on: none on an Arm, whose classes all tests
/// meet. `None`, said on standard error, where the tools for it are not there.
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
    rust_target(TARGET)?;
    run(compile().arg("--no-run"))?;
    let command = |(cpu, names): &(&str, &[&str])| {
        let mut command = compile();
        command.args(["--quiet", "--"]).args(*names).env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("{EMULATOR} -cpu {cpu} -L {LIBRARIES}"),
        );
        command
    };
    Ok(Some(CPUS.iter().map(command).collect()))
}

fn compile() -> Command {
    let mut command = cargo();
    command
        .args([
            "test",
            "--package",
            "uform",
            "--lib",
            "--no-default-features",
        ])
        .args(["--profile", "arm", "--target", TARGET])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command
}
