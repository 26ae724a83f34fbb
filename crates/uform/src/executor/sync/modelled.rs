//! Loom's, and what it lacks made of them.
//!
//! `std::sync::Arc` stays: loom's has no weak counts. Its counting is not explored,
//! what it points to is.

pub(in crate::executor) use loom::cell::UnsafeCell;
pub(in crate::executor) use loom::hint;
pub(in crate::executor) use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub(in crate::executor) use loom::sync::{Condvar, Mutex, MutexGuard};

/// A load in the one order of all sequentially consistent steps. Loom would let it return
/// a value older than that order allows; behind a fence it does not.
pub(in crate::executor) fn load_in_order(word: &AtomicU32) -> u32 {
    loom::sync::atomic::fence(Ordering::SeqCst);
    word.load(Ordering::SeqCst)
}

/// Thread locals. The standard ones would be shared by all of a model's threads.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = const { $value:expr };) => {
        loom::thread_local! { $(#[$attribute])* static $name: $type = $value; }
    };
}
pub(in crate::executor) use per_thread;

/// Threads that can be asked whether they have ended.
pub(in crate::executor) mod thread {
    use super::{AtomicBool, Ordering};
    use std::io;
    use std::sync::Arc;

    #[cfg(test)]
    pub(in crate::executor) use loom::thread::spawn;
    pub(in crate::executor) use loom::thread::yield_now;

    /// As `std::thread::Builder`.
    pub(in crate::executor) struct Builder(loom::thread::Builder);

    impl Builder {
        pub(in crate::executor) fn new() -> Self {
            Builder(loom::thread::Builder::new())
        }

        pub(in crate::executor) fn name(self, name: String) -> Self {
            Builder(self.0.name(name))
        }

        pub(in crate::executor) fn spawn<T: Send + 'static>(
            self,
            life: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let ended = Arc::new(AtomicBool::new(false));
            let ends = Arc::clone(&ended);
            let handle = self.0.spawn(move || {
                let outcome = life();
                ends.store(true, Ordering::Release);
                outcome
            })?;
            Ok(JoinHandle { handle, ended })
        }
    }

    /// As `std::thread::JoinHandle`.
    pub(in crate::executor) struct JoinHandle<T> {
        handle: loom::thread::JoinHandle<T>,
        ended: Arc<AtomicBool>,
    }

    impl<T> JoinHandle<T> {
        pub(in crate::executor) fn join(self) -> std::thread::Result<T> {
            self.handle.join()
        }

        pub(in crate::executor) fn is_finished(&self) -> bool {
            self.ended.load(Ordering::Acquire)
        }
    }
}

/// Channels. Loom's own does not tell a receiver that the last sender is gone.
pub(in crate::executor) mod mpsc {
    use super::super::lock;
    use super::{Condvar, Mutex};
    use std::collections::VecDeque;
    use std::sync::mpsc::SendError;
    use std::sync::{Arc, PoisonError};

    pub(in crate::executor) use std::sync::mpsc::RecvError;

    struct Channel<T> {
        state: Mutex<State<T>>,
        changed: Condvar,
    }

    struct State<T> {
        sent: VecDeque<T>,
        senders: usize,
    }

    pub(in crate::executor) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let channel = Arc::new(Channel {
            state: Mutex::new(State {
                sent: VecDeque::new(),
                senders: 1,
            }),
            changed: Condvar::new(),
        });
        (Sender(Arc::clone(&channel)), Receiver(channel))
    }

    /// As `std::sync::mpsc::Sender`, but sending to a dropped receiver is no error.
    pub(in crate::executor) struct Sender<T>(Arc<Channel<T>>);

    impl<T> Sender<T> {
        pub(in crate::executor) fn send(&self, value: T) -> Result<(), SendError<T>> {
            lock(&self.0.state).sent.push_back(value);
            self.0.changed.notify_one();
            Ok(())
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            lock(&self.0.state).senders += 1;
            Sender(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            lock(&self.0.state).senders -= 1;
            self.0.changed.notify_one();
        }
    }

    /// As `std::sync::mpsc::Receiver`.
    pub(in crate::executor) struct Receiver<T>(Arc<Channel<T>>);

    impl<T> Receiver<T> {
        pub(in crate::executor) fn recv(&self) -> Result<T, RecvError> {
            let mut state = lock(&self.0.state);
            loop {
                if let Some(value) = state.sent.pop_front() {
                    return Ok(value);
                }
                if state.senders == 0 {
                    return Err(RecvError);
                }
                let waited = self.0.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    impl<T> Iterator for Receiver<T> {
        type Item = T;

        fn next(&mut self) -> Option<T> {
            self.recv().ok()
        }
    }
}
