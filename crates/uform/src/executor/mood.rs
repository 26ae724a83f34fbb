//! How an executor idles.

use super::sync::{AtomicU32, Ordering};

/// How an executor's threads wait for work. The numbers are part of the public contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mood {
    /// Threads sleep in the kernel and use no CPU. The default. Before a thread sleeps it looks for work a
    /// little longer than waking it would take (`pace.rs` says how long), so that the stages of a call and
    /// the calls of a burst find it awake. With fewer cores than threads it sleeps at once.
    #[default]
    Parked = 0,
    /// Threads keep looking for work: the fastest answer, at the price of a core for each.
    Spinning = 1,
}

/// A mood that one thread sets and others read.
pub(super) struct SharedMood(AtomicU32);

impl SharedMood {
    pub(super) fn new() -> Self {
        SharedMood(AtomicU32::new(Mood::default() as u32))
    }

    pub(super) fn get(&self) -> Mood {
        match self.0.load(Ordering::Relaxed) {
            0 => Mood::Parked,
            _ => Mood::Spinning,
        }
    }

    pub(super) fn set(&self, mood: Mood) {
        self.0.store(mood as u32, Ordering::Relaxed);
    }
}
