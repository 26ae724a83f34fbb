//! A borrowed ForkUnion pool, as the lanes of an executor.
//!
//! Each thread of the pool is a lane and runs [`lane`] once a job, claiming tasks from one
//! counter as lanes of our own team do. Who leads is not tied to who spawned the
//! pool: ForkUnion asks for one thread *at a time*, and of the thread that spawned an inclusive pool
//! it remembers only what it needs to undo its pinning. So the conductor leads deferred
//! calls and the caller immediate ones, as ever:
//!
//! | pool | its leader |
//! | --- | --- |
//! | inclusive | is thread 0 for the length of a job: it computes its share |
//! | exclusive | computes nothing, and sleeps when the job is long |
//!
//! ForkUnion's own waiting spins, which on an exclusive pool would take a core from those who
//! compute. There the leader first waits at a [`Gate`] that all lanes have left, and then
//! finds ForkUnion's wait all but over.
//!
//! A panic in a task does not cross the frames of C: it is caught on its lane, the tasks left are
//! skipped, and the leader raises it again after the job.
//!
//! A job inside a job would lead a pool that is led already. It runs on the thread that
//! wants it, as on our own team.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, TryLockError};

use super::forkunion::Handle;
use super::gate::Gate;
use super::pace::Pace;
use super::pools::{Loan, Pool};
use super::sync::{AtomicUsize, CachePadded, Mutex, Ordering, lock};
use crate::Result;
use crate::kernels::{ForkJoin, Solo};

/// See the module.
pub(super) struct Borrowed {
    pub(super) pool: Arc<Pool>,
    handle: Handle,
    lanes: usize,
    is_inclusive: bool,
    pace: Arc<Pace>,
    /// Held by the leader of a job.
    leading: Mutex<()>,
    /// `None` once the executor is over.
    loan: Mutex<Option<Loan>>,
}

impl Borrowed {
    /// The pool at an address, for the time until [`give_back`](Self::give_back).
    ///
    /// # Errors
    /// See [`Executor::on_pool`](super::Executor::on_pool).
    ///
    /// # Safety
    /// As [`Executor::on_pool`](super::Executor::on_pool).
    pub(super) unsafe fn at(address: usize, pace: Arc<Pace>) -> Result<Borrowed> {
        let pool = Pool::at(address);
        // First, so that a pool of ours is not deleted while it is looked at.
        let loan = pool.borrow()?;
        // SAFETY: the caller vouches for the address.
        let handle = unsafe { Handle::at(address)? };
        // SAFETY: as above.
        let (lanes, is_inclusive) = unsafe { (handle.threads(), handle.is_inclusive()) };
        Ok(Borrowed {
            pool,
            handle,
            lanes,
            is_inclusive,
            pace,
            leading: Mutex::new(()),
            loan: Mutex::new(Some(loan)),
        })
    }

    /// How many threads a job keeps busy, the leader's included.
    pub(super) fn busy(&self) -> usize {
        self.lanes + usize::from(!self.is_inclusive)
    }

    /// No call will use the pool any more.
    pub(super) fn give_back(&self) {
        drop(lock(&self.loan).take());
    }

    /// Runs a job whose leader is this thread.
    fn lead(&self, threads: usize, job: &Job<'_>) {
        if !self.is_inclusive {
            job.gate.open_for(threads);
        }
        let context = ptr::from_ref(job).cast_mut().cast::<c_void>();
        let meanwhile = || {
            if !self.is_inclusive {
                job.gate.close(&self.pace);
            }
        };
        // SAFETY: the pool is live as long as the executor, which its maker vouched for; this thread
        // alone leads, since calls hold the executor one at a time, the executor holds its turn
        // on the pool, and `leading` is held. The job outlives `run`, and `lane` catches panics.
        unsafe { self.handle.run(lane, context, meanwhile) };
    }
}

/// One job, in the leader's frame.
struct Job<'a> {
    body: &'a (dyn Fn(usize, usize) + Sync),
    tasks: usize,
    lanes: usize,
    /// Whether lanes leave the gate, since the leader waits there.
    is_counted: bool,
    gate: Gate,
    /// The next unclaimed task.
    next: CachePadded<AtomicUsize>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What each thread of the pool does for a job.
extern "C" fn lane(job: *mut c_void, thread: usize, _compute_domain: usize) {
    // SAFETY: `lead` gave the address of a job that outlives this call.
    let job = unsafe { &*job.cast::<Job<'_>>() };
    // More threads than there were at first: the owner spawned the pool anew, and there is no lane
    // for them.
    if thread < job.lanes {
        job.share(thread);
    }
    if job.is_counted {
        job.gate.leave();
    }
}

impl Job<'_> {
    /// Takes tasks until none is left.
    fn share(&self, lane: usize) {
        let shared = panic::catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= self.tasks {
                    break;
                }
                (self.body)(lane, task);
            }
        }));
        if let Err(payload) = shared {
            self.next.store(self.tasks, Ordering::Relaxed);
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

impl ForkJoin for Borrowed {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if tasks == 0 {
            return;
        }
        let leading = match self.leading.try_lock() {
            Ok(leading) => leading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Solo.run(tasks, body),
        };
        // SAFETY: the pool lives as long as the executor.
        let threads = unsafe { self.handle.threads() };
        let is_alone = self.is_inclusive && tasks.min(threads) == 1;
        // Without threads its owner has terminated it: who leads is still able to do every task.
        if threads == 0 || is_alone {
            return Solo.run(tasks, body);
        }
        let job = Job {
            body,
            tasks,
            lanes: self.lanes,
            is_counted: !self.is_inclusive,
            gate: Gate::new(),
            next: CachePadded::new(AtomicUsize::new(0)),
            panic: Mutex::new(None),
        };
        self.lead(threads, &job);
        drop(leading);
        if let Some(payload) = lock(&job.panic).take() {
            panic::resume_unwind(payload);
        }
    }
}
