//! The standard library's, as they are.

pub(in crate::executor) use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(in crate::executor) use std::sync::{Mutex, MutexGuard, mpsc};
pub(in crate::executor) use std::thread_local as per_thread;
#[cfg(feature = "native")]
pub(in crate::executor) use std::{hint, thread};

#[cfg(all(feature = "native", any(test, not(target_os = "linux"))))]
pub(in crate::executor) use std::sync::Condvar;

/// A load in the one order of all sequentially consistent steps.
#[cfg(feature = "native")]
#[inline(always)]
pub(in crate::executor) fn load_in_order(word: &AtomicU32) -> u32 {
    word.load(Ordering::SeqCst)
}

/// A value that its users must keep from being written and read at once.
#[cfg(feature = "native")]
pub(in crate::executor) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(feature = "native")]
impl<T> UnsafeCell<T> {
    pub(in crate::executor) fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Lends it for reading.
    #[inline(always)]
    pub(in crate::executor) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Lends it for writing.
    #[inline(always)]
    pub(in crate::executor) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
