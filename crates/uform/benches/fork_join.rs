//! What it costs to hand work to threads, here and elsewhere: tables in nanoseconds.
//!
//! `cargo bench -p uform --bench fork_join`

use std::hint;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use forkunion::{CallerExclusivity, Topology};
use uform::executor::{Control, Executor, Mood};
use uform::kernels::ForkJoin;
use uform::placement::RamOptions;

/// Long enough for every thread to have fallen asleep.
const PAUSE: Duration = Duration::from_millis(2);
const NONE: Duration = Duration::ZERO;

/// Rounds in which the ways take turns, so that what disturbs one disturbs all.
const ROUNDS: usize = 9;

/// One way to do a thing, and how to time it some times. Threads of its own live no longer than
/// this: those of some ways keep the cores busy.
type Way<'a> = (&'a str, Box<dyn Fn() -> Vec<u128> + Sync + 'a>);

fn main() {
    let two = Executor::for_ram(&RamOptions {
        threads: Some(2),
        ..RamOptions::default()
    })
    .expect("two threads");
    let inline = Executor::inline();
    let empty = |team: &dyn ForkJoin| team.run(2, &|_, _| {});

    compare(
        "fork-join, 2 threads, empty tasks, hot",
        &[
            ("uform", Box::new(|| in_one_call(&two, 3_000, NONE, empty))),
            (
                "forkunion, inclusive",
                Box::new(|| on_forkunion(CallerExclusivity::Inclusive, 3_000)),
            ),
            (
                "forkunion, exclusive",
                Box::new(|| on_forkunion(CallerExclusivity::Exclusive, 300)),
            ),
            ("rayon, from outside", Box::new(|| on_rayon(1_000))),
        ],
    );
    compare(
        "fork-join, 2 threads, both must come, hot",
        &[("uform", Box::new(|| in_one_call(&two, 3_000, NONE, meet)))],
    );
    compare(
        "waking from sleep",
        &[
            #[cfg(target_os = "linux")]
            (
                "a bare futex, there and back, both asleep",
                Box::new(|| futex_round_trips(60, Waker::Sleeps)),
            ),
            // As who leads a team does: the two compute side by side, so the wake-up crosses cores.
            #[cfg(target_os = "linux")]
            (
                "a bare futex, a core each, its waker awake",
                Box::new(|| futex_round_trips(60, Waker::Spins)),
            ),
            (
                "uform, fork-join, both must come",
                Box::new(|| in_one_call(&two, 60, PAUSE, meet)),
            ),
            (
                "uform, deferred round trip",
                Box::new(|| sample(60, PAUSE, || deferred(&two))),
            ),
        ],
    );
    compare(
        "calls",
        &[
            (
                "immediate, inline",
                Box::new(|| sample(3_000, NONE, || immediate(&inline))),
            ),
            (
                "deferred round trip, parked, back to back",
                Box::new(|| sample(500, NONE, || deferred(&two))),
            ),
            (
                "deferred round trip, spinning",
                Box::new(|| {
                    two.drain(Mood::Spinning).expect("a live executor");
                    let times = sample(500, NONE, || deferred(&two));
                    two.drain(Mood::Parked).expect("a live executor");
                    times
                }),
            ),
        ],
    );
}

/// Times the ways in turns, and prints nanoseconds: the least, the median, and the median as
/// a multiple of the first way's.
fn compare(title: &str, ways: &[Way<'_>]) {
    let mut times: Vec<Vec<u128>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            // On a thread of its own, which some ways pin.
            let round = thread::scope(|scope| scope.spawn(way).join());
            times.extend(round.expect("a way that does not panic"));
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let median = |times: &[u128]| times[times.len() / 2];
    let first = median(&times[0]) as f64;
    println!(
        "\n{title:<46}{:>10}{:>10}{:>10}",
        "least", "median", "ratio"
    );
    for ((name, _), times) in ways.iter().zip(&times) {
        let (least, median) = (times[0], median(times));
        let ratio = median as f64 / first;
        println!("  {name:<44}{least:>10}{median:>10}{ratio:>10.2}");
    }
}

/// ForkUnion, with the caller as one of its two threads or beside them.
fn on_forkunion(exclusivity: CallerExclusivity, times: usize) -> Vec<u128> {
    let topology = Topology::new().expect("a topology");
    let pool = forkunion::ThreadPool::try_spawn_with_exclusivity(&topology, 2, exclusivity);
    let mut pool = pool.expect("a pool");
    let work = |_: usize, _: usize| {};
    (0..times + times / 10)
        .map(|_| {
            let start = Instant::now();
            drop(pool.for_threads(&work));
            start.elapsed().as_nanos()
        })
        .skip(times / 10)
        .collect()
}

/// Rayon, called by a thread that is not in its pool.
fn on_rayon(times: usize) -> Vec<u128> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let pool = pool.expect("a pool");
    sample(times, NONE, || {
        pool.install(|| rayon::join(|| (), || ()));
    })
}

/// How the first of two threads waits for the second.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waker {
    Sleeps,
    Spins,
}

/// Two threads of which the first wakes the second, is answered, and that is all.
#[cfg(target_os = "linux")]
fn futex_round_trips(times: usize, waker: Waker) -> Vec<u128> {
    let (there, back) = &(AtomicU32::new(0), AtomicU32::new(0));
    let send = |word: &AtomicU32| {
        word.fetch_add(1, Ordering::SeqCst);
        futex(word, libc::FUTEX_WAKE, 1);
    };
    let receive = |word: &AtomicU32, before: u32| {
        while word.load(Ordering::SeqCst) == before {
            futex(word, libc::FUTEX_WAIT, before);
        }
    };
    thread::scope(|scope| {
        if waker == Waker::Spins {
            stay_on(0);
        }
        scope.spawn(move || {
            if waker == Waker::Spins {
                stay_on(1);
            }
            for round in 0..times as u32 {
                receive(there, round);
                send(back);
            }
        });
        sample(times, PAUSE, || {
            let round = back.load(Ordering::SeqCst);
            send(there);
            match waker {
                Waker::Sleeps => receive(back, round),
                Waker::Spins => {
                    while back.load(Ordering::SeqCst) == round {
                        hint::spin_loop();
                    }
                }
            }
        })
    })
}

/// Keeps the calling thread, which is a round's own, on one core.
#[cfg(target_os = "linux")]
fn stay_on(core: usize) {
    // SAFETY: a mask is plain bits, for which zero is a value; the call reads it.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut cores);
        libc::sched_setaffinity(0, size_of_val(&cores), &cores);
    }
}

#[cfg(target_os = "linux")]
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is alive; no timeout is given.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, forever) };
}

/// A job that ends only when both lanes have come.
fn meet(team: &dyn ForkJoin) {
    let met = AtomicUsize::new(0);
    team.run(2, &|_, _| {
        met.fetch_add(1, Ordering::AcqRel);
        while met.load(Ordering::Acquire) < 2 {
            hint::spin_loop();
        }
    });
}

fn immediate(executor: &Executor) {
    executor
        .immediate(&Control::new(), |_| Ok(()))
        .expect("an empty call");
}

fn deferred(executor: &Executor) {
    let (done, is_done) = mpsc::channel();
    executor.deferred(
        Arc::new(Control::new()),
        |_| Ok(()),
        move |outcome| drop(done.send(outcome)),
    );
    is_done.recv().expect("an outcome").expect("an empty call");
}

/// Times jobs of one immediate call.
fn in_one_call(
    executor: &Executor,
    times: usize,
    pause: Duration,
    job: impl Fn(&dyn ForkJoin),
) -> Vec<u128> {
    executor
        .immediate(&Control::new(), |hold| {
            Ok(sample(times, pause, || job(hold.team)))
        })
        .expect("a call that cannot fail")
}

/// Nanoseconds of each run of `work`, with a pause before it.
fn sample(times: usize, pause: Duration, work: impl Fn()) -> Vec<u128> {
    (0..times)
        .map(|_| {
            if !pause.is_zero() {
                thread::sleep(pause);
            }
            let start = Instant::now();
            work();
            start.elapsed().as_nanos()
        })
        .collect()
}
