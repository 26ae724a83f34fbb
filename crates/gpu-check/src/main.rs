//! The program that is taken to a machine with an NVIDIA GPU. It starts itself once a section,
//! shows what that says, counts the verdicts, and ends with 1 when one of them was bad.

mod arguments;
mod process;
mod sanitizer;

use std::process::ExitCode;

use gpu_check::{Report, sections};
use uform::device::{Runtime, devices};

use arguments::Arguments;
use process::Tally;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("gpu-check: {message}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match &arguments.child {
        Some(section) => child(section, &arguments),
        None => parent(&arguments),
    }
}

/// One section, in this process.
fn child(name: &str, arguments: &Arguments) -> ExitCode {
    let mut report = Report::default();
    let mut all = sections::ALL.into_iter();
    match all.find(|(section, _)| *section == name) {
        Some((_, run)) => {
            if let Err(error) = run(&arguments.context, &mut report) {
                report.fail(format!("{name}: {error}"));
            }
        }
        None => report.fail(format!("there is no section {name}")),
    }
    ExitCode::from(u8::from(report.failed() > 0))
}

/// All of them, each in a process of its own.
fn parent(arguments: &Arguments) -> ExitCode {
    let found = devices(Runtime::Cuda);
    for device in &found {
        println!("DEVICE {device:?}");
    }
    if !found
        .iter()
        .any(|device| device.index == arguments.context.device)
    {
        println!(
            "FAIL there is no NVIDIA device {}",
            arguments.context.device
        );
        return ExitCode::FAILURE;
    }
    let mut tally = Tally::default();
    let names = sections::ALL.map(|(name, _)| name);
    for name in names.into_iter().chain([sanitizer::NAME]) {
        if !arguments.sections.is_empty() && !arguments.sections.iter().any(|one| one == name) {
            continue;
        }
        println!("\n# {name}");
        tally += match name {
            sanitizer::NAME => sanitizer::run(arguments),
            _ => process::section(&mut arguments.child_command(name)),
        };
    }
    println!("\n{tally}");
    ExitCode::from(u8::from(tally.failed > 0))
}
