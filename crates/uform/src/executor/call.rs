//! One call: what its caller keeps of it, and what the queue holds of it.

use std::any::Any;
use std::future::{self, Future};
use std::iter;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use super::Core;
use super::order::Ticket;
use super::scratch::Arena;
use super::steps::{Steps, step};
use super::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use super::work::{self, Job, Work};
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
    queued_at: Mutex<Option<QueuedAt>>,
}

/// A queued call's executor and ticket.
struct QueuedAt {
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
    /// stop and ends the same way when it next checks; for one whose outcome was handed over
    /// this does nothing.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        let queued_at = lock(&self.queued_at).take();
        if let Some(queued_at) = queued_at
            && let Some(core) = queued_at.core.upgrade()
        {
            core.withdraw(queued_at.ticket);
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

    /// For the running call: so many more are behind it.
    pub fn advance(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Release);
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
        let mut queued_at = lock(&self.queued_at);
        if self.is_cancelled() {
            return Some((Error::aborted(), call));
        }
        match enqueue(call) {
            Ok(ticket) => {
                *queued_at = Some(QueuedAt {
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
    /// Whether `next` is to be run with this call and those it admitted before.
    fn admits(&mut self, next: &dyn Deferred) -> bool;

    /// Computes, together with the calls it admitted, and keeps the outcomes.
    fn run<'a>(
        &'a mut self,
        admitted: &'a mut [Queued],
        team: &'a dyn ForkJoin,
        arenas: &'a mut [Arena],
    ) -> Steps<'a>;

    /// Keeps an error as the outcome.
    fn fail(&mut self, error: Error);

    /// Hands the outcome over.
    fn settle(self: Box<Self>);

    /// The flag that asks it to stop.
    fn flag(&self) -> Arc<AtomicBool>;

    /// Its [`Job`], by which calls of one kind know each other.
    fn job(&self) -> &dyn Any;

    /// The same, to be run.
    fn job_mut(&mut self) -> &mut dyn Any;
}

/// A call as it lies in the queue.
pub(super) type Queued = (Ticket, Box<dyn Deferred>);

/// The deferred call made of its work and the closure to be told with.
pub(super) struct Call<W: Work, D> {
    job: Job<W>,
    done: D,
}

impl<W: Work, D> Call<W, D> {
    pub(super) fn new(control: Arc<Control>, work: W, done: D) -> Self {
        let job = Job {
            control,
            work: Some(work),
            outcome: None,
        };
        Call { job, done }
    }
}

impl<W, D> Deferred for Call<W, D>
where
    W: Work,
    D: FnOnce(Result<W::Output>) + Send,
{
    fn admits(&mut self, next: &dyn Deferred) -> bool {
        let next = next.job().downcast_ref::<Job<W>>();
        match (&mut self.job.work, next.and_then(|next| next.work.as_ref())) {
            (Some(own), Some(next)) => own.admits(next),
            _ => false,
        }
    }

    fn run<'a>(
        &'a mut self,
        admitted: &'a mut [Queued],
        team: &'a dyn ForkJoin,
        arenas: &'a mut [Arena],
    ) -> Steps<'a> {
        let admitted = admitted.iter_mut();
        let others = admitted.filter_map(|(_, call)| call.job_mut().downcast_mut::<Job<W>>());
        let mut jobs: Vec<_> = iter::once(&mut self.job).chain(others).collect();
        Box::pin(async move {
            work::run(&mut jobs, team, arenas).await;
            // Dropped before any callback runs: none must find another call's work still alive.
            jobs.iter_mut().for_each(|job| job.work = None);
        })
    }

    fn fail(&mut self, error: Error) {
        self.job.outcome = Some(Err(error));
        self.job.work = None;
    }

    fn settle(self: Box<Self>) {
        let Call { job, done } = *self;
        let outcome = job.outcome.unwrap_or_else(|| {
            Err(Error::new(
                Status::Internal,
                "a deferred call ended without an outcome",
            ))
        });
        // Until it is told, a call can be given up, also one that others kept waiting.
        done(outcome.and_then(|found| job.control.check().map(|()| found)));
    }

    fn flag(&self) -> Arc<AtomicBool> {
        self.job.control.flag()
    }

    fn job(&self) -> &dyn Any {
        &self.job
    }

    fn job_mut(&mut self) -> &mut dyn Any {
        &mut self.job
    }
}

/// The edge of a call: a panic inside becomes an error of the call alone.
pub(super) fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(panicked(&*payload)))
}

/// The same around every step.
pub(super) async fn guarded_steps<R>(work: impl Future<Output = Result<R>>) -> Result<R> {
    let mut work = pin!(work);
    future::poll_fn(|_| {
        panic::catch_unwind(AssertUnwindSafe(|| step(work.as_mut())))
            .unwrap_or_else(|payload| Poll::Ready(Err(panicked(&*payload))))
    })
    .await
}

fn panicked(payload: &(dyn Any + Send)) -> Error {
    let message = format!("the call panicked: {}", text_of(payload));
    Error::new(Status::Internal, message)
}

/// Runs what the caller gave us to be told with. A panic in it is dropped: no caller is left to report it to.
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
