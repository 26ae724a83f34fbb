//! How long a thread looks for work before it sleeps.
//!
//! The stages of one forward pass follow each other within microseconds,
//! and a thread asleep in the kernel takes some 60 µs to come back. So a
//! thread first spins for a bounded time ([`IDLE`]): waiting for about as long as waking costs
//! is never much worse than the best choice. The bound, not the mood, makes a parked executor
//! idle: soon after its last call it uses no CPU. With more threads than cores, spinning would
//! keep the very thread it waits for from running, so there it sleeps at once.
//!
//! Between two calls lies what the caller does: its thread is woken by the answer, which costs as much again,
//! and asks anew. A thread that spins for a call therefore waits longer than one wake. After the
//! first, hot part of that time it offers its core between looks, because the thread it waits for may want
//! just that one. Measured with single queries of MiniLM from Node.js, one after the other, by 2 threads on 2
//! cores: 0.94 ms asleep after 40 µs, 0.72 ms after 150, the same after 250.
//! A spinning mood has no bound and offers its core in the same way: alone
//! that costs next to nothing, and otherwise it lets a caller's thread through.

use std::time::{Duration, Instant};

use super::mood::{Mood, SharedMood};
use super::sync::{AtomicBool, Ordering, hint, thread};

/// How long a thread spins.
pub(super) struct Patience {
    /// Without letting go of its core.
    hot: Duration,
    /// In all, before it sleeps.
    limit: Duration,
}

/// A worker or conductor without work: for about what waking it costs, then until a caller that was
/// woken may have asked again.
pub(super) const IDLE: Patience = Patience {
    hot: Duration::from_micros(40),
    limit: Duration::from_micros(150),
};

/// A leader whose job lanes are still inside: for several times a task's usual length, since its caller is
/// waiting and the lanes are busy.
pub(super) const JOIN: Patience = Patience {
    hot: Duration::from_micros(200),
    limit: Duration::from_micros(200),
};

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

    /// Spins until `ready`, which it returns, or for as long as `patience` says; in a spinning
    /// mood without limit.
    pub(super) fn spin(&self, patience: &Patience, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let roomy = self.roomy.load(Ordering::Relaxed);
        if !roomy && self.mood.get() == Mood::Parked {
            return false;
        }
        let (hot, limit) = match roomy {
            true => (patience.hot, patience.limit),
            false => (Duration::ZERO, Duration::ZERO),
        };
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if waited < hot {
                continue;
            }
            if waited >= limit && self.mood.get() == Mood::Parked {
                return false;
            }
            thread::yield_now();
        }
    }
}
