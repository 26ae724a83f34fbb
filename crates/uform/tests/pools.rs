//! Executors on ForkUnion pools: pools made here as a stranger would, and those of `ThreadPool`.

#![cfg(all(feature = "native", target_os = "linux"))]

mod common;

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::tiny::Tiny;
use forkunion as _;
use uform::executor::{Control, Executor, Hold, Mood, ThreadPool};
use uform::kernels::ForkJoin;
use uform::model::{EncodeOptions, Model, ModelOptions, Texts, files::Memory};
use uform::placement::{MOST_THREADS, PoolOptions, RamOptions, ThreadPoolOptions};
use uform::{Result, Status};

/// Far more than anything here takes; a wait this long is a hang.
const HANG: Duration = Duration::from_secs(60);

// SAFETY: declared as in the crate's `forkunion.h`.
unsafe extern "C" {
    fn fu_topology_new() -> *mut c_void;
    fn fu_topology_delete(topology: *mut c_void);
    fn fu_pool_new(name: *const c_char, allowed: c_uint) -> *mut c_void;
    fn fu_pool_delete(pool: *mut c_void);
    fn fu_pool_spawn(topology: *mut c_void, pool: *mut c_void, threads: usize, e: c_int) -> c_int;
    fn fu_pool_spawn_on(
        topology: *mut c_void,
        pool: *mut c_void,
        domain: usize,
        threads: usize,
        e: c_int,
    ) -> c_int;
    fn fu_pool_sleep(pool: *mut c_void, micros: usize);
    fn fu_pool_terminate(pool: *mut c_void);
}

/// A pool's threads spin for as long as it lives, so tests that have one take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Exclusivity {
    Inclusive = 0,
    Exclusive = 1,
}
use Exclusivity::{Exclusive, Inclusive};

/// How a pool's threads lie on the machine.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Flat,
    Colocated,
    Distributed,
}
use Shape::{Colocated, Distributed, Flat};

/// A borrowed pool.
struct Foreign(*mut c_void);

impl Foreign {
    fn unspawned(shape: Shape) -> Foreign {
        let without_domains = !(1 << 11);
        let allowed = if matches!(shape, Flat) {
            without_domains
        } else {
            !0
        };
        // SAFETY: the name is copied.
        let pool = unsafe { fu_pool_new(c"foreign".as_ptr(), allowed) };
        assert!(!pool.is_null());
        Foreign(pool)
    }

    fn new(shape: Shape, exclusivity: Exclusivity, threads: usize) -> Foreign {
        let pool = Foreign::unspawned(shape);
        pool.spawn(shape, exclusivity, threads);
        pool
    }

    fn spawn(&self, shape: Shape, exclusivity: Exclusivity, threads: usize) {
        // SAFETY: both are live and used by this thread alone.
        unsafe {
            let topology = fu_topology_new();
            let up = match shape {
                Flat | Distributed => {
                    fu_pool_spawn(topology, self.0, threads, exclusivity as c_int)
                }
                Colocated => fu_pool_spawn_on(topology, self.0, 0, threads, exclusivity as c_int),
            };
            fu_topology_delete(topology);
            assert_ne!(up, 0);
        }
    }

    fn terminate(&self) {
        // SAFETY: no thread uses it.
        unsafe { fu_pool_terminate(self.0) };
    }

    fn address(&self) -> usize {
        self.0.expose_provenance()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: made above and deleted once.
        unsafe { fu_pool_delete(self.0) };
    }
}

fn try_on_pool(address: usize) -> Result<Executor> {
    // SAFETY: null, misaligned, or the pool (or memory) of a test that keeps it as long as needed.
    unsafe { Executor::on_pool(address, &PoolOptions::default()) }
}

fn on_pool(address: usize) -> Executor {
    try_on_pool(address).unwrap()
}

fn spawned(threads: usize) -> ThreadPool {
    ThreadPool::spawn(&ThreadPoolOptions {
        threads: Some(threads as u64),
        ..ThreadPoolOptions::default()
    })
    .unwrap()
}

/// Runs `test` on a pool of each kind, in the thread that spawned it.
fn with_pools(test: impl Fn(&Foreign, Exclusivity, usize) + Sync) {
    let _alone = alone();
    for (shape, exclusivity, threads) in [
        (Flat, Inclusive, 1),
        (Flat, Inclusive, 2),
        (Flat, Inclusive, 3),
        (Flat, Exclusive, 1),
        (Flat, Exclusive, 2),
        (Colocated, Inclusive, 2),
        (Colocated, Exclusive, 2),
        (Distributed, Inclusive, 2),
        (Distributed, Exclusive, 1),
        (Distributed, Exclusive, 2),
    ] {
        // An inclusive pool pins the thread that spawns it.
        thread::scope(|scope| {
            scope.spawn(|| {
                let pool = Foreign::new(shape, exclusivity, threads);
                test(&pool, exclusivity, threads);
            });
        });
    }
}

/// Runs jobs in an immediate call, or in a deferred one.
fn in_call(executor: &Executor, deferred: bool, jobs: impl FnOnce(&dyn ForkJoin) + Send + 'static) {
    let work = |hold: &mut Hold<'_>| {
        jobs(hold.team);
        Ok(())
    };
    match deferred {
        false => executor.immediate(&Control::new(), work).unwrap(),
        true => told(&submit(executor, work)).unwrap(),
    }
}

fn submit<R: Send + 'static>(
    executor: &Executor,
    work: impl FnOnce(&mut Hold<'_>) -> Result<R> + Send + 'static,
) -> Receiver<Result<R>> {
    let (done, outcome) = mpsc::channel();
    executor.deferred(Arc::new(Control::new()), work, move |result| {
        _ = done.send(result);
    });
    outcome
}

fn told<R>(outcome: &Receiver<Result<R>>) -> Result<R> {
    outcome.recv_timeout(HANG).expect("an outcome")
}

fn status<R>(result: Result<R>) -> Option<Status> {
    result.err().map(|error| error.status())
}

#[test]
fn vectors_are_those_of_our_own_threads_bit_for_bit() {
    let words = [
        "a red bicycle",
        "the sea is blue",
        "",
        "green tree, tree ! ?",
    ];
    let texts = || {
        let mut texts = Texts::default();
        (0..40).for_each(|index| texts.push(words[index % words.len()]));
        texts
    };
    let own = Executor::for_ram(&RamOptions {
        threads: Some(2),
        ..RamOptions::default()
    })
    .unwrap();
    let files = Memory::new(Tiny::new().files);
    let model = Model::load_from(&files, &ModelOptions::default(), &own).unwrap();
    let options = EncodeOptions::default();
    let wanted = model.encode_text(&own, &texts(), &options).unwrap().data;
    with_pools(|pool, exclusivity, threads| {
        let executor = on_pool(pool.address());
        assert_eq!(executor.threads(), threads);
        let found = model.encode_text(&executor, &texts(), &options).unwrap();
        assert_eq!(found.data, wanted, "{exclusivity:?} {threads}");
        let (done, outcome) = mpsc::channel();
        let control = Arc::new(Control::new());
        model.encode_text_deferred(&executor, texts(), options.clone(), control, move |found| {
            done.send(found).unwrap();
        });
        let found = told(&outcome).unwrap();
        assert_eq!(found.data, wanted, "{exclusivity:?} {threads}, deferred");
        executor.free();
    });
}

#[test]
fn every_task_runs_once_on_the_pools_threads() {
    with_pools(|pool, exclusivity, threads| {
        let executor = on_pool(pool.address());
        for deferred in [false, true] {
            in_call(&executor, deferred, move |team| {
                let leader = thread::current().id();
                assert_eq!(team.lanes(), threads);
                for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                    let taken: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    let busy: Vec<_> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                    team.run(tasks, &|lane, task| {
                        assert_eq!(busy[lane].fetch_add(1, Ordering::SeqCst), 0);
                        taken[task].fetch_add(1, Ordering::SeqCst);
                        let is_leader = thread::current().id() == leader;
                        assert_eq!(is_leader, exclusivity == Inclusive && lane == 0);
                        busy[lane].fetch_sub(1, Ordering::SeqCst);
                    });
                    assert!(taken.iter().all(|times| times.load(Ordering::SeqCst) == 1));
                }
                // Each task waits for all others to have begun: every lane takes one.
                let met = AtomicUsize::new(0);
                team.run(threads, &|_, _| {
                    met.fetch_add(1, Ordering::SeqCst);
                    while met.load(Ordering::SeqCst) < threads {
                        thread::yield_now();
                    }
                });
            });
        }
        executor.free();
    });
}

#[test]
fn a_panic_stays_in_rust_and_the_pool_goes_on() {
    with_pools(|pool, _, _| {
        let executor = on_pool(pool.address());
        for guilty in [0, 1, 17, 63] {
            let outcome = executor.immediate(&Control::new(), |hold| -> Result<()> {
                hold.team.run(64, &|_, task| {
                    if task == guilty {
                        panic::resume_unwind(Box::new(format!("task {task}")));
                    }
                });
                Ok(())
            });
            let error = outcome.unwrap_err();
            assert_eq!(error.status(), Status::Internal);
            assert!(
                error.message().contains(&format!("task {guilty}")),
                "{error}"
            );
        }
        in_call(&executor, true, |team| {
            let sum = AtomicUsize::new(0);
            team.run(64, &|_, task| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 2016);
        });
        executor.free();
    });
}

#[test]
fn a_job_inside_a_job_runs_whole() {
    with_pools(|pool, _, _| {
        let executor = on_pool(pool.address());
        in_call(&executor, false, |team| {
            let count = AtomicUsize::new(0);
            team.run(8, &|_, _| {
                team.run(8, &|lane, _| {
                    assert!(lane < team.lanes());
                    count.fetch_add(1, Ordering::Relaxed);
                });
            });
            assert_eq!(count.into_inner(), 64);
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                team.run(8, &|_, outer| {
                    team.run(8, &|_, inner| {
                        if (outer, inner) == (3, 5) {
                            panic::resume_unwind(Box::new("inner"));
                        }
                    });
                });
            }));
            assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "inner");
        });
        executor.free();
    });
}

#[test]
fn long_jobs_let_an_exclusive_leader_sleep() {
    let _alone = alone();
    let pool = spawned(1);
    let executor = on_pool(pool.address());
    executor
        .immediate(&Control::new(), |hold| {
            let before = cpu_time_of_this_thread();
            hold.team
                .run(1, &|_, _| thread::sleep(Duration::from_millis(100)));
            let spent = cpu_time_of_this_thread() - before;
            assert!(spent < Duration::from_millis(20), "{spent:?} of 100 ms");
            Ok(())
        })
        .unwrap();
    executor.free();
    pool.free().unwrap();
}

fn cpu_time_of_this_thread() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory that is no pool, where one could begin.
#[repr(align(128))]
struct NoPool([u8; 4096]);

#[test]
fn what_is_no_pool_is_refused() {
    let _alone = alone();
    let pool = Foreign::new(Flat, Exclusive, 1);
    let refused = |address: usize, words: &str| {
        let error = try_on_pool(address).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        for words in [words, &format!("{address:#x}"), "ThreadPool.spawn"] {
            assert!(error.message().contains(words), "{words}: {error}");
        }
    };
    refused(0, "null");
    for off in [1, 4, 8, 64] {
        refused(pool.address() + off, "misaligned");
    }
    let unspawned = Foreign::unspawned(Distributed);
    refused(unspawned.address(), "not spawned");
    pool.terminate();
    refused(pool.address(), "terminated");
    for byte in [0, 1, 2, 3, 0x40, 0x7f, 0xff] {
        let memory = Box::new(NoPool([byte; 4096]));
        refused(memory.0.as_ptr().expose_provenance(), "another version");
    }
    pool.spawn(Distributed, Exclusive, 2);
    assert_eq!(on_pool(pool.address()).threads(), 2);
}

#[test]
fn options_are_checked_as_for_ram() {
    let _alone = alone();
    let pool = spawned(1);
    let with_limit = |limit| PoolOptions {
        deferred_limit: Some(limit),
        ..PoolOptions::default()
    };
    // SAFETY: the pool is live.
    let limited = |limit| unsafe { Executor::on_pool(pool.address(), &with_limit(limit)) };
    assert_eq!(status(limited(0)), Some(Status::InvalidArgument));
    let executor = limited(1).unwrap();
    let (go, may_go) = mpsc::channel::<()>();
    let first = submit(&executor, move |_| {
        _ = may_go.recv();
        Ok(())
    });
    let second = submit(&executor, |_| Ok(()));
    assert_eq!(status(told(&second)), Some(Status::DeferredLimit));
    drop(go);
    told(&first).unwrap();
    // A refusal has borrowed nothing.
    executor.free();
    pool.free().unwrap();

    let refused = |threads, name: Option<&str>, words: &str| {
        let name = name.map(str::to_owned);
        let options = ThreadPoolOptions {
            threads,
            name,
            ..ThreadPoolOptions::default()
        };
        let error = ThreadPool::spawn(&options).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains(words), "{error}");
    };
    refused(Some(0), None, "threads is 0");
    refused(Some(MOST_THREADS as u64 + 1), None, "threads is 1025");
    for name in ["", "sixteen bytes ..", "a\0b", "ääääääää"] {
        refused(Some(1), Some(name), &format!("{name:?}"));
    }
}

#[test]
fn executors_on_one_pool_take_turns() {
    with_pools(|pool, exclusivity, threads| {
        // Where a pool's threads spin on every core, the system lets a conductor wait.
        let is_quick = exclusivity == Inclusive && threads <= 2;
        let count = if is_quick { 1000 } else { 60 };
        let executors = [on_pool(pool.address()), on_pool(pool.address())];
        let on_it = Arc::new(AtomicUsize::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let (done, ends) = mpsc::channel();
        for call in 0..count {
            let (on_it, order, done) = (Arc::clone(&on_it), Arc::clone(&order), done.clone());
            executors[call % 2].deferred(
                Arc::new(Control::new()),
                move |hold| {
                    assert_eq!(on_it.fetch_add(1, Ordering::SeqCst), 0, "two calls at once");
                    hold.team.run(4, &|_, _| {});
                    order.lock().unwrap().push(call);
                    assert_eq!(on_it.fetch_sub(1, Ordering::SeqCst), 1);
                    Ok(())
                },
                move |outcome: Result<()>| done.send(outcome).unwrap(),
            );
        }
        for _ in 0..count {
            ends.recv_timeout(HANG).expect("an outcome").unwrap();
        }
        let order = order.lock().unwrap();
        for mine in 0..2 {
            let calls: Vec<_> = order.iter().filter(|call| *call % 2 == mine).collect();
            assert_eq!(calls.len(), count / 2);
            assert!(calls.is_sorted());
        }
        // While both have calls, neither gets two turns in a row. The first's may end before the
        // second has any.
        let both = order.iter().position(|call| call % 2 == 1).unwrap();
        let last_of = |mine| order.iter().rposition(|call| call % 2 == mine).unwrap();
        let contested = &order[both..last_of(0).min(last_of(1))];
        let twice = contested.windows(2).filter(|two| two[0] % 2 == two[1] % 2);
        assert_eq!(twice.count(), 0);
        executors.iter().for_each(Executor::free);
    });
}

#[test]
fn an_immediate_call_never_waits_for_another_executors() {
    let _alone = alone();
    let pool = spawned(2);
    let [first, second, third] = [(); 3].map(|()| on_pool(pool.address()));
    let (go, may_go) = mpsc::channel::<()>();
    let (started, has_started) = mpsc::channel();
    let running = submit(&first, move |_| {
        started.send(()).unwrap();
        _ = may_go.recv();
        Ok(())
    });
    has_started.recv_timeout(HANG).unwrap();
    let immediate = |executor: &Executor| executor.immediate(&Control::new(), |_| Ok(()));
    let error = immediate(&second).unwrap_err();
    assert_eq!(error.status(), Status::Contended);
    assert!(error.message().contains("same pool"), "{error}");
    // A deferred one waits in its queue, where it can be given up, drained and freed.
    let control = Arc::new(Control::new());
    let (done, given_up) = mpsc::channel();
    second.deferred(
        Arc::clone(&control),
        |_| Ok(()),
        move |outcome: Result<()>| {
            done.send(outcome).unwrap();
        },
    );
    let waiting = submit(&second, |_| Ok(()));
    control.cancel();
    assert_eq!(status(told(&given_up)), Some(Status::Aborted));
    let abandoned = submit(&third, |_| Ok(()));
    third.abandon();
    assert_eq!(status(told(&abandoned)), Some(Status::Aborted));
    assert!(waiting.recv_timeout(Duration::from_millis(50)).is_err());
    assert_eq!(second.outstanding(), 1);
    drop(go);
    told(&running).unwrap();
    told(&waiting).unwrap();
    second.drain(Mood::Spinning).unwrap();
    immediate(&first).unwrap();
    immediate(&second).unwrap();
    assert_eq!(status(immediate(&third)), Some(Status::Freed));
    // An immediate call holds the pool as well.
    first
        .immediate(&Control::new(), |_| {
            assert_eq!(status(immediate(&second)), Some(Status::Contended));
            Ok(())
        })
        .unwrap();
    first.free();
    second.free();
    pool.free().unwrap();
}

#[test]
fn an_owner_may_put_the_pool_to_sleep_or_spawn_it_anew() {
    let _alone = alone();
    let pool = Foreign::new(Flat, Exclusive, 2);
    let executor = on_pool(pool.address());
    let count = |executor: &Executor| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        in_call(executor, true, move |team| {
            team.run(9, &|lane, _| {
                assert!(lane < 2);
                counted.fetch_add(1, Ordering::Relaxed);
            });
        });
        count.load(Ordering::Relaxed)
    };
    assert_eq!(count(&executor), 9);
    // SAFETY: no other code uses it, here and below.
    unsafe { fu_pool_sleep(pool.0, 1000) };
    assert_eq!(count(&executor), 9);
    for threads in [1, 3] {
        pool.terminate();
        assert_eq!(count(&executor), 9, "the leader alone");
        pool.spawn(Flat, Exclusive, threads);
        assert_eq!(count(&executor), 9, "{threads} threads");
    }
    executor.free();
}

/// How many threads of this process have that name.
fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn named(name: &str, threads: usize) -> ThreadPool {
    ThreadPool::spawn(&ThreadPoolOptions {
        threads: Some(threads as u64),
        name: Some(name.into()),
        ..ThreadPoolOptions::default()
    })
    .unwrap()
}

#[test]
fn a_pool_outlives_its_executors() {
    let _alone = alone();
    let pool = named("outlives", 2);
    // One leads, and one keeps the pool.
    assert_eq!((pool.threads(), threads_named("outlives")), (2, 2));
    let [first, second] = [(); 2].map(|()| on_pool(pool.address()));
    let refused = |borrowers: &str| {
        let error = pool.free().unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains(borrowers), "{error}");
    };
    refused("not freed (2)");
    first.free();
    refused("not freed (1)");
    in_call(&second, true, |team| team.run(9, &|_, _| {}));
    // Forgotten with a call in flight: it still borrows until that has ended.
    let (go, may_go) = mpsc::channel::<()>();
    let last = submit(&second, move |hold| {
        _ = may_go.recv();
        hold.team.run(9, &|_, _| {});
        Ok(())
    });
    drop(second);
    refused("not freed (1)");
    drop(go);
    told(&last).unwrap();
    until("the loan to be given back", || pool.free().is_ok());
    assert_eq!(threads_named("outlives"), 0);
    pool.free().unwrap();
    assert!(pool.is_finished());
    drop(first);
}

#[test]
fn a_forgotten_pool_ends_with_its_last_borrower() {
    let _alone = alone();
    let ended = |name: &'static str| until(name, || threads_named(name) == 0);
    drop(named("forgotten", 1));
    ended("forgotten");

    let pool = named("forgotten-lent", 2);
    let [first, second] = [(); 2].map(|()| on_pool(pool.address()));
    drop(pool);
    for executor in [&first, &second] {
        in_call(executor, true, |team| team.run(9, &|_, _| {}));
    }
    first.free();
    assert_eq!(threads_named("forgotten-lent"), 2);
    // Freeing the last one waited for the pool's threads.
    second.free();
    assert_eq!(threads_named("forgotten-lent"), 0);

    let pool = named("forgotten-idle", 1);
    let executor = on_pool(pool.address());
    drop((pool, executor));
    ended("forgotten-idle");
}

#[test]
fn a_pool_can_be_retired_and_still_waited_for() {
    let _alone = alone();
    let pool = named("retired", 2);
    pool.retire();
    pool.free().unwrap();
    assert_eq!(threads_named("retired"), 0);
    assert!(pool.is_finished());
}

/// What of the calling thread a pool might change.
fn self_portrait() -> (String, String, String) {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap();
    let status = read("status");
    let about = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        line.unwrap().to_owned() + "\n"
    };
    // Fields 18, 19, 40 and 41: priority, nice, real-time priority and policy (proc(5)).
    let stat = read("stat");
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let scheduler = [15, 16, 37, 38].map(|at| fields[at]).join(" ");
    (
        read("comm"),
        about("SigBlk") + &about("Cpus_allowed_list"),
        scheduler,
    )
}

#[test]
fn the_calling_thread_is_left_as_it_was() {
    let _alone = alone();
    let before = self_portrait();
    let pool = spawned(2);
    assert_eq!(self_portrait(), before);
    let executor = on_pool(pool.address());
    for deferred in [false, true] {
        in_call(&executor, deferred, |team| team.run(9, &|_, _| {}));
        assert_eq!(self_portrait(), before);
    }
    executor.free();
    pool.free().unwrap();
    assert_eq!(self_portrait(), before);
}

#[test]
fn a_pools_threads_take_no_signals_and_run_where_the_caller_may() {
    let _alone = alone();
    // Pinned here, the pool's threads are pinned too.
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the set is zeroed before it is used; this thread's mask alone is changed.
            unsafe {
                let mut cores: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut cores);
                libc::sched_setaffinity(0, size_of_val(&cores), &cores);
            }
            let pool = spawned(2);
            let executor = on_pool(pool.address());
            let portraits = Arc::new(Mutex::new(HashSet::new()));
            let seen = Arc::clone(&portraits);
            in_call(&executor, false, move |team| {
                let met = AtomicUsize::new(0);
                team.run(2, &|_, _| {
                    seen.lock().unwrap().insert(self_portrait());
                    met.fetch_add(1, Ordering::SeqCst);
                    while met.load(Ordering::SeqCst) < 2 {
                        thread::yield_now();
                    }
                });
            });
            // The other one is this thread's.
            portraits.lock().unwrap().remove(&self_portrait());
            for (name, status, _) in portraits.lock().unwrap().iter() {
                assert_eq!(name.trim_end(), "uform-pool");
                assert!(status.ends_with("Cpus_allowed_list:\t0\n"), "{status}");
                let blocked = status.split_whitespace().nth(1).unwrap();
                // All but a thread's own faults, and what the C library keeps open.
                assert_eq!(blocked, "fffffffe3ffbfa27");
            }
            assert_eq!(portraits.lock().unwrap().len(), 1);
            executor.free();
            pool.free().unwrap();
        });
    });
}

#[test]
fn a_borrowing_executor_has_no_thread_before_a_deferred_call() {
    let _alone = alone();
    let pool = spawned(1);
    let before = fs::read_dir("/proc/self/task").unwrap().count();
    let executor = on_pool(pool.address());
    in_call(&executor, false, |team| team.run(9, &|_, _| {}));
    executor.drain(Mood::Spinning).unwrap();
    assert_eq!(executor.mood(), Mood::Spinning);
    let after = fs::read_dir("/proc/self/task").unwrap().count();
    // Other tests' threads may end meanwhile.
    assert!(after <= before, "{after} threads, before {before}");
    executor.free();
    pool.free().unwrap();
}

#[test]
fn a_forked_child_gets_errors_and_ends() {
    let _alone = alone();
    let pool = spawned(1);
    let executor = on_pool(pool.address());
    in_call(&executor, true, |team| team.run(9, &|_, _| {}));
    // SAFETY: the child calls what this test is about, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child should it hang.
        unsafe { libc::alarm(20) };
        let unsupported = |status: Option<Status>| status == Some(Status::Unsupported);
        let immediate = executor.immediate(&Control::new(), |_| Ok(()));
        let mut fine = unsupported(status(immediate));
        fine &= unsupported(status(try_on_pool(pool.address())));
        fine &= pool.free().is_ok() && pool.is_finished();
        pool.retire();
        executor.free();
        drop((executor, pool));
        // SAFETY: leaves without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut ended = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut ended, 0) }, child);
    assert!(libc::WIFEXITED(ended), "the child hung or crashed: {ended}");
    assert_eq!(libc::WEXITSTATUS(ended), 0);
    executor.free();
    pool.free().unwrap();
}
