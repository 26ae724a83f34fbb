//! The executor as the engine's verbs and the bindings use it.

#![cfg(feature = "native")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::panic;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use uform::executor::{Control, Executor, Hold, Mood};
use uform::placement::{MOST_THREADS, RamOptions};
use uform::{Error, Result, Status};

/// Far more than anything here takes; a wait this long is a hang.
const HANG: Duration = Duration::from_secs(30);

fn with_threads(threads: usize) -> Executor {
    Executor::for_ram(&RamOptions {
        threads: Some(threads as u64),
        ..RamOptions::default()
    })
    .unwrap()
}

fn with_limit(deferred_limit: u64) -> Executor {
    Executor::for_ram(&RamOptions {
        threads: Some(2),
        deferred_limit: Some(deferred_limit),
        ..RamOptions::default()
    })
    .unwrap()
}

/// Submits a deferred call, and gives what its outcome will come through.
fn submit<R: Send + 'static>(
    executor: &Executor,
    control: &Arc<Control>,
    work: impl FnOnce(&mut Hold<'_>) -> Result<R> + Send + 'static,
) -> Receiver<Result<R>> {
    let (done, outcome) = mpsc::channel();
    executor.deferred(Arc::clone(control), work, move |result| {
        done.send(result).unwrap();
    });
    outcome
}

fn control() -> Arc<Control> {
    Arc::new(Control::new())
}

/// What came of a call, which must be told exactly once.
fn told<R>(outcome: &Receiver<Result<R>>) -> Result<R> {
    let result = outcome.recv_timeout(HANG).expect("an outcome");
    let again = outcome.recv_timeout(HANG);
    assert!(again.is_err(), "an outcome was told twice");
    result
}

fn status<R>(result: Result<R>) -> Option<Status> {
    result.err().map(|error| error.status())
}

/// A call that holds the executor until it is let go.
struct Blocker {
    go: Sender<()>,
    outcome: Receiver<Result<()>>,
}

impl Blocker {
    fn new(executor: &Executor) -> Blocker {
        let (go, may_go) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let outcome = submit(executor, &control(), move |_| {
            started.send(()).unwrap();
            _ = may_go.recv();
            Ok(())
        });
        has_started.recv_timeout(HANG).expect("the call to start");
        Blocker { go, outcome }
    }

    fn let_go(self) {
        self.go.send(()).unwrap();
        told(&self.outcome).unwrap();
    }
}

/// Runs the test called `name` in a process of its own, for what counts a whole process.
fn alone(name: &str, body: impl FnOnce()) {
    const MARK: &str = "UFORM_TEST_ALONE";
    if env::var_os(MARK).is_some() {
        return body();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn calls_share_their_work_among_all_lanes() {
    for threads in 1..=8 {
        for executor in [with_threads(threads), Executor::inline()] {
            let lanes = executor.threads();
            let sum = move |hold: &mut Hold<'_>| {
                assert_eq!(hold.team.lanes(), lanes);
                assert_eq!(hold.arenas.len(), lanes);
                let sum = AtomicUsize::new(0);
                hold.team.run(1000, &|lane, task| {
                    assert!(lane < lanes);
                    sum.fetch_add(task, Ordering::Relaxed);
                });
                Ok(sum.into_inner())
            };
            assert_eq!(executor.immediate(&Control::new(), sum).unwrap(), 499_500);
            assert_eq!(told(&submit(&executor, &control(), sum)).unwrap(), 499_500);
            executor.free();
        }
    }
}

#[test]
fn options_out_of_range_are_named() {
    let bad = [
        (Some(0), None, "threads is 0"),
        (Some(MOST_THREADS as u64 + 1), None, "threads is 1025"),
        // Where addresses have 32 bits, it is still named as it was given.
        (Some(1 << 32), None, "threads is 4294967296"),
        (Some(1), Some(0), "deferredLimit is 0"),
    ];
    for (threads, deferred_limit, named) in bad {
        let error = Executor::for_ram(&RamOptions {
            threads,
            deferred_limit,
            ..RamOptions::default()
        })
        .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains(named), "{error}");
    }
    let executor = Executor::for_ram(&RamOptions::default()).unwrap();
    let cores = thread::available_parallelism().unwrap().get();
    assert_eq!(executor.threads(), ((cores * 7 + 4) / 8).max(1));
}

#[test]
fn deferred_calls_run_one_at_a_time_in_the_order_submitted() {
    for executor in [with_threads(3), Executor::inline()] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let busy = Arc::new(AtomicBool::new(false));
        let outcomes: Vec<_> = (0..200)
            .map(|number| {
                let (order, busy) = (Arc::clone(&order), Arc::clone(&busy));
                submit(&executor, &control(), move |_| {
                    assert!(!busy.swap(true, Ordering::SeqCst));
                    order.lock().unwrap().push(number);
                    busy.store(false, Ordering::SeqCst);
                    Ok(number)
                })
            })
            .collect();
        for (number, outcome) in outcomes.iter().enumerate() {
            assert_eq!(told(outcome).unwrap(), number);
        }
        assert!(order.lock().unwrap().iter().copied().eq(0..200));
        assert_eq!(executor.outstanding(), 0);
    }
}

#[test]
fn an_immediate_call_never_waits_for_a_deferred_one() {
    let executor = with_threads(2);
    let blocker = Blocker::new(&executor);
    let refused = executor.immediate(&Control::new(), |_| Ok(()));
    assert_eq!(status(refused), Some(Status::Contended));
    let queued = submit(&executor, &control(), |_| Ok(()));
    blocker.let_go();
    told(&queued).unwrap();
    executor.immediate(&Control::new(), |_| Ok(())).unwrap();
}

#[test]
fn a_call_during_an_immediate_one_is_contended() {
    let executor = with_threads(2);
    let outcome = executor
        .immediate(&Control::new(), |_| {
            let within = executor.immediate(&Control::new(), |_| Ok(()));
            assert_eq!(status(within), Some(Status::Contended));
            let beside = thread::scope(|scope| {
                scope
                    .spawn(|| executor.immediate(&Control::new(), |_| Ok(())))
                    .join()
                    .unwrap()
            });
            assert_eq!(status(beside), Some(Status::Contended));
            Ok(submit(&executor, &control(), |_| Ok(())))
        })
        .unwrap();
    assert_eq!(status(told(&outcome)), Some(Status::Contended));
    told(&submit(&executor, &control(), |_| Ok(()))).unwrap();
}

#[test]
fn the_limit_refuses_one_more_and_loses_nothing() {
    let executor = with_limit(3);
    let blocker = Blocker::new(&executor);
    let accepted = [(), ()].map(|()| submit(&executor, &control(), |_| Ok(())));
    assert_eq!(executor.outstanding(), 3);
    let refused = submit(&executor, &control(), |_| Ok(()));
    let error = told(&refused).unwrap_err();
    assert_eq!(error.status(), Status::DeferredLimit);
    assert!(error.message().contains('3'), "{error}");
    blocker.let_go();
    for outcome in &accepted {
        told(outcome).unwrap();
    }
}

#[test]
fn who_is_told_may_submit_the_next_call() {
    let executor = with_limit(1);
    let (done, outcome) = mpsc::channel();
    let again = executor.clone();
    executor.deferred(
        control(),
        |_| Ok(()),
        move |first: Result<()>| {
            first.unwrap();
            again.immediate(&Control::new(), |_| Ok(())).unwrap();
            again.deferred(
                control(),
                |_| Ok(7),
                move |second| done.send(second).unwrap(),
            );
        },
    );
    assert_eq!(told(&outcome).unwrap(), 7);
}

#[test]
fn a_queued_call_is_cancelled_at_once_and_a_running_one_between_layers() {
    let executor = with_threads(2);
    let blocker = Blocker::new(&executor);
    let before = submit(&executor, &control(), |_| Ok(1));
    let cancelled = control();
    let outcome = submit(&executor, &cancelled, |_| -> Result<()> {
        unreachable!("a cancelled call ran")
    });
    let after = submit(&executor, &control(), |_| Ok(2));
    cancelled.cancel();
    assert_eq!(status(outcome.try_recv().unwrap()), Some(Status::Aborted));
    blocker.let_go();
    assert_eq!((told(&before).unwrap(), told(&after).unwrap()), (1, 2));

    let running = control();
    let (started, has_started) = mpsc::channel();
    let outcome = submit(&executor, &running, move |hold| -> Result<()> {
        started.send(()).unwrap();
        loop {
            hold.control.check()?;
            thread::yield_now();
        }
    });
    has_started.recv_timeout(HANG).unwrap();
    running.cancel();
    assert_eq!(status(told(&outcome)), Some(Status::Aborted));
    running.cancel();

    let outcome = submit(&executor, &running, |_| Ok(()));
    assert_eq!(status(told(&outcome)), Some(Status::Aborted));
    assert_eq!(
        status(executor.immediate(&running, |_| Ok(()))),
        Some(Status::Aborted)
    );
}

#[test]
fn failures_and_panics_end_their_own_call_alone() {
    let executor = with_threads(3);
    let failed = submit(&executor, &control(), |_| -> Result<()> {
        Err(Error::corrupt("no weights"))
    });
    let thrown = submit(&executor, &control(), |_| -> Result<()> {
        panic::resume_unwind(Box::new("thrown by a call"))
    });
    let thrown_by_task = submit(&executor, &control(), |hold| {
        hold.team.run(100, &|_, task| {
            if task == 57 {
                panic::resume_unwind(Box::new(format!("thrown by task {task}")));
            }
        });
        Ok(())
    });
    let fine = submit(&executor, &control(), |_| Ok(5));
    assert_eq!(status(told(&failed)), Some(Status::CorruptModel));
    for (outcome, text) in [
        (thrown, "thrown by a call"),
        (thrown_by_task, "thrown by task 57"),
    ] {
        let error = told(&outcome).unwrap_err();
        assert_eq!(error.status(), Status::Internal);
        assert!(error.message().contains(text), "{error}");
    }
    assert_eq!(told(&fine).unwrap(), 5);
    let thrown = executor.immediate(&Control::new(), |_| -> Result<()> {
        panic::resume_unwind(Box::new(1))
    });
    assert_eq!(status(thrown), Some(Status::Internal));
    executor.deferred(
        control(),
        |_| Ok(()),
        |_: Result<()>| panic::resume_unwind(Box::new("thrown by who is told")),
    );
    told(&submit(&executor, &control(), |_| Ok(()))).unwrap();
}

#[test]
fn drain_waits_for_the_calls_so_far_and_sets_the_mood() {
    let executor = with_threads(2);
    assert_eq!(executor.mood(), Mood::Parked);
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let ended = Arc::clone(&ended);
        executor.deferred(
            control(),
            |_| Ok(()),
            move |_: Result<()>| {
                ended.fetch_add(1, Ordering::SeqCst);
            },
        );
    }
    executor.drain(Mood::Spinning).unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 50);
    assert_eq!(executor.mood(), Mood::Spinning);
    told(&submit(&executor, &control(), |_| Ok(()))).unwrap();

    let blocker = Blocker::new(&executor);
    let (done, drained) = mpsc::channel();
    executor.drain_deferred(Mood::Parked, move |outcome| done.send(outcome).unwrap());
    let later = submit(&executor, &control(), |_| Ok(()));
    assert!(drained.try_recv().is_err());
    assert_eq!(executor.mood(), Mood::Spinning);
    blocker.let_go();
    told(&drained).unwrap();
    told(&later).unwrap();
    assert_eq!(executor.mood(), Mood::Parked);
}

#[test]
fn waiting_for_an_executor_from_inside_it_is_refused() {
    let executor = with_threads(2);
    for inside_deferred in [false, true] {
        let same = executor.clone();
        let drain = move |_: &mut Hold<'_>| Ok(status(same.drain(Mood::Parked)));
        let found = match inside_deferred {
            true => told(&submit(&executor, &control(), drain)),
            false => executor.immediate(&Control::new(), drain),
        };
        assert_eq!(found.unwrap(), Some(Status::InvalidArgument));
    }
    let (done, outcome) = mpsc::channel();
    let same = executor.clone();
    executor.deferred(
        control(),
        |_| Ok(()),
        move |_: Result<()>| {
            done.send(status(same.drain(Mood::Parked))).unwrap();
        },
    );
    let found = outcome.recv_timeout(HANG).unwrap();
    assert_eq!(found, Some(Status::InvalidArgument));
}

#[test]
fn free_runs_what_was_accepted_and_refuses_the_rest() {
    for executor in [with_threads(2), Executor::inline()] {
        let blocker = Blocker::new(&executor);
        let accepted: Vec<_> = (0..20)
            .map(|number| submit(&executor, &control(), move |_| Ok(number)))
            .collect();
        thread::scope(|scope| {
            let freeing: Vec<_> = (0..3).map(|_| scope.spawn(|| executor.free())).collect();
            blocker.let_go();
            for thread in freeing {
                thread.join().unwrap();
            }
        });
        for (number, outcome) in accepted.iter().enumerate() {
            assert_eq!(told(outcome).unwrap(), number);
        }
        executor.free();
        assert!(executor.is_finished());
        assert_eq!(executor.scratch_bytes(), 0);
        let (done, drained) = mpsc::channel();
        executor.drain_deferred(Mood::Parked, move |outcome| done.send(outcome).unwrap());
        for refused in [
            told(&submit(&executor, &control(), |_| Ok(()))),
            executor.immediate(&Control::new(), |_| Ok(())),
            executor.drain(Mood::Parked),
            told(&drained),
        ] {
            assert_eq!(status(refused), Some(Status::Freed));
        }
    }
}

#[test]
fn free_waits_for_an_immediate_call() {
    for executor in [with_threads(2), Executor::inline()] {
        let ended = AtomicBool::new(false);
        let (started, has_started) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                executor.immediate(&Control::new(), |_| {
                    started.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    ended.store(true, Ordering::SeqCst);
                    Ok(())
                })
            });
            has_started.recv_timeout(HANG).unwrap();
            executor.free();
            assert!(ended.load(Ordering::SeqCst));
        });
    }
}

#[test]
fn an_executor_freed_by_several_was_not_finished_while_another_looked() {
    for make in [Executor::inline, || with_threads(1)] {
        for _ in 0..300 {
            let executor = make();
            let together = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        together.wait();
                        executor.free();
                        assert!(executor.is_finished());
                    });
                }
            });
        }
    }
}

#[test]
fn freeing_from_inside_does_not_wait_for_itself() {
    for executor in [with_threads(2), Executor::inline()] {
        let same = executor.clone();
        let (done, outcome) = mpsc::channel();
        let behind = Blocker::new(&executor);
        executor.deferred(
            control(),
            |_| Ok(()),
            move |_: Result<()>| {
                same.free();
                done.send(same.immediate(&Control::new(), |_| Ok(())))
                    .unwrap();
            },
        );
        behind.let_go();
        assert_eq!(status(told(&outcome)), Some(Status::Freed));
        executor.free();
        assert!(executor.is_finished());
    }
    let executor = with_threads(2);
    executor
        .immediate(&Control::new(), |_| {
            executor.free();
            Ok(())
        })
        .unwrap();
    executor.free();
    assert!(executor.is_finished());
}

#[test]
fn abandon_aborts_the_queued_and_cancels_the_running() {
    let executor = with_threads(2);
    let (started, has_started) = mpsc::channel();
    let running = submit(&executor, &control(), move |hold| -> Result<()> {
        started.send(()).unwrap();
        loop {
            hold.control.check()?;
            thread::yield_now();
        }
    });
    has_started.recv_timeout(HANG).unwrap();
    let queued: Vec<_> = (0..10)
        .map(|_| submit(&executor, &control(), |_| Ok(())))
        .collect();
    executor.abandon();
    assert!(executor.is_finished());
    assert_eq!(status(told(&running)), Some(Status::Aborted));
    for outcome in &queued {
        assert_eq!(status(told(outcome)), Some(Status::Aborted));
    }
}

#[test]
fn a_retired_or_forgotten_executor_finishes_by_itself() {
    let executor = with_threads(2);
    let blocker = Blocker::new(&executor);
    let accepted = submit(&executor, &control(), |_| Ok(3));
    executor.retire();
    assert!(!executor.is_finished());
    let refused = submit(&executor, &control(), |_| Ok(()));
    assert_eq!(status(told(&refused)), Some(Status::Freed));
    blocker.let_go();
    assert_eq!(told(&accepted).unwrap(), 3);
    let since = Instant::now();
    while !executor.is_finished() {
        assert!(since.elapsed() < HANG);
        thread::yield_now();
    }

    for executor in [with_threads(2), Executor::inline()] {
        let blocker = Blocker::new(&executor);
        let accepted = submit(&executor, &control(), |_| Ok(4));
        drop(executor);
        blocker.let_go();
        assert_eq!(told(&accepted).unwrap(), 4);
    }
    assert!(!Executor::inline().is_finished());
}

#[test]
fn scratch_is_kept_between_calls() {
    let executor = with_threads(2);
    assert_eq!(executor.scratch_bytes(), 0);
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let address = executor.immediate(&Control::new(), |hold| {
            let [piece] = hold.arenas[0].carve([1000])?;
            Ok(piece.as_ptr().addr())
        });
        addresses.push(address.unwrap());
    }
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    assert!(executor.scratch_bytes() >= 4000);
}

#[test]
fn progress_is_what_the_call_reported() {
    let control = control();
    assert_eq!(control.progress(), (0, 0));
    let outcome = submit(&Executor::inline(), &control, |hold| {
        hold.control.report(3, 8);
        Ok(())
    });
    told(&outcome).unwrap();
    assert_eq!(control.progress(), (3, 8));
}

/// Whether a thread of ours wanted a core, and how often one went to sleep.
#[cfg(target_os = "linux")]
struct Wanted {
    /// For each of our threads, the share of the time it ran or stood in line to run.
    shares: Vec<f64>,
    /// CPU time of the whole process.
    cpu: Duration,
    sleeps: i64,
}

/// Watches the process for a while, in which the calling thread sleeps.
#[cfg(target_os = "linux")]
fn watched(time: Duration) -> Wanted {
    // Nanoseconds on a core and in line for one, which is what a spinning thread on a busy machine
    // does most: together they are its wish.
    let wishes = || {
        let mut wishes = BTreeMap::new();
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let task = task.unwrap().path();
            let name = fs::read_to_string(task.join("comm")).unwrap();
            if name.starts_with("uform-") {
                let figures = fs::read_to_string(task.join("schedstat")).unwrap();
                let figures = figures.split(' ').take(2);
                let wish: u64 = figures.map(|figure| figure.parse::<u64>().unwrap()).sum();
                wishes.insert(task, Duration::from_nanos(wish));
            }
        }
        wishes
    };
    let usage = || {
        // SAFETY: plain numbers, written by the call.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
            usage
        };
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_nvcsw)
    };
    let (wished, used, start) = (wishes(), usage(), Instant::now());
    thread::sleep(time);
    let (wall, uses, wishes) = (start.elapsed(), usage(), wishes());
    assert!(wishes.keys().eq(wished.keys()));
    let share = |(task, wish): (&PathBuf, &Duration)| {
        (*wish - wished[task]).as_secs_f64() / wall.as_secs_f64()
    };
    Wanted {
        shares: wishes.iter().map(share).collect(),
        cpu: uses.0 - used.0,
        sleeps: uses.1 - used.1,
    }
}

#[test]
#[cfg(target_os = "linux")]
fn parked_threads_use_no_cpu_and_spinning_ones_a_core_each() {
    let name = "parked_threads_use_no_cpu_and_spinning_ones_a_core_each";
    if !fs::exists("/proc/self/schedstat").unwrap() {
        println!("SKIPPED {name}: this kernel does not count the time of a thread");
        return;
    }
    alone(name, || {
        let executors = [with_threads(2), with_threads(4), Executor::inline()];
        let threads = executors.iter().map(Executor::threads).sum::<usize>();
        let idle = |mood: Mood| {
            for executor in &executors {
                told(&submit(executor, &control(), |hold| {
                    hold.team.run(50, &|_, _| {});
                    Ok(())
                }))
                .unwrap();
                executor.drain(mood).unwrap();
            }
            // The bounded spin after the last call, and whatever the machine was behind with.
            thread::sleep(Duration::from_millis(100));
            let wanted = watched(Duration::from_secs(1));
            assert_eq!(wanted.shares.len(), threads);
            wanted
        };
        for _ in 0..2 {
            let Wanted {
                shares,
                cpu,
                sleeps,
            } = idle(Mood::Parked);
            assert!(shares.iter().all(|share| *share < 0.001), "{shares:?}");
            // What is left is this thread's own: it reads the figures.
            assert!(cpu < Duration::from_millis(5), "parked: {cpu:?}");
            assert!(sleeps <= 3, "parked threads woke {sleeps} times");
            println!("parked: {cpu:?} of CPU time in a second, {sleeps} wake-ups");

            let Wanted { shares, cpu, .. } = idle(Mood::Spinning);
            println!("spinning: {shares:?} of a core wanted, {cpu:?} had");
            let whole = |share: &f64| (0.9..1.1).contains(share);
            assert!(shares.iter().all(whole), "spinning: {shares:?}");
        }
    });
}

/// What must not change about a thread that makes and uses an executor.
#[cfg(target_os = "linux")]
fn nature_of_this_thread() -> Vec<String> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines = ["Name:", "SigBlk:", "Cpus_allowed:", "Mems_allowed:"];
    status
        .lines()
        .filter(|line| lines.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect()
}

#[test]
#[cfg(target_os = "linux")]
fn the_calling_thread_stays_as_it_was() {
    let before = nature_of_this_thread();
    assert_eq!(before.len(), 4);
    let executor = with_threads(3);
    assert_eq!(nature_of_this_thread(), before);
    let during = executor.immediate(&Control::new(), |hold| {
        hold.team.run(100, &|_, _| {});
        Ok(nature_of_this_thread())
    });
    assert_eq!(during.unwrap(), before);
    executor.drain(Mood::Spinning).unwrap();
    executor.free();
    assert_eq!(nature_of_this_thread(), before);
}

#[test]
#[cfg(target_os = "linux")]
fn an_executor_has_as_many_threads_as_it_says_named_and_deaf_to_signals() {
    alone(
        "an_executor_has_as_many_threads_as_it_says_named_and_deaf_to_signals",
        || {
            let ours = || {
                let mut ours = Vec::new();
                for task in fs::read_dir("/proc/self/task").unwrap() {
                    let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
                    let field = |name: &str| {
                        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
                        line[name.len()..].trim().to_owned()
                    };
                    if field("Name:").starts_with("uform-") {
                        let blocked = u64::from_str_radix(&field("SigBlk:"), 16).unwrap();
                        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGPROF] {
                            assert_ne!(blocked & 1 << (signal - 1), 0, "signal {signal}");
                        }
                        assert_eq!(blocked & 1 << (libc::SIGSEGV - 1), 0);
                        ours.push(field("Name:"));
                    }
                }
                ours.sort();
                ours
            };
            let executor = with_threads(3);
            assert_eq!(ours(), ["uform-0", "uform-1", "uform-2"]);
            let inline = Executor::inline();
            inline.immediate(&Control::new(), |_| Ok(())).unwrap();
            assert_eq!(ours().len(), 3);
            executor.free();
            assert!(ours().is_empty());
            told(&submit(&inline, &control(), |_| Ok(()))).unwrap();
            assert_eq!(ours(), ["uform-0"]);
            inline.free();
            assert!(ours().is_empty());
        },
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_refused_thread_leaves_nothing_behind() {
    alone("a_refused_thread_leaves_nothing_behind", || {
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let most = RamOptions {
            threads: Some(MOST_THREADS as u64),
            ..RamOptions::default()
        };
        let limit = |bytes: u64| {
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: reads the limit it is given.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        };
        // Enough for dozens of stacks, not for a thousand.
        limit(1 << 29);
        let error = Executor::for_ram(&most).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory, "{error}");
        assert!(error.message().contains("1024 threads"), "{error}");
        assert_eq!(threads(), before);
        limit(libc::RLIM_INFINITY);
        assert_eq!(Executor::for_ram(&most).unwrap().threads(), MOST_THREADS);
    });
}

#[test]
#[cfg(unix)]
fn a_forked_child_gets_errors_and_no_hang() {
    alone("a_forked_child_gets_errors_and_no_hang", || {
        let executor = with_threads(2);
        let blocker = Blocker::new(&executor);
        let queued_control = control();
        let queued = submit(&executor, &queued_control, |_| Ok(()));
        // SAFETY: the child calls what is under test, allocates (which the C
        // library allows after a fork), and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child should it hang.
            unsafe { libc::alarm(20) };
            let unsupported = |result: Result<()>| {
                result.is_err_and(|error| {
                    error.status() == Status::Unsupported && error.message().contains("fork")
                })
            };
            let mut fine = unsupported(executor.immediate(&Control::new(), |_| Ok(())));
            let outcome = submit(&executor, &control(), |_| Ok(()));
            fine &= unsupported(outcome.recv().unwrap());
            fine &= unsupported(executor.drain(Mood::Parked));
            fine &= executor.outstanding() == 0 && executor.is_finished();
            queued_control.cancel();
            executor.retire();
            executor.abandon();
            executor.free();
            drop(executor);
            // SAFETY: leaves without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!fine)) };
        }
        let mut ended = 0;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut ended, 0) }, child);
        assert!(libc::WIFEXITED(ended), "the child hung or crashed: {ended}");
        assert_eq!(libc::WEXITSTATUS(ended), 0);
        blocker.let_go();
        told(&queued).unwrap();
        executor.free();
    });
}
