//! The folder to take to a machine with an NVIDIA GPU: one program, which has the kernels in it, a
//! model, and a script.
//!
//! The machine may be an old one with nothing but a driver, so that the program is linked by zig, which has
//! every version of the C library to link with: of all else it needs nothing. The model's weights have
//! eight bits, since in sixteen they alone are larger than the folder may be; loaded, they are the same
//! f32 on the CPU, with which the GPU is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, in_checkout, run};
use crate::{Result, hwloc, model, root, target};

/// Linux with a C library from 2014 or newer.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
const C_LIBRARY: &str = "2.17";

/// The most that the folder may have, in bytes.
const MOST: u64 = 40_000_000;

/// Makes the folder, which is not there yet or empty.
pub fn make(folder: &str) -> Result {
    let folder = Path::new(folder);
    let is_empty = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty {
        return Err(format!("{} is not empty", folder.display()));
    }
    hwloc::make()?;
    model::fetch()?;
    let built = build()?;
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let program = folder.join("gpu-check");
    copy(&built, &program)?;
    let script = root().join("crates/gpu-check/run.sh");
    copy(&script, &folder.join("run.sh"))?;
    run(Command::new(&program)
        .arg("--write-model")
        .arg(root().join("models/all-MiniLM-L6-v2"))
        .arg(folder.join("model")))?;
    match size(folder)? {
        bytes if bytes > MOST => Err(format!("{} has {bytes} bytes", folder.display())),
        bytes => {
            println!(
                "{} has {bytes} bytes: run.sh is what to run",
                folder.display()
            );
            Ok(())
        }
    }
}

/// The program, for any machine that is not too old.
fn build() -> Result<PathBuf> {
    let zig = zig()?;
    // The program's own arguments for cargo, and its variables; of C++ zig brings its own library.
    let mut command = in_checkout(zig.join("bin/cargo-zigbuild"));
    for (name, value) in cargo().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    run(command
        .args(["zigbuild", "--release", "--package", "gpu-check"])
        .args(["--target", &format!("{MACHINE}.{C_LIBRARY}")])
        .arg("--target-dir")
        .arg(target()?)
        .env("CARGO_ZIGBUILD_ZIG_PATH", zig.join("ziglang/zig"))
        .env("CARGO_ZIGBUILD_CACHE_DIR", zig.join("cache"))
        .env("CXXSTDLIB", "c++")
        .env("CXXSTDLIB_STATIC", "0"))?;
    Ok(target()?.join(MACHINE).join("release/gpu-check"))
}

/// Where zig and what calls it for cargo are, installed once.
fn zig() -> Result<PathBuf> {
    let folder = target()?.join("zig");
    if folder.exists() {
        return Ok(folder);
    }
    // On the same file system as its destination, so that the rename is one step.
    let work = folder.with_extension(format!("fetch-{}", std::process::id()));
    let installed = run(in_checkout("python3")
        .args(["-m", "pip", "install", "--no-deps", "--require-hashes"])
        .args([
            "--requirement",
            "crates/xtask/zig-requirements.txt",
            "--target",
        ])
        .arg(&work));
    let outcome = installed.and_then(|()| {
        fs::rename(&work, &folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))
    });
    if work.exists() {
        fs::remove_dir_all(&work)
            .map_err(|error| format!("cannot remove {}: {error}", work.display()))?;
    }
    outcome.map(|()| folder)
}

fn copy(from: &Path, to: &Path) -> Result {
    fs::copy(from, to).map(drop).map_err(|error| {
        format!(
            "cannot copy {} to {}: {error}",
            from.display(),
            to.display()
        )
    })
}

/// Bytes of all files in a folder.
fn size(folder: &Path) -> Result<u64> {
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    entries.flatten().try_fold(0, |sum, entry| {
        let path = entry.path();
        match path.is_dir() {
            true => Ok(sum + size(&path)?),
            false => Ok(sum + entry.metadata().map_or(0, |data| data.len())),
        }
    })
}
