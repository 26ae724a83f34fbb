//! What of Rust is needed besides a compiler for this machine: rustup brings it. A toolchain of a
//! distribution's has it or not, and then it is said what is missing, before anything is compiled.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::command::{cannot_start, cargo, in_checkout, run, works};

/// The standard library for a target.
pub fn rust_target(target: &str) -> Result {
    if has_rustup() {
        return run(in_checkout("rustup").args(["target", "add", target]));
    }
    library(
        target,
        &told(&["--print", "target-libdir", "--target", target])?,
    )
}

/// The source of the standard library, for targets it is compiled for along with everything else.
pub fn rust_source() -> Result {
    if has_rustup() {
        return run(in_checkout("rustup").args(["component", "add", "rust-src"]));
    }
    source(&told(&["--print", "sysroot"])?)
}

/// Minimal toolchains come without these.
pub fn rust_component(component: &str, verb: &str) -> Result {
    if works(cargo().args([verb, "--version"])) {
        return Ok(());
    }
    run(in_checkout("rustup").args(["component", "add", component]))
}

fn has_rustup() -> bool {
    works(in_checkout("rustup").arg("--version"))
}

/// A path that the compiler tells.
fn told(arguments: &[&str]) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let mut rustc = in_checkout(rustc);
    let output = rustc
        .args(arguments)
        .output()
        .map_err(|error| cannot_start(&rustc, error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Whether the folder of a target's libraries has any.
fn library(target: &str, folder: &Path) -> Result {
    let mut files = folder.read_dir().into_iter().flatten().flatten();
    if files.any(|file| file.file_name().to_string_lossy().starts_with("libcore-")) {
        return Ok(());
    }
    Err(format!(
        "this Rust has no standard library for {target} ({}), and there is no rustup to bring it: install \
         Rust with rustup, or the package of your distribution that has it, such as Debian's \
         libstd-rust-dev-wasm32 for its rustc",
        folder.display()
    ))
}

/// Whether a toolchain has the standard library's source.
fn source(toolchain: &Path) -> Result {
    let lock = toolchain.join("lib/rustlib/src/rust/library/Cargo.lock");
    if lock.is_file() {
        return Ok(());
    }
    Err(format!(
        "this Rust has no source of its standard library ({} is not there), of which the module wasm64 is \
         compiled, and there is no rustup to bring it: install Rust with rustup, or the package of your \
         distribution that has it, such as Debian's rust-src for its rustc",
        lock.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{library, source, told};

    #[test]
    fn what_a_toolchain_lacks_is_told_with_the_way_out() {
        let nowhere = Path::new("/no/such/toolchain");
        for refused in [library("wasm32-unknown-unknown", nowhere), source(nowhere)] {
            let message = refused.unwrap_err();
            for words in ["/no/such/toolchain", "rustup", "Debian's", "wasm"] {
                assert!(message.contains(words), "{words}: {message}");
            }
        }
    }

    #[test]
    fn what_a_toolchain_has_is_found() {
        let sysroot = told(&["--print", "sysroot"]).unwrap();
        library(
            "this machine",
            &told(&["--print", "target-libdir"]).unwrap(),
        )
        .unwrap();
        // The files that are looked for are those that rustup brings.
        if sysroot.join("lib/rustlib/manifest-rust-src").is_file() {
            source(&sysroot).unwrap();
        }
        let folder = std::env::temp_dir().join(format!("uform-toolchain-{}", std::process::id()));
        let lock = folder.join("lib/rustlib/src/rust/library/Cargo.lock");
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        fs::write(&lock, "").unwrap();
        let found = source(&folder);
        fs::remove_dir_all(&folder).unwrap();
        found.unwrap();
    }
}
