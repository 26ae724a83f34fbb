//! What it costs to hand work to threads: a table in nanoseconds.
//!
//! `cargo bench -p uform --bench fork_join`

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uform::executor::{Control, Executor, Mood};
use uform::kernels::ForkJoin;
use uform::placement::RamOptions;

/// Long enough for every thread to have fallen asleep.
const PAUSE: Duration = Duration::from_millis(2);
const NONE: Duration = Duration::ZERO;

fn main() {
    let options = RamOptions {
        threads: Some(2),
        ..RamOptions::default()
    };
    let two = Executor::for_ram(&options).expect("two threads");
    let inline = Executor::inline();

    println!("{:<48}{:>8}{:>8}", "nanoseconds", "p50", "p90");
    let empty = |team: &dyn ForkJoin| team.run(2, &|_, _| {});
    row(
        "fork-join, 2 threads, empty tasks, hot",
        in_one_call(&two, 50_000, NONE, empty),
    );
    row(
        "fork-join, 2 threads, both must come, hot",
        in_one_call(&two, 50_000, NONE, meet),
    );
    row(
        "fork-join, 2 threads, both must come, cold",
        in_one_call(&two, 300, PAUSE, meet),
    );
    row(
        "immediate call, inline",
        sample(50_000, NONE, || immediate(&inline)),
    );
    row(
        "deferred round trip, conductor asleep",
        sample(300, PAUSE, || deferred(&two)),
    );
    row(
        "deferred round trip, parked, back to back",
        sample(5_000, NONE, || deferred(&two)),
    );
    two.drain(Mood::Spinning).expect("a live executor");
    row(
        "deferred round trip, spinning",
        sample(5_000, NONE, || deferred(&two)),
    );
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

fn row(name: &str, mut times: Vec<u128>) {
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100];
    println!("{name:<48}{:>8}{:>8}", at(50), at(90));
}
