//! The executor under a model checker.
//!
//! Loom, the crate, runs a *model*, a small program of two to four threads, once for
//! every order in which its steps on shared memory can fall, and with every value the
//! memory model lets a load return. What is shared comes from `sync`, which hands out
//! loom's stand-ins here. A lost wake-up is a model that can go no further, a missing
//! happens-before a complaint about an `UnsafeCell`.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p uform --profile loom --lib --target-dir target/loom loom
//! ```
//!
//! `cargo xtask test` does the same. The folder of its own keeps the flag from rebuilding everything
//! else; add `-- --nocapture` to see how many orders each model has.
//!
//! | file | what it checks |
//! | --- | --- |
//! | `bell` | no ring is lost |
//! | `team` | each task once, none after the leader has returned; every worker comes and goes |
//! | `queue` | each call answered once, in order; drain, free, cancel and abandon at any moment |
//!
//! # What is not explored
//!
//! - More than a bounded number of *preemptions*, of switches away from a thread that could
//!   go on; each model names its bound. Nearly every defect of this kind shows with two.
//! - The kernel's futex: the model sleeps on the lock and condition that `futex` uses
//!   elsewhere. It makes the same promise, and `futex` tests that each keeps it.
//! - Time: bounded spins are left out, so that threads sleep as soon as they may.
//! - Reference counts of `Arc`, and the standard library inside.
//! - The error paths of a system that refuses a thread, and `fork`.

mod bell;
mod queue;
mod team;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::threads::Threads;
use super::{Executor, ExecutorKind, Parts};
use crate::hardware::cores::UsableCores;
use crate::placement::Placement;

/// How many preemptions an order may have: in `cargo xtask test`, and with `UFORM_SOAK`, where
/// `None` is every one.
struct Preemptions {
    short: Option<usize>,
    full: Option<usize>,
}

/// An executor on a machine that need not be read, with its threads still to start.
fn executor(lanes: usize, deferred_limit: u64) -> Executor {
    let placement = Placement::anywhere(UsableCores {
        online: (0..8).collect(),
        affinity: None,
        cpuset: None,
        quota: None,
    });
    Executor::new(Parts {
        kind: ExecutorKind::Ram,
        lanes,
        placement,
        cpu_class: None,
        deferred_limit,
        threads: Threads::new(lanes),
        #[cfg(feature = "native")]
        devices: None,
    })
}

/// Runs the model in every order.
fn explore(name: &str, preemptions: Preemptions, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = match env::var_os("UFORM_SOAK") {
        None => preemptions.short,
        Some(_) => preemptions.full,
    };
    let orders = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{name}: {orders} orders");
    assert!(orders > 1, "a model of a single order checks nothing");
}
