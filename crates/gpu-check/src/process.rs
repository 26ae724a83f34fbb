//! A section's process: its lines shown and counted, its end a verdict, its time limited.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any section takes on a device that works.
const LIMIT: Duration = Duration::from_secs(150);

/// Verdicts.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    /// Good ones.
    pub passed: usize,
    /// Bad ones.
    pub failed: usize,
    /// None, for want of something.
    pub skipped: usize,
    /// Figures, which are no verdicts.
    pub figures: usize,
}

impl Tally {
    fn read(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("PASS", _)) => self.passed += 1,
            Some(("FAIL", _)) => self.failed += 1,
            Some(("SKIP", _)) => self.skipped += 1,
            Some(("RATE", _)) => self.figures += 1,
            _ => {}
        }
    }

    /// Says a bad one, and counts it.
    pub fn fail(&mut self, what: impl fmt::Display) {
        println!("FAIL {what}");
        self.failed += 1;
    }

    /// Says why there is none, and counts it.
    pub fn skip(&mut self, what: impl fmt::Display) {
        println!("SKIP {what}");
        self.skipped += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.figures += other.figures;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Runs a section's process to its end, or to the end of its time.
pub fn section(command: &mut Command) -> Tally {
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            tally.fail(format!(
                "cannot start {}: {error}",
                command.get_program().display()
            ));
            return tally;
        }
    };
    let ended = follow(&mut child, start + LIMIT, &mut tally);
    if !ended {
        // It may have ended just now; then there is nothing to stop.
        let _ = child.kill();
        tally.fail(format!("stopped after {} s", LIMIT.as_secs()));
    }
    match child.wait() {
        // 1 is what a section with a bad verdict ends with.
        Ok(status) if status.success() || status.code() == Some(1) || !ended => {}
        Ok(status) => tally.fail(format!("the process ended with {status}")),
        Err(error) => tally.fail(format!("the process cannot be waited for: {error}")),
    }
    if tally.passed + tally.failed + tally.skipped + tally.figures == 0 {
        tally.fail("the process said nothing");
    }
    println!("({:.1} s)", start.elapsed().as_secs_f64());
    tally
}

/// Shows and counts its lines; whether it ended in time.
fn follow(child: &mut Child, deadline: Instant, tally: &mut Tally) -> bool {
    let Some(output) = child.stdout.take() else {
        return true;
    };
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                tally.read(&line);
                println!("{line}");
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return true,
            Err(mpsc::RecvTimeoutError::Timeout) => return false,
        }
    }
}
