//! NVIDIA's `compute-sanitizer`, where the machine has it: each of its tools watches the checks of the
//! kernels.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::process::{self, Tally};

/// The section's name.
pub const NAME: &str = "sanitizer";

const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// What it ends with when a tool found something.
const FOUND: &str = "9";

/// Runs them.
pub fn run(arguments: &Arguments) -> Tally {
    let mut tally = Tally::default();
    let Some(program) = program() else {
        tally.skip("compute-sanitizer is neither in PATH nor in /usr/local/cuda/bin");
        return tally;
    };
    for tool in TOOLS {
        println!("{tool}:");
        let mut command = Command::new(&program);
        command.args(["--tool", tool, "--error-exitcode", FOUND]);
        command.arg(std::env::current_exe().unwrap_or_default());
        arguments.child_arguments(&mut command, "kernels");
        tally += process::section(&mut command);
    }
    tally
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).collect::<Vec<_>>();
    folders.push("/usr/local/cuda/bin".into());
    let programs = folders
        .iter()
        .map(|folder| folder.join("compute-sanitizer"));
    programs.into_iter().find(|program| Path::is_file(program))
}
