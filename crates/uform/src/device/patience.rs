//! How long somebody waits for another process, and what ends the wait before.

use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result, Status};

/// A deadline, the time there was until then, and a way to give up before it.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    deadline: Instant,
    allowed: Duration,
    is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Patience<'a> {
    /// Waits until the deadline, or until `is_cancelled` says so, which is asked again and again.
    pub fn until(deadline: Instant, is_cancelled: &'a (dyn Fn() -> bool + Sync)) -> Patience<'a> {
        Patience {
            deadline,
            allowed: deadline.saturating_duration_since(Instant::now()),
            is_cancelled,
        }
    }

    /// Whether to go on waiting for what the words name.
    ///
    /// # Errors
    /// [`TimedOut`](Status::TimedOut) naming it and the time there was; [`Aborted`](Status::Aborted).
    pub fn check(&self, what: &str) -> Result<()> {
        if (self.is_cancelled)() {
            return Err(Error::aborted());
        }
        match Instant::now() < self.deadline {
            true => Ok(()),
            false => Err(Error::new(
                Status::TimedOut,
                // To hundredths: some of it was over when this began to count.
                format!(
                    "{what} was not done within {} seconds",
                    (self.allowed.as_secs_f64() * 100.0).round() / 100.0
                ),
            )),
        }
    }
}

/// The pauses between two looks: short ones first, which answer fast, and then longer ones.
pub(super) struct Pauses(Duration);

impl Pauses {
    const FIRST: Duration = Duration::from_micros(10);
    const LONGEST: Duration = Duration::from_millis(2);

    pub(super) fn new() -> Pauses {
        Pauses(Pauses::FIRST)
    }

    pub(super) fn pause(&mut self) {
        thread::sleep(self.0);
        self.0 = (self.0 * 2).min(Pauses::LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_by_its_deadline_or_by_being_given_up() {
        let later = Instant::now() + Duration::from_secs(3600);
        let (go_on, give_up) = (|| false, || true);
        Patience::until(later, &go_on).check("it").unwrap();
        let error = Patience::until(later, &give_up).check("it").unwrap_err();
        assert_eq!(error.status(), Status::Aborted);
        let over = Patience {
            deadline: Instant::now(),
            allowed: Duration::from_micros(1_499_900),
            is_cancelled: &go_on,
        };
        let error = over.check("it").unwrap_err();
        assert_eq!(error.status(), Status::TimedOut);
        assert_eq!(error.message(), "it was not done within 1.5 seconds");
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pauses = Pauses::new();
        for _ in 0..12 {
            pauses.pause();
        }
        assert_eq!(pauses.0, Pauses::LONGEST);
    }
}
