//! Other programs, run in the checkout's top folder with their output shown.

use std::ffi::OsStr;
use std::process::Command;

use crate::{Result, hwloc, root};

/// Runs to the end. The command line is shown first, so that a failure can be repeated by hand.
pub fn run(command: &mut Command) -> Result {
    let line = announce(command);
    let status = command
        .status()
        .map_err(|error| cannot_start(command, error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{line}` ended with {status}"))
    }
}

/// Whether the program starts and ends well; its output is thrown away.
pub fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Shows a command's line on standard error, and returns it.
pub fn announce(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ");
    eprintln!("$ {line}");
    line
}

/// The sentence for a program that is not there, or not executable.
pub fn cannot_start(command: &Command, error: std::io::Error) -> String {
    format!(
        "cannot start {}: {error}",
        command.get_program().to_string_lossy()
    )
}

pub fn cargo() -> Command {
    // Cargo tells its children which cargo it is; another one would build everything anew.
    let mut cargo = in_checkout(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if let Ok(path) = hwloc::pkg_config_path() {
        cargo.env("PKG_CONFIG_PATH", path);
    }
    cargo
}

pub fn node() -> Command {
    in_checkout("node")
}

pub fn npm() -> Command {
    in_checkout("npm")
}

/// A program that an npm package of the checkout brings.
pub fn npm_program(name: &str) -> Command {
    in_checkout(root().join("node_modules/.bin").join(name))
}

pub fn in_checkout(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}
