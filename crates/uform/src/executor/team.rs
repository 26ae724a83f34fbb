//! The team: one leader and its workers, who share the tasks of one job at a time.
//!
//! # A job, from both sides
//!
//! The leader (lane 0) is the thread that calls [`run`](ForkJoin::run): the
//! conductor for a deferred call, the caller itself for an immediate one. It writes
//! down the job, opens the [`Gate`], rings the [`Bell`], and starts taking tasks.
//! Tasks are claimed from one counter, so a lane that got long ones simply takes
//! fewer. When the counter has run out the leader closes the gate, waits for
//! the lanes that are inside, and returns.
//!
//! A worker's life is a loop of four states:
//!
//! ```text
//!            gate open                      no task left
//!  looking ────────────▶ inside the job ────────────────▶ waiting
//!     ▲ │   gate closed                                     │ ▲
//!     │ └─────────────────────────────────────────────────────┘
//!     └──────────────────── bell rung ──────────────────────┘
//!            (spinning for a while, then asleep: see Bell)
//! ```
//!
//! The two meetings of leader and worker are the bell and the gate; each says
//! in its own file why no wake-up is lost there. What is left is that a worker does
//! not overlook a job between them: the leader opens the gate *before* it rings,
//! and the worker listens to the bell *before* it looks at the gate. If the
//! worker heard the ring it sees the gate open (or closed again: the job is
//! over); if it did not, the ring ends its wait. Overlooking a job would cost speed
//! only, never a result: the leader alone is able to do every task.
//!
//! # What the job borrows
//!
//! The closure lives in a frame of the leader, and workers reach it through a
//! raw pointer: nothing is allocated. The pointer is used only inside the gate,
//! and `run` returns only after the gate is closed and empty, also when
//! a task panics: the panic is caught on its lane, the tasks left are skipped, and
//! the leader raises it again when everybody is out.
//!
//! # One job at a time
//!
//! A task may itself call `run`, and nothing in the types keeps a caller from
//! sharing the team between threads. A caller that finds it busy runs its tasks on
//! its own thread, as the only lane of its job.

use std::any::Any;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use super::bell::Bell;
use super::gate::Gate;
use super::pace::Pace;
use super::sync::{AtomicBool, AtomicUsize, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::kernels::{ForkJoin, Solo};

/// What one job's lanes call, for tasks below a count.
#[derive(Clone, Copy)]
struct Job {
    body: *const (dyn Fn(usize, usize) + Sync),
    tasks: usize,
}

/// The gate and the job behind it, on one cache line: who enters needs both.
struct Entrance {
    gate: Gate,
    /// Written by the leader while the gate is closed and empty, read inside the gate.
    job: UnsafeCell<Job>,
}

/// See the module.
pub(super) struct Team {
    lanes: usize,
    pace: Arc<Pace>,
    bell: Bell,
    entrance: CachePadded<Entrance>,
    /// The next unclaimed task.
    next: CachePadded<AtomicUsize>,
    /// Whether some thread is leading a job.
    leading: CachePadded<AtomicBool>,
    /// Whether `panic` holds something: cheaper to ask than the lock.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stopping: AtomicBool,
}

// SAFETY: all but `job` is shared by design, and `job` is written only by the
// thread that holds `leading`, while no lane is inside the gate (see `run` and
// `share`). The closure it points to is `Sync`.
unsafe impl Sync for Team {}
// SAFETY: the pointer in `job` is used only between `open` and `close` of one `run`.
unsafe impl Send for Team {}

impl Team {
    /// A team of `lanes`, whose workers have yet to come: a thread each that calls [`work`](Self::work).
    pub(super) fn new(lanes: usize, pace: Arc<Pace>) -> Self {
        Team {
            lanes,
            pace,
            bell: Bell::new(),
            entrance: CachePadded::new(Entrance {
                gate: Gate::new(),
                job: UnsafeCell::new(Job {
                    body: &|_, _| {},
                    tasks: 0,
                }),
            }),
            next: CachePadded::new(AtomicUsize::new(0)),
            leading: CachePadded::new(AtomicBool::new(false)),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            stopping: AtomicBool::new(false),
        }
    }

    /// The life of the worker of one lane, from 1 up; returns after [`stop`](Self::stop).
    pub(super) fn work(&self, lane: usize) {
        loop {
            let heard = self.bell.listen();
            if self.entrance.gate.enter() {
                self.share(lane);
                self.entrance.gate.leave();
            }
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            self.bell.wait(heard, &self.pace);
        }
    }

    /// Sends the workers home. The leader remains, and is enough for any later job.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.bell.ring(u32::MAX);
    }

    /// Makes idle workers wait anew, after their mood was changed.
    pub(super) fn stir(&self) {
        self.bell.ring(u32::MAX);
    }

    /// Takes tasks until none is left. The caller is the leader between `open`
    /// and `close`, or a lane inside the gate.
    fn share(&self, lane: usize) {
        // SAFETY: the gate is open or this lane is counted inside it, so the
        // leader is within `run`: the job is written and not written again.
        let Job { body, tasks } = self.entrance.job.with(|job| unsafe { *job });
        // SAFETY: as above, the closure is alive until `run` returns.
        let body = unsafe { &*body };
        let shared = panic::catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                body(lane, task);
            }
        }));
        if let Err(payload) = shared {
            self.next.store(tasks, Ordering::Relaxed);
            lock(&self.panic).get_or_insert(payload);
            self.panicked.store(true, Ordering::Relaxed);
        }
    }

    /// Becomes the leader, unless another thread is.
    fn lead(&self) -> Option<Lead<'_>> {
        let busy = self.leading.swap(true, Ordering::Acquire);
        // Not `then_some`: a `Lead` made and dropped would end the other's.
        (!busy).then(|| Lead(&self.leading))
    }
}

/// The right to lead, given back when dropped.
struct Lead<'a>(&'a AtomicBool);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl ForkJoin for Team {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let helpers = tasks.min(self.lanes).saturating_sub(1);
        if helpers == 0 {
            return Solo.run(tasks, body);
        }
        let Some(_lead) = self.lead() else {
            return Solo.run(tasks, body);
        };
        // SAFETY: only the lifetime changes. The pointer is used inside the gate
        // alone, which is closed and empty before this function returns.
        let body = unsafe {
            mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + '_),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(body)
        };
        // SAFETY: this thread leads, and the gate was closed and left by all
        // at the end of the job before.
        self.entrance
            .job
            .with_mut(|job| unsafe { *job = Job { body, tasks } });
        self.next.store(0, Ordering::Relaxed);
        self.entrance.gate.open();
        self.bell.ring(helpers as u32);
        self.share(0);
        self.entrance.gate.close(&self.pace);
        if self.panicked.swap(false, Ordering::Relaxed)
            && let Some(payload) = lock(&self.panic).take()
        {
            panic::resume_unwind(payload);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Pace, Team};
    use crate::executor::sync::{AtomicUsize, Ordering};
    use crate::kernels::ForkJoin;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::Arc;
    use std::thread;

    /// Runs `test` with a team of each size, at both paces.
    fn with_teams(test: impl Fn(&Team)) {
        for lanes in 1..=8 {
            for roomy in [false, true] {
                let pace = Arc::new(Pace::new());
                pace.set_roomy(roomy);
                let team = Team::new(lanes, pace);
                thread::scope(|scope| {
                    for lane in 1..lanes {
                        let team = &team;
                        scope.spawn(move || team.work(lane));
                    }
                    let outcome = panic::catch_unwind(AssertUnwindSafe(|| test(&team)));
                    team.stop();
                    if let Err(payload) = outcome {
                        panic::resume_unwind(payload);
                    }
                });
            }
        }
    }

    #[test]
    fn every_task_runs_once_and_lanes_are_below_their_number() {
        with_teams(|team| {
            for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                for _ in 0..20 {
                    let taken: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                    team.run(tasks, &|lane, task| {
                        assert!(lane < team.lanes());
                        taken[task].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(taken.iter().all(|times| times.load(Ordering::Relaxed) == 1));
                }
            }
        });
    }

    #[test]
    fn tasks_of_one_lane_do_not_overlap() {
        with_teams(|team| {
            let busy: Vec<_> = (0..team.lanes()).map(|_| AtomicUsize::new(0)).collect();
            team.run(500, &|lane, _| {
                assert_eq!(busy[lane].fetch_add(1, Ordering::AcqRel), 0);
                thread::yield_now();
                assert_eq!(busy[lane].fetch_sub(1, Ordering::AcqRel), 1);
            });
        });
    }

    #[test]
    fn sleeping_workers_come_for_long_tasks() {
        with_teams(|team| {
            let lanes = team.lanes();
            let met = AtomicUsize::new(0);
            thread::sleep(std::time::Duration::from_millis(1));
            // Each task waits for all others to have begun: no lane can take two.
            team.run(lanes, &|_, _| {
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < lanes {
                    thread::yield_now();
                }
            });
        });
    }

    #[test]
    fn a_panic_reaches_the_leader_and_the_team_goes_on() {
        with_teams(|team| {
            for guilty in [0, 1, 17, 63] {
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                    team.run(64, &|_, task| {
                        if task == guilty {
                            panic::resume_unwind(Box::new(task));
                        }
                    });
                }));
                assert_eq!(*outcome.unwrap_err().downcast::<usize>().unwrap(), guilty);
            }
            let sum = AtomicUsize::new(0);
            team.run(64, &|_, task| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 2016);
        });
    }

    #[test]
    fn a_job_inside_a_job_runs_whole_and_its_panic_crosses_both() {
        with_teams(|team| {
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
    }

    #[test]
    fn threads_that_share_a_team_each_get_all_their_tasks() {
        with_teams(|team| {
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            let count = AtomicUsize::new(0);
                            team.run(9, &|_, _| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                            assert_eq!(count.into_inner(), 9);
                        }
                    });
                }
            });
        });
    }
}
