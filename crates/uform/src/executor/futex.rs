//! An atomic number threads can sleep on: "sleep, if it still is this".
//!
//! On Linux the kernel compares and goes to sleep in one step. Elsewhere a lock
//! makes the same promise: a thread that changes the number takes the lock before it
//! wakes, so it cannot do so between a sleeper's look and its sleep. Sleepers may
//! wake without cause either way; they look again. The model checker, which has no
//! kernel, is given the lock.

use std::ops::Deref;

use super::sync::AtomicU32;

#[cfg(all(target_os = "linux", not(loom)))]
use linux::Bed;
#[cfg(any(not(target_os = "linux"), loom))]
use portable::Bed;

/// The number, and where its sleepers lie.
pub(super) struct Futex {
    word: AtomicU32,
    bed: Bed,
}

impl Futex {
    pub(super) fn new(value: u32) -> Self {
        Futex {
            word: AtomicU32::new(value),
            bed: Bed::default(),
        }
    }

    /// Sleeps until woken, unless the number is no longer `expected`.
    pub(super) fn sleep(&self, expected: u32) {
        self.bed.sleep(&self.word, expected);
    }

    /// Wakes up to `most` sleepers. The number was changed before.
    pub(super) fn wake(&self, most: u32) {
        self.bed.wake(&self.word, most);
    }
}

impl Deref for Futex {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod linux {
    use super::AtomicU32;
    use std::ptr;

    /// The kernel keeps the sleepers.
    #[derive(Default)]
    pub(super) struct Bed(());

    impl Bed {
        pub(super) fn sleep(&self, word: &AtomicU32, expected: u32) {
            // SAFETY: the kernel reads the number at a valid address, and no
            // timeout is given. Its answers (woken, number differs, interrupted) all mean "look again".
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    expected,
                    ptr::null::<libc::timespec>(),
                );
            }
        }

        pub(super) fn wake(&self, word: &AtomicU32, most: u32) {
            // The kernel counts in signed numbers.
            let most = most.min(i32::MAX as u32);
            // SAFETY: the address is only a name here.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    most,
                );
            }
        }
    }
}

#[cfg(any(test, not(target_os = "linux"), loom))]
mod portable {
    use super::AtomicU32;
    use crate::executor::sync::{Condvar, Mutex, Ordering, lock};
    use std::sync::PoisonError;

    /// The sleepers share one condition.
    #[derive(Default)]
    pub(super) struct Bed {
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Bed {
        pub(super) fn sleep(&self, word: &AtomicU32, expected: u32) {
            let guard = lock(&self.lock);
            if word.load(Ordering::SeqCst) == expected {
                drop(
                    self.woken
                        .wait(guard)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        }

        pub(super) fn wake(&self, _word: &AtomicU32, most: u32) {
            drop(lock(&self.lock));
            match most {
                u32::MAX => self.woken.notify_all(),
                most => (0..most).for_each(|_| self.woken.notify_one()),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{AtomicU32, linux, portable};
    use crate::executor::sync::Ordering;
    use std::thread;

    /// Two threads hand a number back and forth; a lost wake-up would hang.
    fn hands_over(sleep: impl Fn(&AtomicU32, u32) + Sync, wake: impl Fn(&AtomicU32) + Sync) {
        let word = AtomicU32::new(0);
        let play = |mine: u32| {
            for _ in 0..2_000 {
                while word.load(Ordering::SeqCst) % 2 != mine {
                    sleep(&word, 1 - mine + (word.load(Ordering::SeqCst) & !1));
                }
                word.fetch_add(1, Ordering::SeqCst);
                wake(&word);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
        assert_eq!(word.into_inner(), 4_000);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernels_futex_loses_no_wake_up() {
        let bed = linux::Bed::default();
        hands_over(|word, seen| bed.sleep(word, seen), |word| bed.wake(word, 1));
    }

    #[test]
    fn the_portable_futex_loses_no_wake_up() {
        let bed = portable::Bed::default();
        hands_over(|word, seen| bed.sleep(word, seen), |word| bed.wake(word, 1));
    }
}
