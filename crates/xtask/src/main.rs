//! The house's own chores: `cargo xtask <verb>`.
//!
//! `npm run …` and `npm test` enter through `bootstrap.mjs`, which sees to the
//! compiler, pip and the npm packages; from there on everything is here. Each
//! verb makes what it stands on first, and skips what is already made, so any
//! of them can be the first command in a fresh checkout.

mod arm;
mod build;
mod check;
mod command;
mod fake_gpu;
mod gpu_check;
mod hwloc;
mod kernels;
mod model;
mod newer_node;
mod pack;
mod sanitize;
mod tally;
mod test;
mod tiny_model;
mod toolchain;
mod wasm;
mod wasm_kernels;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use build::Addon;

/// What every chore returns: an error is a sentence for the person at the terminal.
type Result<T = ()> = std::result::Result<T, String>;

const USAGE: &str = "\
cargo xtask <verb>

  build               the addon (release) and the TypeScript package
  hwloc               the static library that cargo links, into target/hwloc/
  fetch-model         all-MiniLM-L6-v2, into models/
  fake-gpu DIR        stand-ins for the GPU vendors' driver libraries, for tests, into DIR
  gpu-check DIR       a folder to take to a machine with an NVIDIA GPU, and to prove there what
                      the stand-ins cannot
  kernels [--check]   the GPU kernels, out of CUDA C++; --check only compares with what is there
  test [--soak]       every test; --soak repeats the patient ones many times
  sanitize            the addon under AddressSanitizer, in workers that are terminated
  lint                formatting, clippy, the TypeScript compiler
  tiny-model DIR      a made-up model of two small layers, for tests, into DIR
  wasm [NAME …]       the WebAssembly modules, or those named, into dist/web/
  wasm-check          the engine compiles for WebAssembly
  pack                both npm packages as tarballs, into target/package/
  demo [argument …]   examples/semantic-search
  demo-browser        examples/browser, served on this machine
  demo-mesh           examples/mesh, on stand-ins for GPUs
  bench [argument …]  tests/bench";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match dispatch(&verb, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {verb}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(verb: &str, rest: &[String]) -> Result {
    match (verb, rest) {
        ("build", []) => build::all(Addon::Published),
        ("hwloc", []) => hwloc::make(),
        ("fetch-model", []) => model::fetch(),
        ("fake-gpu", [folder]) => fake_gpu::make(folder),
        ("gpu-check", [folder]) => gpu_check::make(folder),
        ("kernels", []) => kernels::make(),
        ("kernels", [flag]) if flag == "--check" => kernels::check(),
        ("test", []) => test::all(test::Depth::Short),
        ("test", [flag]) if flag == "--soak" => test::all(test::Depth::Soak),
        ("sanitize", []) => {
            build::all(Addon::Checkout)?;
            model::fetch()?;
            sanitize::run()
        }
        ("lint", []) => check::lint(),
        ("tiny-model", [folder]) => tiny_model::make(folder),
        ("wasm", names) => wasm::make(names),
        ("wasm-check", []) => check::wasm(),
        ("pack", []) => pack::both(),
        ("demo", _) => {
            build::for_node()?;
            program("examples/semantic-search/main.mjs", rest)
        }
        ("demo-browser", []) => {
            build::all(Addon::Checkout)?;
            program("examples/browser/serve.mjs", rest)
        }
        ("demo-mesh", []) => demo_mesh(),
        ("bench", _) => {
            build::all(Addon::Published)?;
            program("tests/bench/bench.mjs", rest)
        }
        _ => Err(format!("no such chore\n\n{USAGE}")),
    }
}

/// Runs one of the checkout's own programs, which use the package and the model.
fn program(script: &str, arguments: &[String]) -> Result {
    model::fetch()?;
    command::run(command::node().arg(script).args(arguments))
}

/// Two processes of a mesh, with stand-ins for eight GPUs and NCCL, and a model of random weights.
fn demo_mesh() -> Result {
    build::for_node()?;
    let folder = target()?.join("demo-mesh");
    let model = folder.join("model");
    fake_gpu::make(&folder.to_string_lossy())?;
    let example = [
        "run",
        "--quiet",
        "--package",
        "uform",
        "--example",
        "tiny_model",
        "--",
    ];
    command::run(command::cargo().args(example).arg(&model).arg("small"))?;
    let gpus = ["H200:9.0:132:1024"; 8].join(",");
    command::run(
        command::node()
            .arg("examples/mesh/main.mjs")
            .arg(&model)
            .env("LD_LIBRARY_PATH", &folder)
            .env("FAKE_CUDA_DEVICES", gpus),
    )
}

/// The top of the checkout; this crate lies two folders deep in it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Cargo's output folder, wherever the caller's settings put it: the one this very program was built into.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot tell where this program lies: {error}"))?;
    let folder = program.ancestors().nth(2);
    Ok(folder
        .ok_or("this program does not lie in a target folder")?
        .to_path_buf())
}
