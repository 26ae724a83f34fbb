//! Who runs, and who is next.
//!
//! An [`Executor`] owns threads and the scratch they compute in. A *call* is
//! handed to it as a closure and gets a [`Hold`]: the team of lanes to share
//! work with, an arena a lane, and the call's [`Control`]. It is made in one of two ways:
//!
//! - [`immediate`](Executor::immediate): now, on the calling thread, with the
//!   executor's workers beside it. It never waits for another call: if one holds or
//!   is queued, it fails as [`Contended`](crate::Status::Contended).
//! - [`deferred`](Executor::deferred): queued, run by the executor's own
//!   conductor, and answered through a callback. It never blocks its caller.
//!
//! One call holds at a time, in the order they were submitted. Neighbouring deferred calls
//! of one kind may hold as one and are computed as one [run](Work).
//!
//! | file | what it knows |
//! | --- | --- |
//! | `order` | the rule: who holds, who is next, who is refused; without threads |
//! | `call` | one call: its control, its outcome, who is told |
//! | `work` | what a deferred call computes, alone or in a run with its neighbours |
//! | `steps` | work that can pause and go on, where one thread does everything |
//! | `threads` | the conductor and the workers it spawns (`turns`: where there are none) |
//! | `team`, `gate`, `bell` | how lanes share one job, and why no wake-up is lost |
//! | `borrowed`, `pools` | lanes that are a ForkUnion pool's threads, and which executor uses them next |
//! | `devices` | the GPUs that are driven, and which those are |
//! | `result_pool` | memory of results on a GPU, small buffers of which are kept |
//! | `thread_pool` | a ForkUnion pool of our own |
//! | `forkunion` | ForkUnion's C interface |
//! | `pace`, `mood`, `futex` | how a thread waits: spinning for a while, then asleep |
//! | `scratch` | a lane's memory, kept from call to call |
//! | `affinity` | how our own threads get to their cores and memory |
//! | `loading_team` | temporary threads that load a model into memory domains |
//! | `description` | what `describe()` tells |
//! | `reentrancy` | which executors a thread must not wait for, being inside them |
//!
//! A call sees its lanes through [`ForkJoin`] and the queue sees its calls through
//! one trait, so neither who the threads belong to nor what a call computes is
//! known to the other.
//!
//! # Ends
//!
//! A call ends once: with what its closure returned, with the reason it was refused,
//! as [`Aborted`](crate::Status::Aborted), or, when its closure or a task of it panics, as
//! [`Internal`](crate::Status::Internal) with the panic's text. None of these harms
//! the executor or another call. The outcome is handed over when the call no
//! longer holds, so that the callback may submit the next one.
//!
//! An executor ends by [`free`](Executor::free) (finish what was accepted, then
//! join), [`abandon`](Executor::abandon) (abort it instead) or
//! [`retire`](Executor::retire) (finish; joined later or not at all). Dropping the
//! last clone retires it.

mod call;
mod description;
mod mood;
mod order;
mod reentrancy;
mod scratch;
mod steps;
mod sync;
mod work;

#[cfg(feature = "native")]
mod affinity;
#[cfg(feature = "native")]
mod bell;
#[cfg(feature = "native")]
mod borrowed;
#[cfg(feature = "native")]
mod devices;
#[cfg(feature = "native")]
mod forkunion;
#[cfg(feature = "native")]
mod futex;
#[cfg(feature = "native")]
mod gate;
#[cfg(feature = "native")]
mod loading_team;
#[cfg(feature = "native")]
mod pace;
#[cfg(feature = "native")]
mod pools;
#[cfg(feature = "native")]
mod result_pool;
#[cfg(feature = "native")]
mod team;
#[cfg(feature = "native")]
mod thread_pool;
#[cfg(feature = "native")]
mod threads;

#[cfg(not(feature = "native"))]
#[path = "turns.rs"]
mod threads;

#[cfg(all(test, loom))]
mod under_loom;

pub use call::Control;
pub use description::{Description, ExecutorKind};
#[cfg(feature = "native")]
pub(crate) use devices::load_kernels;
#[cfg(feature = "native")]
pub use devices::{DeviceDescription, Devices, Driven, DrivenDevice, Scratch};
#[cfg(feature = "native")]
pub(crate) use loading_team::LoadingTeam;
pub use mood::Mood;
#[cfg(feature = "native")]
pub use result_pool::{ResultBuffer, ResultPool};
pub use scratch::Arena;
pub use steps::{complete, pause};
#[cfg(feature = "native")]
pub use thread_pool::ThreadPool;
#[cfg(not(feature = "native"))]
pub use threads::Turns;
pub use work::{Share, Work};

use std::fmt;
use std::iter;
use std::sync::Arc;

use call::{Admission, Call, Deferred, Queued, guarded, tell};
use order::{Order, Ticket};
use reentrancy::{inside, is_inside};
use sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock, mpsc};
use threads::Threads;
use work::Once;

use crate::hardware::CpuClass;
use crate::hardware::cores::UsableCores;
use crate::hardware::topology::Topology;
use crate::kernels::ForkJoin;
#[cfg(feature = "native")]
use crate::placement::PoolOptions;
use crate::placement::{DEFAULT_DEFERRED_LIMIT, MOST_THREADS, Placement, RamOptions};
use crate::{Error, Result, Status};

/// Threads, their scratch, and the order in which calls reach them. Clones are
/// the same executor.
#[derive(Clone)]
pub struct Executor(Arc<Handle>);

/// What a call has while it holds its executor.
pub struct Hold<'a> {
    /// The lanes to share work with. The calling thread is lane 0.
    pub team: &'a dyn ForkJoin,
    /// One arena a lane.
    pub arenas: &'a mut [Arena],
    /// The call's own control: to check whether to go on, and to report progress.
    pub control: &'a Control,
}

impl Executor {
    /// Spawns threads for models that reside in host memory, and returns when
    /// all of them run. Absent options: every memory domain; 7/8 of the cores this process
    /// may use of those near the domains, rounded down, at least one;
    /// [`DEFAULT_DEFERRED_LIMIT`]; any class.
    ///
    /// With memory domains, each thread is kept on the cores of one of them and takes its
    /// memory there while there is some; without, the system decides. What the system refuses
    /// of this, [`describe`](Self::describe) tells. The new threads inherit the affinity they are
    /// not given, and block all signals but their own faults.
    ///
    /// The calling thread's affinity, memory policy, name and signal mask are never touched.
    /// So in an [`immediate`](Self::immediate) call its lane computes wherever the caller runs, in
    /// scratch that lies where the first to use it, caller or conductor, takes memory from.
    ///
    /// Where there are no threads, more than one may be asked for and one is had.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for a memory domain that is unknown, not this
    /// process's to allocate on, or named twice;
    /// [`InvalidArgument`](Status::InvalidArgument) for a count of threads or a limit
    /// of zero, or more than [`MOST_THREADS`], and for a class this CPU cannot run; [`OutOfMemory`](Status::OutOfMemory)
    /// when the system refuses a thread. Nothing is left behind.
    pub fn for_ram(options: &RamOptions) -> Result<Executor> {
        let placement = Placement::here(&options.memory_domains)?;
        let lanes = match lanes_of(options.threads, &placement)? {
            lanes if cfg!(feature = "native") => lanes,
            _ => 1,
        };
        if let Some(class) = options.cpu_class {
            class.runs_here()?;
        }
        let limit = limit_of(options.deferred_limit)?;
        let executor = Executor::new(Parts {
            kind: ExecutorKind::Ram,
            lanes,
            placement,
            cpu_class: options.cpu_class,
            deferred_limit: limit,
            threads: Threads::new(lanes),
            #[cfg(feature = "native")]
            devices: None,
        });
        executor.core().threads.start(executor.core())?;
        Ok(executor)
    }

    /// Borrows a live ForkUnion 3 pool, a `fu_pool_t`, by its address. Its threads are the lanes; an
    /// executor of an inclusive pool leads them as thread 0, one of an exclusive pool waits. The
    /// pool must outlive the executor, and is neither terminated nor put to sleep by it; a
    /// sleeping pool is woken by a call.
    ///
    /// A pool takes one call at a time. Executors that borrow one pool, also from other threads,
    /// take turns: deferred calls wait in their executor's queue, an immediate call is
    /// [`Contended`](Status::Contended) while a call of another executor uses or waits for
    /// the pool. Other code may give the pool work only while no call is outstanding: a breach
    /// is not noticed, and ends in wrong results or a hang. Two copies of this library in one
    /// process do not know of each other either.
    ///
    /// How the pool's threads idle is their owner's to say (they spin, unless put to sleep). The
    /// [`Mood`] is that of the executor's one thread, which takes deferred calls from the
    /// queue and is spawned for the first; spinning also keeps the leader of an exclusive pool awake
    /// until the job is done.
    ///
    /// Memory domains are where that one thread runs, and where weights loaded by this executor
    /// lie; the pool's threads stay where their owner put them.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) when the address is null or misaligned, or there is no
    /// pool with threads as this version of ForkUnion lays it out (a pool carries no version, so
    /// this is told by whether its memory makes sense), and for options
    /// [`for_ram`](Self::for_ram) refuses too. For a [`ThreadPool`], [`Freed`](Status::Freed)
    /// and, in a forked child, [`Unsupported`](Status::Unsupported).
    ///
    /// # Safety
    /// What lies at the address, unless it is null or misaligned, is a `fu_pool_t` of ForkUnion,
    /// built with the same `FU_WITH_…` flags. It stays so until the executor has ended, and no other code
    /// gives it work, spawns, terminates or deletes it while a call is outstanding.
    #[cfg(feature = "native")]
    pub unsafe fn on_pool(address: usize, options: &PoolOptions) -> Result<Executor> {
        if let Some(class) = options.cpu_class {
            class.runs_here()?;
        }
        let placement = Placement::here(&options.memory_domains)?;
        let deferred_limit = limit_of(options.deferred_limit)?;
        // SAFETY: the caller vouches for the address.
        let threads = unsafe { Threads::on_pool(address, &placement)? };
        Ok(Executor::new(Parts {
            kind: ExecutorKind::Pool,
            lanes: threads.team().lanes(),
            placement,
            cpu_class: options.cpu_class,
            deferred_limit,
            threads,
            devices: None,
        }))
    }

    /// The executor of calls that name none: one lane. An immediate call computes
    /// on its caller; the one thread for deferred calls is spawned by the first of them.
    pub fn inline() -> Executor {
        Executor::new(Parts {
            kind: ExecutorKind::Inline,
            lanes: 1,
            placement: Placement::anywhere(UsableCores::of_this_process()),
            cpu_class: None,
            deferred_limit: DEFAULT_DEFERRED_LIMIT,
            threads: Threads::new(1),
            #[cfg(feature = "native")]
            devices: None,
        })
    }

    /// Runs `work` while the caller waits, with the caller as lane 0.
    ///
    /// # Errors
    /// Those of `work`; [`Contended`](Status::Contended) at once when another call holds
    /// or is queued; [`Freed`](Status::Freed); [`Aborted`](Status::Aborted) when `control`
    /// was cancelled before; [`Unsupported`](Status::Unsupported) in a forked child;
    /// [`Internal`](Status::Internal) when `work` panics.
    pub fn immediate<R>(
        &self,
        control: &Control,
        work: impl FnOnce(&mut Hold<'_>) -> Result<R>,
    ) -> Result<R> {
        self.core().immediate(control, work)
    }

    /// Queues `work` for the executor's own thread and returns. `done` is called
    /// exactly once, with what came of it: on that thread after the call, on the
    /// cancelling thread when it was cancelled in the queue, or on the calling
    /// thread, before this returns, when it was not accepted. It may submit further
    /// calls and free the executor, and must not wait for it; a panic in it is dropped.
    ///
    /// The errors that reach `done` are those of [`immediate`](Self::immediate), save that
    /// [`Contended`](Status::Contended) means that an immediate call holds, and
    /// [`DeferredLimit`](Status::DeferredLimit) when too many calls are outstanding.
    pub fn deferred<R: Send + 'static>(
        &self,
        control: Arc<Control>,
        work: impl FnOnce(&mut Hold<'_>) -> Result<R> + Send + 'static,
        done: impl FnOnce(Result<R>) + Send + 'static,
    ) {
        self.deferred_work(control, Once::new(work), done);
    }

    /// As [`deferred`](Self::deferred), for work that may be computed in one run with that of
    /// its neighbours in the queue. Each call is answered, cancelled and failed on its own,
    /// in the order of submission.
    pub fn deferred_work<W: Work>(
        &self,
        control: Arc<Control>,
        work: W,
        done: impl FnOnce(Result<W::Output>) + Send + 'static,
    ) {
        let call = Call::new(Arc::clone(&control), work, done);
        self.core().submit(&control, Box::new(call));
    }

    /// Waits until every call submitted so far is over, then lets the threads idle in `mood`.
    ///
    /// # Errors
    /// [`Freed`](Status::Freed); [`Unsupported`](Status::Unsupported) in a forked child;
    /// [`InvalidArgument`](Status::InvalidArgument) from inside a call or callback of
    /// this executor, which would wait for itself; [`DeviceFault`](Status::DeviceFault) when a device of it
    /// faulted. Never an error of a drained call.
    pub fn drain(&self, mood: Mood) -> Result<()> {
        let core = self.core();
        core.threads.check_process()?;
        if is_inside(core.name()) {
            return Err(Error::invalid(
                "drain() was called from inside a call or callback of the same executor and would \
                 wait for itself: use the form that does not block",
            ));
        }
        let (over, is_over) = mpsc::channel();
        core.drain(mood, Box::new(move |outcome| drop(over.send(outcome))));
        Threads::finish(core);
        is_over.recv().unwrap_or_else(|mpsc::RecvError| {
            Err(Error::new(Status::Internal, "a drain was forgotten"))
        })
    }

    /// The same without blocking: `done` is called once, by the thread that ends
    /// the last call waited for, or before this returns when there is none.
    pub fn drain_deferred(&self, mood: Mood, done: impl FnOnce(Result<()>) + Send + 'static) {
        let core = self.core();
        match core.threads.check_process() {
            Ok(()) => core.drain(mood, Box::new(done)),
            Err(error) => tell(|| done(Err(error))),
        }
    }

    /// Refuses new calls, runs every deferred call that was accepted, joins all threads and
    /// releases the scratch. Again, or in a forked child, it does nothing; from inside
    /// a call or callback of this executor it is [`retire`](Self::retire).
    pub fn free(&self) {
        self.core().free();
    }

    /// As [`free`](Self::free), for an environment that is going: queued calls end
    /// [`Aborted`](Status::Aborted) and the running one is cancelled.
    pub fn abandon(&self) {
        self.core().abandon();
        self.core().free();
    }

    /// Refuses new calls and lets the executor's own threads finish what was
    /// accepted, without waiting for them. A later `free` or `abandon` still joins.
    pub fn retire(&self) {
        self.core().close();
    }

    /// Whether the executor was closed and no thread of it is left to join.
    pub fn is_finished(&self) -> bool {
        let core = self.core();
        core.threads.check_process().is_err() || (core.is_over() && core.threads.is_joined())
    }

    /// How many threads compute a call, at least one.
    pub fn threads(&self) -> usize {
        self.core().lanes
    }

    /// How many threads a call may have of its own when it fills memory to be kept, since the
    /// executor's are not enough: two without an executor of the caller's, where two can run.
    #[cfg(feature = "native")]
    pub(crate) fn loading_threads(&self) -> usize {
        let core = self.core();
        match core.kind {
            ExecutorKind::Inline => core.placement.parallelism().min(2),
            ExecutorKind::Ram | ExecutorKind::Vram | ExecutorKind::Pool => core.lanes,
        }
    }

    /// Which kind of executor it is.
    pub fn kind(&self) -> ExecutorKind {
        self.core().kind
    }

    /// The class the executor is pinned to, if it is.
    pub fn cpu_class(&self) -> Option<CpuClass> {
        self.core().cpu_class
    }

    /// How many deferred calls are queued or running; zero in a forked child.
    pub fn outstanding(&self) -> usize {
        let core = self.core();
        match core.threads.check_process() {
            Ok(()) => lock(&core.state).order.outstanding(),
            Err(_) => 0,
        }
    }

    /// How the threads idle.
    pub fn mood(&self) -> Mood {
        self.core().threads.mood()
    }

    /// Bytes of scratch all lanes hold together, as of the end of the last call: `docs/memory.md` has
    /// a formula for the most.
    pub fn scratch_bytes(&self) -> usize {
        self.core().scratch_bytes.load(Ordering::Relaxed)
    }

    /// The memory domains it was placed in; none: it was not.
    pub fn memory_domains(&self) -> &[u32] {
        &self.core().placement.memory_domains
    }

    /// What it is and does just now: where its threads run, what limited them, and what the
    /// system refused.
    pub fn describe(&self) -> Description {
        let core = self.core();
        let memory_domains = match self.memory_domains() {
            [] => Topology::here().allowed_domains().collect(),
            asked => asked.to_vec(),
        };
        let class = core.cpu_class.unwrap_or_else(CpuClass::native);
        let mut refused = core.threads.refused();
        for sentence in lock(&core.refused).iter() {
            if !refused.contains(sentence) {
                refused.push(sentence.clone());
            }
        }
        Description {
            kind: core.kind,
            threads: core.lanes,
            memory_domains,
            cores: core.placement.cores(),
            counted: core.placement.usable.counted(),
            cpu_class: class.word(),
            mood: self.mood(),
            outstanding: self.outstanding(),
            deferred_limit: core.deferred_limit,
            scratch_bytes: self.scratch_bytes(),
            #[cfg(feature = "native")]
            devices: core
                .devices
                .as_ref()
                .map_or_else(Vec::new, |devices| devices.describe()),
            remarks: description::remarks(core.kind, core.threads.busy(), &core.placement),
            refused,
        }
    }

    /// For an event loop to call: a step of the deferred call whose turn it is, and of the
    /// neighbours that are computed with it; whether there was one.
    #[cfg(not(feature = "native"))]
    pub fn turn(&self) -> bool {
        self.core().turn()
    }

    fn new(parts: Parts) -> Executor {
        let Parts {
            kind,
            lanes,
            placement,
            cpu_class,
            deferred_limit,
            threads,
            #[cfg(feature = "native")]
            devices,
        } = parts;
        let core = Arc::new(Core {
            kind,
            lanes,
            placement,
            cpu_class,
            deferred_limit,
            refused: Mutex::new(Vec::new()),
            state: Mutex::new(State {
                order: Order::new(deferred_limit),
                running: Vec::new(),
            }),
            arenas: Mutex::new((0..lanes).map(|_| Arena::new()).collect()),
            scratch_bytes: AtomicUsize::new(0),
            threads,
            #[cfg(feature = "native")]
            devices,
        });
        Executor(Arc::new(Handle { core }))
    }

    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("threads", &self.threads())
            .field("cpu_class", &self.cpu_class())
            .field("mood", &self.mood())
            .finish_non_exhaustive()
    }
}

/// What executors of different kinds differ in.
struct Parts {
    kind: ExecutorKind,
    lanes: usize,
    placement: Placement,
    cpu_class: Option<CpuClass>,
    deferred_limit: u64,
    threads: Threads,
    #[cfg(feature = "native")]
    devices: Option<Arc<Devices>>,
}

/// What callers share. The conductor keeps the core alone, and so ends with the last of them.
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // On the web no thread can run what is still queued once the last handle is gone: it is aborted.
        if cfg!(feature = "native") {
            self.core.close();
        } else {
            self.core.abandon();
            Threads::finish(&self.core);
        }
    }
}

/// Who waits for a drain.
type Waiter = Box<dyn FnOnce(Result<()>) + Send>;

/// An executor, as its threads and its queued calls know it.
struct Core {
    kind: ExecutorKind,
    lanes: usize,
    placement: Placement,
    cpu_class: Option<CpuClass>,
    deferred_limit: u64,
    /// What the system refused, a sentence each.
    refused: Mutex<Vec<String>>,
    state: Mutex<State>,
    /// Locked by the call that holds, so never waited for.
    arenas: Mutex<Vec<Arena>>,
    scratch_bytes: AtomicUsize,
    threads: Threads,
    #[cfg(feature = "native")]
    devices: Option<Arc<Devices>>,
}

/// What changes when a call is submitted, starts or ends.
struct State {
    order: Order<Box<dyn Deferred>, Waiter>,
    /// The flags that ask the calls that hold to stop.
    running: Vec<Arc<AtomicBool>>,
}

impl Core {
    /// The executor's name among those a thread may be inside of.
    fn name(&self) -> usize {
        (&raw const *self).addr()
    }

    fn immediate<R>(
        &self,
        control: &Control,
        work: impl FnOnce(&mut Hold<'_>) -> Result<R>,
    ) -> Result<R> {
        self.threads.check_process()?;
        self.check_devices()?;
        control.check()?;
        let ticket = {
            let mut state = lock(&self.state);
            let ticket = state.order.immediate()?;
            state.running.push(control.flag());
            ticket
        };
        let outcome = {
            let _turn = self.threads.turn_now().inspect_err(|_| {
                self.no_longer_holds();
                self.over(ticket);
            })?;
            self.hold(|team, arenas| {
                guarded(|| {
                    work(&mut Hold {
                        team,
                        arenas,
                        control,
                    })
                })
            })
        };
        self.over(ticket);
        outcome
    }

    /// Queues a deferred call, or tells it why not.
    fn submit(self: &Arc<Self>, control: &Control, call: Box<dyn Deferred>) {
        let sound = self.threads.check_process();
        let refused = match sound.and_then(|()| self.check_devices()) {
            Ok(()) => control.enqueue(self, call, |call| self.admit(call)),
            Err(error) => Some((error, call)),
        };
        match refused {
            None => {
                self.threads.line_up(self.name(), self.has_next());
                self.threads.ring();
            }
            Some((error, call)) => end_with(call, error),
        }
    }

    fn admit(self: &Arc<Self>, call: Box<dyn Deferred>) -> Admission {
        let mut state = lock(&self.state);
        let ticket = match state.order.deferred(call) {
            Ok(ticket) => ticket,
            Err((refusal, call)) => return Err((refusal.into(), call)),
        };
        // Still under the lock, which keeps the conductor, and a thread that frees, from the ticket.
        if let Err(error) = self.threads.ready(self)
            && let Some(call) = state.order.withdraw(ticket)
        {
            state.order.settled(ticket);
            return Err((error, call));
        }
        Ok(ticket)
    }

    /// Runs the deferred call whose turn it is, and the neighbours it admits;
    /// whether there was one.
    #[cfg(feature = "native")]
    fn turn(&self) -> bool {
        let Some(turn) = self.threads.turn(self.name(), self.has_next()) else {
            return false;
        };
        let Some(((ticket, mut first), mut admitted)) = self.next_run() else {
            return false;
        };
        let calls = iter::once(&mut first).chain(admitted.iter_mut().map(|(_, call)| call));
        if self.fail_for_devices(calls) {
            self.no_longer_holds();
        } else {
            self.hold(|team, arenas| complete(first.run(&mut admitted, team, arenas)));
        }
        self.threads.line_up(self.name(), self.has_next());
        drop(turn);
        self.settle((ticket, first), admitted);
        true
    }

    /// Gives calls a device's fault as their outcome, where there is one; whether there is.
    #[cfg(feature = "native")]
    fn fail_for_devices<'a>(&self, calls: impl Iterator<Item = &'a mut Box<dyn Deferred>>) -> bool {
        let is_faulted = self.check_devices().is_err();
        if is_faulted {
            for call in calls {
                call.fail(self.check_devices().err().unwrap_or_else(Error::aborted));
            }
        }
        is_faulted
    }

    /// A device that faulted is the outcome of everything.
    fn check_devices(&self) -> Result<()> {
        #[cfg(feature = "native")]
        if let Some(devices) = &self.devices {
            return devices.check();
        }
        Ok(())
    }

    /// Hands the outcomes of a run over, in the order its calls were submitted.
    fn settle(&self, first: Queued, admitted: Vec<Queued>) {
        for (ticket, call) in iter::once(first).chain(admitted) {
            inside(self.name(), || tell(|| call.settle()));
            self.over(ticket);
        }
    }

    fn has_next(&self) -> bool {
        lock(&self.state).order.has_next()
    }

    /// Lets the next call hold, and with it those it admits of what is queued right behind it.
    fn next_run(&self) -> Option<(Queued, Vec<Queued>)> {
        let mut state = lock(&self.state);
        let State { order, running } = &mut *state;
        let mut first = order.next()?;
        running.push(first.1.flag());
        let mut admitted = Vec::new();
        while let Some(call) = order.join(|next| first.1.admits(&**next)) {
            running.push(call.1.flag());
            admitted.push(call);
        }
        Some((first, admitted))
    }

    /// Lends what a call computes with, and takes the hold back.
    fn hold<R>(&self, work: impl FnOnce(&dyn ForkJoin, &mut [Arena]) -> R) -> R {
        let outcome = {
            let mut arenas = lock(&self.arenas);
            let outcome = inside(self.name(), || work(self.threads.team(), &mut arenas));
            self.computed(&mut arenas);
            outcome
        };
        self.no_longer_holds();
        outcome
    }

    /// The hold's end for what it computed in.
    fn computed(&self, arenas: &mut [Arena]) {
        arenas.iter_mut().for_each(Arena::end_call);
        let bytes = arenas.iter().map(Arena::bytes).sum();
        self.scratch_bytes.store(bytes, Ordering::Relaxed);
    }

    fn no_longer_holds(&self) {
        let mut state = lock(&self.state);
        state.running.clear();
        state.order.release();
    }

    /// Takes a cancelled call out of the queue, if it is still there, and ends it.
    fn withdraw(&self, ticket: Ticket) {
        if self.threads.check_process().is_err() {
            return;
        }
        let call = lock(&self.state).order.withdraw(ticket);
        if !self.has_next() {
            self.threads.step_out(self.name());
        }
        if let Some(call) = call {
            self.abort(ticket, call);
        }
    }

    /// Ends a call that was taken out of the queue.
    fn abort(&self, ticket: Ticket, call: Box<dyn Deferred>) {
        inside(self.name(), || end_with(call, Error::aborted()));
        self.over(ticket);
    }

    /// A call's outcome was handed over: serves those who waited for it.
    fn over(&self, ticket: Ticket) {
        let closed = {
            let mut state = lock(&self.state);
            state.order.settled(ticket);
            state.order.is_closed()
        };
        self.serve_drains();
        if closed {
            self.threads.ring();
        }
    }

    fn drain(&self, mood: Mood, waiter: Waiter) {
        let refused = lock(&self.state).order.drain(mood, waiter);
        match refused {
            Ok(()) => self.serve_drains(),
            Err((refusal, waiter)) => tell(|| waiter(Err(refusal.into()))),
        }
    }

    /// Sets the mood and calls the waiter of every drain whose calls are over.
    fn serve_drains(&self) {
        while let Some(waiter) = self.drained() {
            let outcome = self.check_devices();
            inside(self.name(), || tell(|| waiter(outcome)));
        }
    }

    fn drained(&self) -> Option<Waiter> {
        let mut state = lock(&self.state);
        let (mood, waiter) = state.order.drained()?;
        if let Some(mood) = mood {
            self.threads.set_mood(mood);
        }
        Some(waiter)
    }

    /// Refuses new calls, and lets the conductor go when the last is over.
    fn close(&self) {
        if self.threads.check_process().is_ok() {
            lock(&self.state).order.close();
            self.threads.ring();
        }
    }

    /// Refuses new calls, ends the queued ones and asks the running one to stop.
    fn abandon(&self) {
        if self.threads.check_process().is_err() {
            return;
        }
        let mut queued = Vec::new();
        {
            let mut state = lock(&self.state);
            state.order.close();
            for running in &state.running {
                running.store(true, Ordering::Release);
            }
            while let Some(call) = state.order.withdraw_first() {
                queued.push(call);
            }
        }
        for (ticket, call) in queued {
            self.abort(ticket, call);
        }
    }

    fn free(&self) {
        self.close();
        if self.threads.check_process().is_err() || is_inside(self.name()) {
            return;
        }
        Threads::finish(self);
        let (over, is_over) = mpsc::channel();
        let waiter = Box::new(move |outcome| drop(over.send(outcome)));
        lock(&self.state).order.watch(waiter);
        self.serve_drains();
        // Either the waiter was called, or it was dropped with an executor that is no more.
        drop(is_over.recv());
        self.threads.join();
        self.release();
    }

    /// Whether it is closed and its last call is over.
    fn is_over(&self) -> bool {
        lock(&self.state).order.is_finished()
    }

    /// Gives back what calls computed with; there will be none.
    fn release(&self) {
        self.threads.release();
        #[cfg(feature = "native")]
        if let Some(devices) = &self.devices {
            devices.release();
        }
        lock(&self.arenas).fill_with(Arena::new);
        self.scratch_bytes.store(0, Ordering::Relaxed);
    }
}

/// Ends a call that did not run.
fn end_with(mut call: Box<dyn Deferred>, error: Error) {
    tell(|| {
        call.fail(error);
        call.settle();
    });
}

/// How many threads these `threads` mean for a placement, of an executor or a pool.
fn lanes_of(threads: Option<u64>, placement: &Placement) -> Result<usize> {
    let Some(threads) = threads else {
        return Ok(default_lanes(placement.parallelism()));
    };
    match usize::try_from(threads) {
        Ok(lanes @ 1..=MOST_THREADS) => Ok(lanes),
        _ => Err(Error::invalid(format!(
            "threads is {threads}: expected 1 to {MOST_THREADS}, or leave it out for 7/8 of the \
             cores this process may use"
        ))),
    }
}

/// 7/8 of the cores, to the nearest whole number: from seven cores on, the program's own threads
/// keep one. On fewer that one would cost more than it gives.
fn default_lanes(cores: usize) -> usize {
    ((cores * 7 + 4) / 8).clamp(1, MOST_THREADS)
}

/// How many deferred calls this `deferred_limit` means.
fn limit_of(deferred_limit: Option<u64>) -> Result<u64> {
    match deferred_limit {
        None => Ok(DEFAULT_DEFERRED_LIMIT),
        Some(0) => Err(Error::invalid(format!(
            "deferredLimit is 0: an executor takes at least 1, or leave it out for \
             {DEFAULT_DEFERRED_LIMIT}"
        ))),
        Some(limit) => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::default_lanes;

    #[test]
    fn seven_eighths_of_the_cores_to_the_nearest_whole_number() {
        let table = [
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 4),
            (6, 5),
            (7, 6),
            (8, 7),
            (12, 11),
            (15, 13),
            (16, 14),
            (9999, 1024),
        ];
        for (cores, lanes) in table {
            assert_eq!(default_lanes(cores), lanes, "{cores} cores");
        }
    }
}
