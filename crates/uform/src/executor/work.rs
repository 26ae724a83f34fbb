//! What a deferred call computes, alone or in a run with its neighbours.
//!
//! Calls that come one by one use a machine badly: a short text gives a lane too
//! little to do between two meetings of the team. Neighbours in the queue whose work
//! is of one kind may therefore be computed as one *run*. It consists of what is
//! queued when its first call's turn comes: no call waits for others to join it.
//!
//! From outside nothing of it shows but the time it takes. Each call of a run keeps
//! its own [`Control`] and gets its own outcome. When a run fails as a whole, its calls
//! are run again one by one, so that each fails, or succeeds, by itself.

use std::future::Future;
use std::sync::Arc;

use super::call::guarded_steps;
use super::scratch::Arena;
use super::{Control, Hold};
use crate::kernels::ForkJoin;
use crate::{Error, Result};

/// What a deferred call computes.
pub trait Work: Send + Sized + 'static {
    /// What comes of one call.
    type Output: Send + 'static;

    /// Whether `next` may be computed in one run with this call, the first of the run, and with
    /// those it admitted before. It is asked for each neighbour in the order of the
    /// queue, until it refuses. The queue waits meanwhile: compare and count, no more.
    fn admits(&mut self, next: &Self) -> bool;

    /// Computes a run, in steps that end with a [`pause`](super::pause): an outcome a call, in
    /// order, each as if the call were alone. A call that tries between two steps finds
    /// the executor held. Nothing wakes the future, so that it must wait for nothing.
    ///
    /// # Errors
    /// What ends the run as a whole; its calls are then run again, each alone.
    fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        arenas: &mut [Arena],
    ) -> impl Future<Output = Result<Vec<Result<Self::Output>>>> + Send;
}

/// One call of a run.
pub struct Share<'a, W> {
    /// What it computes.
    pub work: &'a mut W,
    /// The call's own control: to check whether to go on, and to report progress.
    pub control: &'a Control,
}

/// Work that is a closure: it runs once, and alone.
pub(super) struct Once<F>(Option<F>);

impl<F> Once<F> {
    pub(super) fn new(work: F) -> Self {
        Once(Some(work))
    }
}

impl<F, R> Work for Once<F>
where
    F: FnOnce(&mut Hold<'_>) -> Result<R> + Send + 'static,
    R: Send + 'static,
{
    type Output = R;

    fn admits(&mut self, _next: &Self) -> bool {
        false
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        arenas: &mut [Arena],
    ) -> Result<Vec<Result<R>>> {
        let outcomes = calls.iter_mut().filter_map(|Share { work, control }| {
            let work = work.0.take()?;
            Some(work(&mut Hold {
                team,
                arenas,
                control,
            }))
        });
        Ok(outcomes.collect())
    }
}

/// A call's work on its way to its outcome.
pub(super) struct Job<W: Work> {
    pub(super) control: Arc<Control>,
    /// `None` once it was run or refused.
    pub(super) work: Option<W>,
    pub(super) outcome: Option<Result<W::Output>>,
}

/// Runs jobs together, and each alone when that fails.
pub(super) async fn run<W: Work>(
    jobs: &mut [&mut Job<W>],
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) {
    if jobs.len() > 1 && run_together(jobs, team, arenas).await.is_ok() {
        return;
    }
    for alone in jobs.chunks_mut(1) {
        if let Err(error) = run_together(alone, team, arenas).await {
            alone[0].outcome = Some(Err(error));
        }
    }
}

async fn run_together<W: Work>(
    jobs: &mut [&mut Job<W>],
    team: &dyn ForkJoin,
    arenas: &mut [Arena],
) -> Result<()> {
    // They may have been cancelled after they were taken from the queue.
    if jobs.iter().all(|job| job.control.is_cancelled()) {
        return Err(Error::aborted());
    }
    let mut calls = Vec::with_capacity(jobs.len());
    for job in jobs.iter_mut() {
        let Job { control, work, .. } = &mut **job;
        calls.extend(work.as_mut().map(|work| Share { work, control }));
    }
    let outcomes = guarded_steps(W::run(&mut calls, team, arenas)).await?;
    for (job, outcome) in jobs.iter_mut().zip(outcomes) {
        job.outcome = Some(outcome);
    }
    Ok(())
}
