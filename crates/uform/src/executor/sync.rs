//! What threads share. Every atomic, lock, channel and thread of the executor comes
//! from here, so that a model checker can put its own in their place: with `--cfg loom`
//! they are loom's, and `under_loom` says what is checked with them.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod real;

use std::sync::PoisonError;

#[cfg(feature = "native")]
pub(super) use crossbeam_utils::CachePadded;

#[cfg(loom)]
pub(super) use modelled::*;
#[cfg(not(loom))]
pub(super) use real::*;

/// Locks. A lock is never left half-changed here, whatever panicked while it
/// was held, so poisoning says nothing.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
