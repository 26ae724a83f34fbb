//! Every test of the house, one runner after the other, and one sum at the end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{announce, cannot_start, cargo, node, npm_program, run};
use crate::tally::{Report, Tally};
use crate::{Result, arm, build, kernels, model, newer_node, root, sanitize, wasm_kernels};

/// How often the patient tests (leaks, races, fuzzing) repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A few minutes in all.
    Short,
    /// The full counts: tests see the variable `UFORM_SOAK=1`.
    Soak,
}

/// Runs all runners even when one fails: a failure in Rust does not hide one in TypeScript.
pub fn all(depth: Depth) -> Result {
    let mut report = Report::default();
    report.time("the package", || build::all(build::Addon::Checkout))?;
    report.time("the model", model::fetch)?;
    // Compiled by itself first, because the quiet runner below would hide cargo's progress.
    report.time("tests, compiled", || {
        run(cargo().args(["test", "--workspace", "--no-run"]))?;
        run(models()?.arg("--no-run"))
    })?;
    let arm = report.time("tests for Arm, compiled", arm::tests)?;
    let modules = report.time("tests for WebAssembly, compiled", wasm_kernels::tests)?;

    report.run("Rust", || {
        counted(
            cargo().args(["test", "--workspace", "--quiet", "--no-fail-fast"]),
            depth,
        )
    })?;
    report.run("the executor, by a model checker", || {
        counted(&mut models()?, depth)
    })?;
    for (name, kernels) in [("kernels on Arm", arm), ("kernels in WebAssembly", modules)] {
        report.run(name, || counted_all(kernels, depth))?;
    }
    report.run("Node.js, browsers, bundlers", || {
        counted(&mut node_tests(depth)?, depth)
    })?;
    report.run("the GPU kernels, compiled again", || {
        Ok(outcome(kernels::check()))
    })?;
    if depth == Depth::Soak {
        // Not at the short depth: everything is compiled anew for it, which takes minutes.
        report.run("the addon under AddressSanitizer", || {
            Ok(match sanitize::command()? {
                Some(mut command) => outcome(run(&mut command)),
                None => Tally {
                    skipped: 1,
                    ..Tally::default()
                },
            })
        })?;
    }
    report.run("types", || {
        Ok(outcome(run(npm_program("tsc").args([
            "--project",
            "tests/types/tsconfig.json",
            "--noEmit",
        ]))))
    })?;

    println!("\n{report}");
    match report.sum.failed {
        0 => Ok(()),
        failed => Err(format!("{failed} tests failed")),
    }
}

/// The executor's models, for which everything is compiled anew: with a flag, in a folder of its own.
fn models() -> Result<Command> {
    let mut command = cargo();
    command
        .args(["test", "--package", "uform", "--lib", "--quiet"])
        .args(["--profile", "loom", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", crate::target()?.join("loom"));
    Ok(command)
}

/// One process for all of Node's tests. One file at a time: some of them measure delays.
fn node_tests(depth: Depth) -> Result<Command> {
    let mut command = node();
    command
        .args(["--test", "--test-reporter=spec", "--test-concurrency=1"])
        .env("UFORM_NEWER_NODE", newer_node::make()?);
    if depth == Depth::Short {
        // A hang is a failure with a name, not a job that never ends.
        command.arg("--test-timeout=300000");
    }
    for folder in [
        "tests/node",
        "tests/wasm",
        "tests/package",
        "tests/browser",
        "tests/bundlers",
        "tests/frameworks",
        "tests/bench",
        "examples",
    ] {
        command.args(test_files(&root().join(folder))?);
    }
    Ok(command)
}

/// The `*.test.*` files under a folder, in alphabetical order.
fn test_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "node_modules" {
            files.extend(test_files(&path)?);
        } else if name.contains(".test.") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs some runners one after the other; without any, one test was skipped.
fn counted_all(commands: Option<Vec<Command>>, depth: Depth) -> Result<Tally> {
    let mut sum = Tally::default();
    match commands {
        Some(commands) => {
            for mut command in commands {
                sum += counted(&mut command, depth)?;
            }
        }
        None => sum.skipped = 1,
    }
    Ok(sum)
}

/// Runs a test runner, showing its output, and counts what it reports.
fn counted(command: &mut Command, depth: Depth) -> Result<Tally> {
    // Colours would hide the counts.
    command
        .stdout(Stdio::piped())
        .env_remove("FORCE_COLOR")
        .env("NO_COLOR", "1");
    if depth == Depth::Soak {
        command.env("UFORM_SOAK", "1");
    }
    announce(command);
    let mut child = command
        .spawn()
        .map_err(|error| cannot_start(command, error))?;
    let output = child.stdout.take().ok_or("the test runner has no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(output).split(b'\n') {
        let line =
            line.map_err(|error| format!("cannot read the test runner's output: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.read(&line);
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for the test runner: {error}"))?;
    // A runner that crashed, or found nothing to run, has not passed.
    let silent_failure = !status.success() && tally.failed == 0;
    let nothing_ran = tally.passed + tally.failed == 0;
    if silent_failure || nothing_ran {
        eprintln!("the runner ended with {status} after {tally}: counted as one failure");
        tally.failed += 1;
    }
    Ok(tally)
}

/// One test, by how it ended.
fn outcome(result: Result) -> Tally {
    let mut tally = Tally::default();
    match result {
        Ok(()) => tally.passed = 1,
        Err(message) => {
            eprintln!("{message}");
            tally.failed = 1;
        }
    }
    tally
}
