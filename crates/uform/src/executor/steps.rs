//! Work in steps, between which a single thread may turn to others.
//!
//! What a call computes is written as a future, for its one ability: to stop where it stands
//! and go on later. Nothing wakes it, and nothing is waited for in it. With threads of its
//! own an executor [completes](complete) it in one go. Without, the event loop's turns each
//! take it to its next [`pause`] (`turns.rs`).

use std::future::{self, Future};
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Work in steps.
pub(super) type Steps<'a, R = ()> = Pin<Box<dyn Future<Output = R> + Send + 'a>>;

/// The end of a step: some milliseconds of work, between two layers of a block of texts.
pub async fn pause() {
    let mut paused = false;
    future::poll_fn(|_| match mem::replace(&mut paused, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Every step, one after the other.
pub fn complete<R>(work: impl Future<Output = R>) -> R {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(outcome) = step(work.as_mut()) {
            return outcome;
        }
    }
}

/// One step.
pub(super) fn step<R>(work: Pin<&mut (impl Future<Output = R> + ?Sized)>) -> Poll<R> {
    work.poll(&mut Context::from_waker(Waker::noop()))
}
