//! The gate to a job: open while there may be tasks left, and counting who is inside.
//!
//! One word holds it all, so that entering, leaving and closing are each one
//! atomic step and every order of them is decided:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 31 | closed: no lane enters any more |
//! | 30 | the leader sleeps until the last lane has left |
//! | 0–29 | lanes inside |
//!
//! A lane *enters* only by changing an open word, so after the leader has closed it
//! the count can only fall, and once it is zero no lane can reach the job. A
//! lane that is still waking up finds the gate closed and has cost nothing:
//! the leader waits for those who entered, never for those who were called.
//!
//! No wake-up is lost: the leader sets its bit by comparing the whole word, so
//! a lane that left before changes the word and the leader looks again, and
//! one that leaves after sees the bit. The last one out with the bit set wakes.

use super::futex::Futex;
use super::pace::{JOIN, Pace};
use super::sync::Ordering;

const CLOSED: u32 = 1 << 31;
const LEADER_SLEEPS: u32 = 1 << 30;
const INSIDE: u32 = LEADER_SLEEPS - 1;

/// See the module.
pub(super) struct Gate(Futex);

impl Gate {
    /// A closed gate.
    pub(super) fn new() -> Self {
        Gate(Futex::new(CLOSED))
    }

    /// Opens a gate that is closed and left by all. Who enters sees what was written before.
    pub(super) fn open(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Opens a gate that is closed and left by all, with so many lanes inside already.
    pub(super) fn open_for(&self, lanes: usize) {
        self.0.store(lanes as u32 & INSIDE, Ordering::Release);
    }

    /// Enters, if the gate is open.
    pub(super) fn enter(&self) -> bool {
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| {
                (word & CLOSED == 0).then_some(word + 1)
            })
            .is_ok()
    }

    /// Leaves. What was written inside is seen by the leader when `close` returns.
    pub(super) fn leave(&self) {
        if self.0.fetch_sub(1, Ordering::Release) == CLOSED | LEADER_SLEEPS | 1 {
            self.0.wake(1);
        }
    }

    /// Closes the gate and waits until all who entered have left.
    pub(super) fn close(&self, pace: &Pace) {
        if self.0.fetch_or(CLOSED, Ordering::AcqRel) & INSIDE == 0 {
            return;
        }
        let empty = || self.0.load(Ordering::Acquire) & INSIDE == 0;
        if pace.spin(&JOIN, empty) {
            return;
        }
        let announce = |word: u32| (word & INSIDE != 0).then_some(word | LEADER_SLEEPS);
        while let Ok(word) = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, announce)
        {
            self.0.sleep(word | LEADER_SLEEPS);
        }
    }
}
