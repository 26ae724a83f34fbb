//! The threads an executor owns: a conductor and the workers of its team.
//!
//! The *conductor* takes deferred calls from the queue and leads the team through
//! them, as lane 0. It is the first thread to be spawned and spawns the others
//! itself, so that what threads inherit or block is never set on the caller's.
//! For an immediate call the caller leads the same workers, and the
//! conductor sleeps: an executor of N threads never computes on more than N.
//!
//! Of an executor on a borrowed pool only the conductor is its own. It leads the pool's threads,
//! and takes no call from the queue before it is the executor's turn on the pool.
//!
//! The conductor goes when the executor is closed and its last call is over: it
//! sends the workers home, joins them, and gives the scratch back. A thread that frees
//! the executor joins the conductor alone.

use std::io;
use std::process;
use std::sync::{Arc, TryLockError};

use super::Core;
use super::affinity::{Here, pin};
use super::bell::Bell;
use super::borrowed::Borrowed;
use super::mood::Mood;
use super::pace::Pace;
use super::pools::Turn;
use super::reentrancy::inside;
use super::sync::thread::{Builder, JoinHandle};
use super::sync::{AtomicBool, Mutex, Ordering, lock, mpsc};
use super::team::Team;
use crate::kernels::ForkJoin;
use crate::placement::Placement;
use crate::{Error, Result, Status};

/// See the module.
pub(super) struct Threads {
    /// The process that the threads run in.
    process: u32,
    pace: Arc<Pace>,
    team: Arc<Team>,
    /// A borrowed pool, used instead of the team, which has one lane then.
    pool: Option<Borrowed>,
    /// Rung when the conductor may have something to do.
    bell: Arc<Bell>,
    /// Held while joining. No call is accepted by then, so `ready` never waits for it.
    conductor: Mutex<Conductor>,
    /// Whether nothing is left to join, told without the lock, which another `join` may hold.
    joined: AtomicBool,
}

/// Where the conductor is in its life.
enum Conductor {
    NotYet,
    Spawned(JoinHandle<()>),
    Joined,
}

impl Threads {
    /// A team of so many lanes, none of which has a thread yet.
    pub(super) fn new(lanes: usize) -> Self {
        Threads::with(lanes, None, Arc::new(Pace::new()))
    }

    /// The threads of the pool at an address. The conductor is spawned for the first deferred call.
    ///
    /// # Safety
    /// As [`Executor::on_pool`](super::Executor::on_pool).
    pub(super) unsafe fn on_pool(address: usize, placement: &Placement) -> Result<Self> {
        let pace = Arc::new(Pace::new());
        // SAFETY: the caller vouches for the address.
        let pool = unsafe { Borrowed::at(address, Arc::clone(&pace))? };
        let threads = Threads::with(1, Some(pool), pace);
        threads.find_room(placement);
        Ok(threads)
    }

    fn with(lanes: usize, pool: Option<Borrowed>, pace: Arc<Pace>) -> Self {
        Threads {
            process: process::id(),
            team: Arc::new(Team::new(lanes, Arc::clone(&pace))),
            pool,
            pace,
            bell: Arc::new(Bell::new()),
            conductor: Mutex::new(Conductor::NotYet),
            joined: AtomicBool::new(false),
        }
    }

    /// How many threads a call keeps busy.
    pub(super) fn busy(&self) -> usize {
        self.pool.as_ref().map_or(self.team.lanes(), Borrowed::busy)
    }

    /// Sees whether each thread of a call can have a core of its own.
    fn find_room(&self, placement: &Placement) {
        let at_once = match &self.pool {
            Some(_) => placement.usable.count(),
            None => placement.parallelism(),
        };
        // One lane is led beside a caller that has a thread of its own.
        // A model checker has no cores, and no time to spin in.
        self.pace
            .set_roomy(!cfg!(loom) && at_once >= self.busy().max(2));
    }

    /// Spawns all threads and returns when each of them runs.
    pub(super) fn start(&self, core: &Arc<Core>) -> Result<()> {
        let (up, is_up) = mpsc::channel();
        *lock(&self.conductor) = Conductor::Spawned(self.spawn(core, up)?);
        match is_up.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                self.join();
                Err(refused(self.team.lanes(), error))
            }
            Err(mpsc::RecvError) => Err(Error::new(
                Status::Internal,
                "the conductor of an executor ended before its threads were up",
            )),
        }
    }

    /// Sees to it that a deferred call just queued has a conductor to take it.
    pub(super) fn ready(&self, core: &Arc<Core>) -> Result<()> {
        let mut conductor = lock(&self.conductor);
        if matches!(*conductor, Conductor::NotYet) {
            *conductor = Conductor::Spawned(self.spawn(core, mpsc::channel().0)?);
        }
        Ok(())
    }

    /// The team, for the call that holds the executor.
    pub(super) fn team(&self) -> &dyn ForkJoin {
        match &self.pool {
            Some(pool) => pool,
            None => &*self.team,
        }
    }

    /// Whether the conductor of `executor` may take a call now, and until the answer is dropped. If
    /// not, its bell is rung later. Without `wanted` there is no call to take.
    pub(super) fn turn(&self, executor: usize, wanted: bool) -> Option<Option<Turn>> {
        match &self.pool {
            Some(borrowed) if wanted => borrowed.pool.turn(executor, &self.bell).map(Some),
            Some(_) => {
                self.step_out(executor);
                None
            }
            None => wanted.then_some(None),
        }
    }

    /// Has `executor` wait for its turn, if there is a call to take.
    pub(super) fn line_up(&self, executor: usize, wanted: bool) {
        if let Some(borrowed) = &self.pool
            && wanted
        {
            borrowed.pool.line_up(executor, &self.bell);
        }
    }

    /// Has `executor` wait for no turn any more.
    pub(super) fn step_out(&self, executor: usize) {
        if let Some(borrowed) = &self.pool {
            borrowed.pool.step_out(executor);
        }
    }

    /// Lets an immediate call have the lanes, until the answer is dropped.
    ///
    /// # Errors
    /// [`Contended`](Status::Contended) when a borrowed pool is another executor's now or next.
    pub(super) fn turn_now(&self) -> Result<Option<Turn>> {
        let pool = self.pool.as_ref();
        pool.map(|borrowed| borrowed.pool.turn_now()).transpose()
    }

    /// What the system refused to the threads of a borrowed pool of ours, a sentence each.
    pub(super) fn refused(&self) -> Vec<String> {
        let pool = self.pool.as_ref();
        pool.map_or_else(Vec::new, |borrowed| borrowed.pool.refused())
    }

    /// The last call is over.
    pub(super) fn release(&self) {
        if let Some(borrowed) = &self.pool {
            borrowed.give_back();
        }
    }

    pub(super) fn mood(&self) -> Mood {
        self.pace.mood.get()
    }

    /// Changes the mood, also of threads that idle already.
    pub(super) fn set_mood(&self, mood: Mood) {
        if mood != self.mood() {
            self.pace.mood.set(mood);
            self.team.stir();
            self.ring();
        }
    }

    /// Tells the conductor to look for work.
    pub(super) fn ring(&self) {
        self.bell.ring(1);
    }

    /// An error in a forked child, where none of the threads exists and any
    /// lock may be held for ever.
    pub(super) fn check_process(&self) -> Result<()> {
        if process::id() == self.process {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "this process is a fork() of process {}, which made the executor: threads do not \
             survive a fork, so make the executor in the process that uses it",
            self.process
        )))
    }

    /// Without threads the caller would run what is queued; here they do.
    pub(super) fn finish(_core: &Core) {}

    /// Waits until the last thread has ended. The executor is closed, its calls are over.
    pub(super) fn join(&self) {
        let mut conductor = lock(&self.conductor);
        if let Conductor::Spawned(handle) = std::mem::replace(&mut *conductor, Conductor::Joined) {
            // The conductor catches what its calls raise; should it have died all
            // the same, it has ended, which is what is asked here.
            drop(handle.join());
        }
        self.joined.store(true, Ordering::Release);
    }

    /// Whether no thread is left, without waiting for one.
    pub(super) fn is_joined(&self) -> bool {
        if self.joined.load(Ordering::Acquire) {
            return true;
        }
        let conductor = match self.conductor.try_lock() {
            Ok(conductor) => conductor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is joining.
            Err(TryLockError::WouldBlock) => return false,
        };
        match &*conductor {
            Conductor::NotYet | Conductor::Joined => true,
            Conductor::Spawned(handle) => {
                let ended = handle.is_finished();
                drop(conductor);
                if ended {
                    self.join();
                }
                ended
            }
        }
    }

    fn spawn(&self, core: &Arc<Core>, up: mpsc::Sender<io::Result<()>>) -> Result<JoinHandle<()>> {
        let core = Arc::clone(core);
        Builder::new()
            .name("uform-0".into())
            .spawn(move || {
                block_signals();
                inside(core.name(), || core.threads.conduct(&core, &up));
            })
            .map_err(|error| refused(self.team.lanes(), error))
    }

    /// The conductor's life.
    fn conduct(&self, core: &Arc<Core>, up: &mpsc::Sender<io::Result<()>>) {
        self.find_room(&core.placement);
        core.pin(0);
        let mut workers = Vec::new();
        let hired = self.hire(core, &mut workers);
        let complete = hired.is_ok();
        // Only `start` listens.
        drop(up.send(hired));
        if complete {
            self.take_calls(core);
        }
        self.team.stop();
        for worker in workers {
            drop(worker.join());
        }
        core.release();
    }

    /// Runs deferred calls until the executor is closed and its last call is over.
    fn take_calls(&self, core: &Core) {
        loop {
            let heard = self.bell.listen();
            if core.turn() {
                continue;
            }
            if core.is_over() {
                return;
            }
            self.bell.wait(heard, &self.pace);
        }
    }

    /// Spawns the workers and waits until each of them runs.
    fn hire(&self, core: &Arc<Core>, workers: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
        let (arrived, arrivals) = mpsc::channel::<()>();
        for lane in 1..self.team.lanes() {
            let (core, team) = (Arc::clone(core), Arc::clone(&self.team));
            let arrived = arrived.clone();
            let worker = Builder::new()
                .name(format!("uform-{lane}"))
                .spawn(move || {
                    core.pin(lane);
                    // A worker outlives the executor's users, and must not keep it from ending.
                    let name = core.name();
                    drop(core);
                    drop(arrived);
                    inside(name, || team.work(lane));
                })?;
            workers.push(worker);
        }
        drop(arrived);
        // Nothing is ever sent: this ends when every worker has dropped its sender.
        arrivals.into_iter().for_each(drop);
        Ok(())
    }
}

impl Core {
    /// Puts the calling thread, which is that of a lane, on its cores and its memory near them.
    fn pin(&self, lane: usize) {
        if let Some(domain) = self.placement.of_lane(lane, self.lanes) {
            let refused = pin(domain, &Here);
            let mut told = lock(&self.refused);
            for sentence in refused {
                if !told.contains(&sentence) {
                    told.push(sentence);
                }
            }
        }
    }
}

/// The system refused a thread.
fn refused(lanes: usize, error: io::Error) -> Error {
    Error::new(
        Status::OutOfMemory,
        format!(
            "the system refused a thread to an executor of {lanes} threads: ask for fewer \
             (`threads`), or raise the limit on processes or memory"
        ),
    )
    .because(error)
}

/// Leaves signals to the threads of the program, whose handlers expect to run
/// there. Workers inherit it from the conductor. Faults of a thread's own stay
/// open: they cannot be handled elsewhere, and crash reporters wait for them.
#[cfg(all(unix, not(loom)))]
pub(super) fn block_signals() {
    const OWN_FAULTS: [libc::c_int; 6] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    // SAFETY: the set is initialised by `sigfillset` before it is used, and
    // the mask changed is this thread's.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        for fault in OWN_FAULTS {
            libc::sigdelset(&mut signals, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
    }
}

#[cfg(any(not(unix), loom))]
pub(super) fn block_signals() {}
