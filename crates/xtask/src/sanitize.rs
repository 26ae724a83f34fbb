//! The addon under AddressSanitizer, used by workers that are terminated: memory that it reads or writes after it was
//! freed, or beyond its end, ends the process with a report.
//!
//! Everything is compiled anew, with a flag that stable Rust takes only as if it were a nightly one. The sanitizer's
//! library must be there before the first allocation, and Node.js is compiled without it, so the dynamic
//! linker loads GCC's before all others. It watches allocations of the whole process and the code of the addon.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, cargo, in_checkout, node};
use crate::{Result, root, target};

/// Named, so that build scripts and macros are compiled without the flag.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The program, how many workers it terminates, how many at a time, and a seed.
const PROGRAM: [&str; 4] = ["tests/node/terminating.mjs", "600", "3", "1"];

/// What the sanitizer is told: V8 handles its own faults, and leaves to the end of the process what it has.
const OPTIONS: &str = "handle_segv=0:allow_user_segv_handler=1:detect_leaks=0";

/// Compiles the addon and returns the command that uses it. `None`, said on standard error, where the sanitizer's
/// library is not there.
pub fn command() -> Result<Option<Command>> {
    let Some(library) = library() else {
        eprintln!(
            "SKIPPED: the addon under AddressSanitizer, which takes libasan (Debian's gcc brings it)"
        );
        return Ok(None);
    };
    let folder = target()?.join("sanitized");
    let mut build = cargo();
    build
        .args(["build", "--package", "uform-node", "--target", TARGET])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address");
    command::run(&mut build)?;
    let addon = folder.join(TARGET).join("debug/libuform_node.so");
    let package = folder.join("package");
    make_package(&package, &addon)?;
    let mut command = node();
    command
        .current_dir(&package)
        .args(PROGRAM)
        .env("LD_PRELOAD", library)
        .env("ASAN_OPTIONS", OPTIONS);
    Ok(Some(command))
}

/// Runs it; a library that is missing is an error here.
pub fn run() -> Result {
    let command = command()?;
    command::run(&mut command.ok_or("AddressSanitizer's library is not there")?)
}

/// GCC's library of the sanitizer.
fn library() -> Option<PathBuf> {
    let output = in_checkout("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // What it does not find it gives back as it was asked.
    (path.is_absolute() && path.exists()).then_some(path)
}

/// A copy of the package, with the addon in it.
fn make_package(package: &Path, addon: &Path) -> Result {
    let scope = package.join("node_modules/@uform/linux-x64-gnu");
    if package.exists() {
        fs::remove_dir_all(package).map_err(|error| format!("{}: {error}", package.display()))?;
    }
    let made = [&scope, &package.join("tests")];
    made.into_iter()
        .try_for_each(fs::create_dir_all)
        .map_err(|error| format!("{}: {error}", package.display()))?;
    let copy =
        |from: &Path, into: &Path| command::run(in_checkout("cp").arg("-r").arg(from).arg(into));
    for name in ["package.json", "dist"] {
        copy(&root().join(name), package)?;
    }
    for name in ["node", "shared"] {
        copy(&root().join("tests").join(name), &package.join("tests"))?;
    }
    copy(&root().join("npm/linux-x64-gnu/package.json"), &scope)?;
    copy(addon, &scope.join("uform.node"))?;
    for name in ["tests/fixtures", "models"] {
        let link = package.join(name);
        symlink(root().join(name), &link)
            .map_err(|error| format!("{}: {error}", link.display()))?;
    }
    Ok(())
}
