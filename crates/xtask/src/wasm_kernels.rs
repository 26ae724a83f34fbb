//! The kernels' own tests inside WebAssembly: once as a module every engine loads, once with
//! relaxed SIMD.
//!
//! Only the kernels themselves are compiled for either, with the features named; what they stand on
//! is compiled once.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{announce, cannot_start, cargo};
use crate::toolchain::rust_target;
use crate::{Result, newer_node};

/// Rust's tests print and tell the time, which this target has: the others of WebAssembly have
/// the same kernels.
const TARGET: &str = "wasm32-wasip1";

/// A module that every engine loads, and one that newer engines load: by whatever dot product of
/// bytes this processor has, and by that of older ones, which is another case of the kernels'.
const RUNS: [(&str, &[&str]); 3] = [
    ("+simd128", &[]),
    ("+simd128,+relaxed-simd", &[]),
    ("+simd128,+relaxed-simd", &["--no-enable-avx-vnni"]),
];

/// One command a run of a module's tests; `None`, said on standard error, where Rust's standard library is not
/// there for it.
pub fn tests() -> Result<Option<Vec<Command>>> {
    if let Err(missing) = rust_target(TARGET) {
        eprintln!("SKIPPED: the kernels in WebAssembly: {missing}");
        return Ok(None);
    }
    let command = |(features, flags): (_, &[&str])| {
        let mut command = newer_node::node()?;
        command
            .args(flags)
            .args(["--no-warnings", "crates/xtask/wasi.mjs"])
            .arg(module(features)?);
        Ok(command)
    };
    RUNS.into_iter()
        .map(command)
        .collect::<Result<_>>()
        .map(Some)
}

/// Compiles the kernels' tests; returns the module.
fn module(features: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .args(["rustc", "--package", "uform-kernels", "--lib"])
        .args(["--profile", "test", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics", "--"])
        .arg(format!("-Ctarget-feature={features}"))
        .stderr(Stdio::inherit());
    let line = announce(&command);
    let output = command
        .output()
        .map_err(|error| cannot_start(&command, error))?;
    if !output.status.success() {
        return Err(format!("`{line}` ended with {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages).ok_or(format!("`{line}` made no module"))
}

/// The one program that cargo's messages tell of.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let (_, rest) = line.split_once(r#""executable":""#)?;
        let (path, _) = rest.split_once('"')?;
        Some(path.replace(r"\\", r"\").into())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::executable;

    #[test]
    fn the_module_is_the_program_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/a b/uform-1.wasm","fresh":false}"#,
        );
        let found = executable(messages);
        assert_eq!(found.as_deref(), Some(Path::new("/a b/uform-1.wasm")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
