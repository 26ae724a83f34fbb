//! What the program says: a line for everything that was looked at.
//!
//! `PASS` and `FAIL` are verdicts, `SKIP` something this machine lacks, `RATE` a figure. A section's
//! process prints its lines as it goes, so that those before a crash are not lost.

use std::fmt::Display;
use std::io::{self, Write};

/// A section's lines.
#[derive(Default)]
pub struct Report {
    failed: usize,
}

impl Report {
    /// A verdict.
    pub fn judge(&mut self, holds: bool, what: impl Display) {
        self.failed += usize::from(!holds);
        say(if holds { "PASS" } else { "FAIL" }, what);
    }

    /// What went wrong.
    pub fn fail(&mut self, what: impl Display) {
        self.judge(false, what);
    }

    /// What could not be looked at here, and why.
    pub fn skip(&self, what: impl Display) {
        say("SKIP", what);
    }

    /// A figure.
    pub fn rate(&self, what: impl Display) {
        say("RATE", what);
    }

    /// How many verdicts were bad.
    pub fn failed(&self) -> usize {
        self.failed
    }
}

fn say(kind: &str, what: impl Display) {
    let mut out = io::stdout().lock();
    // Whoever closed the pipe wants no more of it.
    let _ = writeln!(out, "{kind} {what}");
    let _ = out.flush();
}
