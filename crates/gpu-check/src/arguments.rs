//! The program's arguments.

use std::process::Command;

use gpu_check::sections::{self, Context};

use crate::sanitizer;

/// How the program is called.
pub const USAGE: &str = "\
gpu-check [--device N] [--model DIR] [--small] [SECTION …]

  --device N   NVIDIA's device of this number (0)
  --model DIR  the model's folder (model, beside this program)
  --small      sizes that an interpreter gets through
  SECTION …    only these of loads, kernels, rates, model, memory, faults, sanitizer";

/// What was asked for.
pub struct Arguments {
    /// What sections work on.
    pub context: Context,
    /// The sections that are run; none: all.
    pub sections: Vec<String>,
    /// The one that this process is to run.
    pub child: Option<String>,
}

impl Arguments {
    /// Reads them.
    ///
    /// # Errors
    /// Which one is not understood.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let beside = std::env::current_exe()
            .unwrap_or_default()
            .with_file_name("model");
        let mut arguments = Arguments {
            context: Context {
                device: 0,
                is_small: false,
                model: beside,
            },
            sections: Vec::new(),
            child: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match &*word {
                "--device" => {
                    let number = value()?;
                    let parsed = number.parse();
                    arguments.context.device =
                        parsed.map_err(|_| format!("{number:?} is no device's number"))?;
                }
                "--model" => arguments.context.model = value()?.into(),
                "--small" => arguments.context.is_small = true,
                "--child" => arguments.child = Some(value()?),
                name if is_section(name) => arguments.sections.push(word),
                _ => return Err(format!("{word:?} is not understood")),
            }
        }
        Ok(arguments)
    }

    /// This program as a section's process.
    pub fn child_command(&self, section: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_default());
        self.child_arguments(&mut command, section);
        command
    }

    /// What such a process is told.
    pub fn child_arguments(&self, command: &mut Command, section: &str) {
        command.args(["--child", section, "--device"]);
        command.arg(self.context.device.to_string());
        command.arg("--model").arg(&self.context.model);
        if self.context.is_small {
            command.arg("--small");
        }
        // The time that translating PTX takes is what is asked for, not that of a copy kept.
        command.env("CUDA_CACHE_DISABLE", "1");
    }
}

fn is_section(name: &str) -> bool {
    let mut names = sections::ALL.iter().map(|(name, _)| *name);
    name == sanitizer::NAME || names.any(|section| section == name)
}
