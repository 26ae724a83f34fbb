//! How many tests passed, read from the closing lines of their runners, and how long it took.

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::Result;

/// What was built and run, in order, with the time each took.
#[derive(Default)]
pub struct Report {
    /// All tests together.
    pub sum: Tally,
    rows: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Times a step without tests of its own.
    ///
    /// # Errors
    /// Those of the step.
    pub fn time<T>(&mut self, name: &'static str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let outcome = step();
        self.rows.push((name, start.elapsed()));
        outcome
    }

    /// Times a runner and adds its tests up.
    ///
    /// # Errors
    /// Those of the runner, when it could not be started.
    pub fn run(&mut self, name: &'static str, runner: impl FnOnce() -> Result<Tally>) -> Result {
        let tally = self.time(name, runner)?;
        self.sum += tally;
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, took) in &self.rows {
            writeln!(f, "{:>5} s  {name}", took.as_secs())?;
        }
        let all: Duration = self.rows.iter().map(|(_, took)| *took).sum();
        let (minutes, seconds) = (all.as_secs() / 60, all.as_secs() % 60);
        writeln!(
            f,
            "All tests, building included, took {minutes} min {seconds} s."
        )?;
        write!(f, "{}", self.sum)
    }
}

/// Tests counted by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Tally {
    /// Counts what a line of cargo's or Node's test runner reports; other lines count nothing.
    pub fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            let counts = result.split_once(". ").map_or("", |(_, counts)| counts);
            for count in counts.split("; ") {
                if let Some((number, word)) = count.split_once(' ') {
                    self.add(word, number);
                }
            }
        } else if let Some((word, number)) = line
            .strip_prefix("ℹ ")
            .and_then(|count| count.split_once(' '))
        {
            self.add(word, number);
        }
    }

    fn add(&mut self, word: &str, number: &str) {
        let count = match word {
            "passed" | "pass" => &mut self.passed,
            "failed" | "fail" | "cancelled" => &mut self.failed,
            "ignored" | "skipped" | "todo" => &mut self.skipped,
            _ => return,
        };
        *count += number.parse().unwrap_or(0);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
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

#[cfg(test)]
mod tests {
    use super::Tally;

    fn tally_of(lines: &[&str]) -> (usize, usize, usize) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn cargo_reports_one_line_a_test_program() {
        let lines = [
            "running 3 tests",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 40 passed; 5 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s",
        ];
        assert_eq!(tally_of(&lines), (42, 5, 1));
    }

    #[test]
    fn node_reports_one_line_a_count() {
        let lines = [
            "ℹ tests 10",
            "ℹ suites 2",
            "ℹ pass 6",
            "ℹ fail 1",
            "ℹ cancelled 1",
            "ℹ skipped 1",
            "ℹ todo 1",
        ];
        assert_eq!(tally_of(&lines), (6, 2, 2));
    }

    #[test]
    fn a_line_that_only_resembles_a_report_counts_nothing() {
        assert_eq!(
            tally_of(&[
                "  ℹ pass 3",
                "test result: unknown",
                "ℹ duration_ms 12.5",
                "passed 4"
            ]),
            (0, 0, 0)
        );
    }
}
