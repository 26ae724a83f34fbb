//! One leader, one or two workers, two or three tasks.

use loom::cell::UnsafeCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};

use super::{Preemptions, explore};
use crate::executor::pace::Pace;
use crate::executor::sync::{Condvar, Mutex, lock, thread};
use crate::executor::team::Team;
use crate::kernels::ForkJoin;

/// Plain memory: loom complains when two threads reach it without an order between them.
struct Tasks<const N: usize>([UnsafeCell<u32>; N]);

// SAFETY: loom checks at each access what this promises.
unsafe impl<const N: usize> Sync for Tasks<N> {}

impl<const N: usize> Tasks<N> {
    fn new() -> Self {
        Tasks([(); N].map(|()| UnsafeCell::new(0)))
    }

    fn run(&self, team: &Team) {
        team.run(N, &|_, task| {
            // SAFETY: loom has checked that no other thread accesses it.
            self.0[task].with_mut(|times| unsafe { *times += 1 });
        });
        // The leader reads what the lanes wrote: an error here is a leader that was too early.
        for times in &self.0 {
            // SAFETY: as above.
            assert_eq!(times.with(|times| unsafe { *times }), 1);
        }
    }
}

/// Runs `lead` with a team whose workers come and, in the end, go.
fn with_team(lanes: usize, lead: impl FnOnce(&Arc<Team>)) {
    let team = Arc::new(Team::new(lanes, Arc::new(Pace::new())));
    let workers: Vec<_> = (1..lanes)
        .map(|lane| {
            let team = Arc::clone(&team);
            thread::spawn(move || team.work(lane))
        })
        .collect();
    lead(&team);
    team.stop();
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn each_task_runs_once_and_before_the_leader_returns() {
    let bound = Preemptions {
        short: Some(3),
        full: Some(4),
    };
    explore("a leader, a worker, two jobs", bound, || {
        with_team(2, |team| {
            Tasks::<2>::new().run(team);
            Tasks::<2>::new().run(team);
        });
    });
}

#[test]
fn so_it_does_with_two_workers() {
    let bound = Preemptions {
        short: Some(2),
        full: Some(3),
    };
    explore("a leader, two workers, a job", bound, || {
        with_team(3, |team| Tasks::<3>::new().run(team));
    });
}

#[test]
fn workers_come_and_go_without_any_job() {
    let bound = Preemptions {
        short: Some(3),
        full: Some(4),
    };
    explore("two workers, no job", bound, || with_team(3, |_| {}));
}

/// Each of `N` tasks waits until all of them have begun, so that each needs a lane of its own:
/// a worker that missed its job is a model that can go no further.
fn meet<const N: usize>(team: &Team) {
    let (begun, more) = (Mutex::new(0), Condvar::new());
    team.run(N, &|_, _| {
        let mut begun = lock(&begun);
        *begun += 1;
        more.notify_all();
        while *begun < N {
            begun = more.wait(begun).unwrap_or_else(PoisonError::into_inner);
        }
    });
}

#[test]
fn every_worker_comes_to_every_job() {
    let bound = Preemptions {
        short: Some(3),
        full: Some(4),
    };
    explore("a worker comes twice", bound, || {
        with_team(2, |team| {
            meet::<2>(team);
            meet::<2>(team);
        });
    });
    let bound = Preemptions {
        short: Some(1),
        full: Some(2),
    };
    explore("two workers come", bound, || {
        with_team(3, |team| meet::<3>(team))
    });
}

#[test]
fn two_threads_that_share_a_team_get_all_their_tasks() {
    let bound = Preemptions {
        short: Some(2),
        full: Some(3),
    };
    explore("two leaders, a worker", bound, || {
        with_team(2, |team| {
            let other = thread::spawn({
                let team = Arc::clone(team);
                move || Tasks::<2>::new().run(&team)
            });
            Tasks::<2>::new().run(team);
            other.join().unwrap();
        });
    });
}

#[test]
fn a_panic_reaches_the_leader_when_all_lanes_are_out() {
    let bound = Preemptions {
        short: Some(3),
        full: Some(4),
    };
    explore("a task panics", bound, || {
        with_team(2, |team| {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                team.run(2, &|_, task| {
                    if task == 1 {
                        panic::resume_unwind(Box::new("thrown by a task"));
                    }
                });
            }));
            let thrown = outcome.unwrap_err();
            assert_eq!(thrown.downcast_ref(), Some(&"thrown by a task"));
            Tasks::<2>::new().run(team);
        });
    });
}
