//! One call: what its caller keeps of it, and what the queue holds of it.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Weak};

use super::order::Ticket;
use super::scratch::Arena;
use super::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use super::{Core, Hold};
use crate::kernels::ForkJoin;
use crate::{Error, Result, Status};

/// What the caller of one call keeps: the way to give up on it, and how far it got.
/// Any thread may use it at any time; it serves one call.
#[derive(Default)]
pub struct Control {
    cancelled: Arc<AtomicBool>,
    done: AtomicU64,
    total: AtomicU64,
    /// Where the call is queued, so that cancelling can take it out.
    place: Mutex<Option<Place>>,
}

/// A queued call's executor and ticket.
struct Place {
    core: Weak<Core>,
    ticket: Ticket,
}

impl Control {
    /// The control of a call yet to be made.
    pub fn new() -> Self {
        Control::default()
    }

    /// Gives up on the call. A queued one is taken out of the queue and ends
    /// [`Aborted`](Status::Aborted) before this returns; a running one is asked to
    /// stop and ends when it next checks; for one that has ended this does nothing.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        let place = lock(&self.place).take();
        if let Some(place) = place
            && let Some(core) = place.core.upgrade()
        {
            core.withdraw(place.ticket);
        }
    }

    /// Whether the caller gave up.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// For the running call, between layers.
    ///
    /// # Errors
    /// [`Aborted`](Status::Aborted) when the caller gave up.
    pub fn check(&self) -> Result<()> {
        match self.is_cancelled() {
            true => Err(Error::aborted()),
            false => Ok(()),
        }
    }

    /// For the running call: `done` of `total` (texts, bytes) are behind it.
    pub fn report(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Release);
    }

    /// What the call last reported, as `(done, total)`; zeros before it did.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Acquire);
        (done, self.total.load(Ordering::Relaxed))
    }

    /// The flag alone, which an executor keeps while the call runs.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    /// Queues the call with `enqueue`, so that no `cancel` can fall between its
    /// being queued and its being known where.
    pub(super) fn enqueue(
        &self,
        core: &Arc<Core>,
        call: Box<dyn Deferred>,
        enqueue: impl FnOnce(Box<dyn Deferred>) -> Admission,
    ) -> Option<Refused> {
        let mut place = lock(&self.place);
        if self.is_cancelled() {
            return Some((Error::aborted(), call));
        }
        match enqueue(call) {
            Ok(ticket) => {
                *place = Some(Place {
                    core: Arc::downgrade(core),
                    ticket,
                });
                None
            }
            Err(refused) => Some(refused),
        }
    }
}

/// A call that was not accepted, and why.
pub(super) type Refused = (Error, Box<dyn Deferred>);

/// What comes of submitting a deferred call.
pub(super) type Admission = std::result::Result<Ticket, Refused>;

/// A deferred call as the queue sees it: it is run or failed, and then
/// settled, which tells its caller.
pub(super) trait Deferred: Send {
    /// Computes, and keeps the outcome.
    fn run(&mut self, team: &dyn ForkJoin, arenas: &mut [Arena]);

    /// Keeps an error as the outcome.
    fn fail(&mut self, error: Error);

    /// Hands the outcome over.
    fn settle(self: Box<Self>);

    /// The flag that asks it to stop.
    fn flag(&self) -> Arc<AtomicBool>;
}

/// The deferred call made of two closures.
pub(super) struct Call<W, D, R> {
    control: Arc<Control>,
    work: Option<W>,
    done: D,
    outcome: Option<Result<R>>,
}

impl<W, D, R> Call<W, D, R> {
    pub(super) fn new(control: Arc<Control>, work: W, done: D) -> Self {
        Call {
            control,
            work: Some(work),
            done,
            outcome: None,
        }
    }
}

impl<W, D, R> Deferred for Call<W, D, R>
where
    W: FnOnce(&mut Hold<'_>) -> Result<R> + Send,
    D: FnOnce(Result<R>) + Send,
    R: Send,
{
    fn run(&mut self, team: &dyn ForkJoin, arenas: &mut [Arena]) {
        let Some(work) = self.work.take() else {
            return;
        };
        let control = &*self.control;
        self.outcome = Some(guarded(|| {
            // It may have been cancelled after it was taken from the queue.
            control.check()?;
            work(&mut Hold {
                team,
                arenas,
                control,
            })
        }));
    }

    fn fail(&mut self, error: Error) {
        self.outcome = Some(Err(error));
        drop(self.work.take());
    }

    fn settle(self: Box<Self>) {
        let Call { done, outcome, .. } = *self;
        done(outcome.unwrap_or_else(|| {
            Err(Error::new(
                Status::Internal,
                "a deferred call ended without an outcome",
            ))
        }));
    }

    fn flag(&self) -> Arc<AtomicBool> {
        self.control.flag()
    }
}

/// The edge of a call: a panic inside becomes an error of the call alone.
pub(super) fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        Err(Error::new(
            Status::Internal,
            format!("the call panicked: {}", text_of(&*payload)),
        ))
    })
}

/// Runs what the caller gave us to be told with. A panic in it has nobody left to go to.
pub(super) fn tell(callback: impl FnOnce()) {
    drop(panic::catch_unwind(AssertUnwindSafe(callback)));
}

/// The text a panic was raised with.
fn text_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}
