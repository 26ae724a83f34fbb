//! Which executors the current thread is inside of: running a call or a task of
//! theirs, or telling a caller its outcome.
//!
//! Waiting for an executor from inside it would wait for oneself. `drain` asks here
//! and refuses, `free` asks here and leaves the joining to a thread outside.

use std::cell::RefCell;

use super::sync::per_thread;

per_thread! {
    /// Innermost last. An executor is named by its address.
    static EXECUTORS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Reads or changes them; nothing once the thread is taking down its locals,
/// when no call of ours is on it any more.
fn with<R: Default>(look: impl FnOnce(&mut Vec<usize>) -> R) -> R {
    EXECUTORS
        .try_with(|executors| look(&mut executors.borrow_mut()))
        .unwrap_or_default()
}

/// Takes the innermost one off, also when unwinding.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        with(|executors| executors.pop());
    }
}

/// Runs `work` inside `executor`.
pub(super) fn inside<R>(executor: usize, work: impl FnOnce() -> R) -> R {
    with(|executors| executors.push(executor));
    let _leave = Leave;
    work()
}

/// Whether the current thread is inside `executor`.
pub(super) fn is_inside(executor: usize) -> bool {
    with(|executors| executors.contains(&executor))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{inside, is_inside};

    #[test]
    fn nests_and_ends() {
        inside(1, || {
            inside(2, || assert!(is_inside(1) && is_inside(2) && !is_inside(3)));
            assert!(is_inside(1) && !is_inside(2));
            let caught =
                std::panic::catch_unwind(|| inside(3, || std::panic::resume_unwind(Box::new(0))));
            assert!(caught.is_err() && !is_inside(3));
        });
        assert!(!is_inside(1));
    }
}
