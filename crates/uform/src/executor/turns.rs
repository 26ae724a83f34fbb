//! An executor's threads where there are none: the calling thread is the only
//! lane, and deferred calls run as the event loop turns. Same shape as `threads.rs`.

use std::sync::Arc;

use super::Core;
use super::mood::{Mood, SharedMood};
use crate::Result;
use crate::kernels::{ForkJoin, Solo};

/// See the module.
pub(super) struct Threads {
    mood: SharedMood,
}

impl Threads {
    pub(super) fn new(_lanes: usize) -> Self {
        Threads {
            mood: SharedMood::new(),
        }
    }

    pub(super) fn start(&self, _core: &Arc<Core>) -> Result<()> {
        Ok(())
    }

    pub(super) fn ready(&self, _core: &Arc<Core>) -> Result<()> {
        Ok(())
    }

    pub(super) fn team(&self) -> &dyn ForkJoin {
        &Solo
    }

    pub(super) fn mood(&self) -> Mood {
        self.mood.get()
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        self.mood.set(mood);
    }

    pub(super) fn ring(&self) {}

    pub(super) fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// Runs what is queued, here and now.
    pub(super) fn finish(core: &Core) {
        while core.turn() {}
    }

    pub(super) fn join(&self) {}

    pub(super) fn is_joined(&self) -> bool {
        true
    }
}
