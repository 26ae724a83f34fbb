//! How long a thread looks for work before it sleeps.
//!
//! The stages of one forward pass follow each other within microseconds,
//! and a thread asleep in the kernel takes some 60 µs to come back. So a
//! thread first spins for a bounded while: whoever waits for as long as waking costs
//! spends at most twice what the best choice would have. It is the bound, not
//! the mood, that makes a parked executor idle: 40 µs after its last call it uses no CPU. With more threads than cores that would
//! keep the very thread it waits for from running, so there it sleeps at once.
//! A spinning mood has no bound, but past it offers its core between looks: alone
//! that costs next to nothing, and otherwise it lets a caller's thread through.

use std::time::{Duration, Instant};

use super::mood::{Mood, SharedMood};
use super::sync::{AtomicBool, Ordering, hint, thread};

/// How long a worker or conductor without work spins: about what waking one costs.
pub(super) const IDLE_SPIN: Duration = Duration::from_micros(40);

/// How long a leader spins for lanes still inside its job: several times a
/// task's usual length, since its caller is waiting and the lanes are busy.
pub(super) const JOIN_SPIN: Duration = Duration::from_micros(200);

/// Looks between two readings of the clock. To a model checker one says what all of them do.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 32 };

/// The mood of an executor's threads, and whether each can have a core of its own.
pub(super) struct Pace {
    pub(super) mood: SharedMood,
    roomy: AtomicBool,
}

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            mood: SharedMood::new(),
            roomy: AtomicBool::new(false),
        }
    }

    /// Says whether there is a core for every thread.
    pub(super) fn set_roomy(&self, roomy: bool) {
        self.roomy.store(roomy, Ordering::Relaxed);
    }

    /// Spins until `ready`, which it returns, or for `limit`; in a spinning
    /// mood without limit.
    pub(super) fn spin(&self, limit: Duration, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let roomy = self.roomy.load(Ordering::Relaxed);
        if !roomy && self.mood.get() == Mood::Parked {
            return false;
        }
        let limit = if roomy { limit } else { Duration::ZERO };
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= limit {
                match self.mood.get() {
                    Mood::Parked => return false,
                    Mood::Spinning => thread::yield_now(),
                }
            }
        }
    }
}
