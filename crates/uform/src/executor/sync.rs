//! What threads share. Every atomic, lock, channel and thread of the executor comes
//! from here, so that a model checker can put its own in their place: with `--cfg loom`
//! they are loom's, and `under_loom` says what is checked with them.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod real;

use std::sync::PoisonError;

#[cfg(loom)]
pub(super) use modelled::*;
#[cfg(not(loom))]
pub(super) use real::*;

/// Locks. A lock is never left half-changed here, whatever panicked while it
/// was held, so poisoning says nothing.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value with cache lines of its own, so that writing it does not take
/// its neighbours from other cores. Twice 64 bytes: the prefetcher fetches pairs.
#[cfg(feature = "native")]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

#[cfg(feature = "native")]
impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
