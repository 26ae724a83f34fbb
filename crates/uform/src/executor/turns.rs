//! An executor's threads where there are none: the calling thread is the only
//! lane, and deferred calls run as the event loop turns. Same shape as `threads.rs`.
//!
//! A turn computes one step of the run that holds. Between two turns the run waits here, with
//! all it computes in, and still holds: who comes meanwhile is queued or refused by the one rule
//! of `order`, as everywhere.

use std::mem;
use std::sync::{Arc, Weak};
use std::task::Poll;

use super::call::Queued;
use super::mood::{Mood, SharedMood};
use super::reentrancy::inside;
use super::scratch::Arena;
use super::steps::{Steps, step};
use super::sync::{Mutex, lock};
use super::{Core, Executor};
use crate::Result;
use crate::kernels::{ForkJoin, Solo};

/// See the module.
pub(super) struct Threads {
    mood: SharedMood,
    /// The run that holds, between two of its steps.
    paused: Mutex<Option<Steps<'static, Ran>>>,
}

/// A run's calls, with their outcomes, and what they computed in.
struct Ran {
    first: Queued,
    admitted: Vec<Queued>,
    arenas: Vec<Arena>,
}

async fn run(mut first: Queued, mut admitted: Vec<Queued>, mut arenas: Vec<Arena>) -> Ran {
    first.1.run(&mut admitted, &Solo, &mut arenas).await;
    Ran {
        first,
        admitted,
        arenas,
    }
}

impl Core {
    /// Computes a step of the run that holds, or of the next; whether there was one.
    pub(super) fn turn(&self) -> bool {
        let paused = lock(&self.threads.paused).take();
        let mut steps = match paused {
            Some(steps) => steps,
            None => {
                let Some((first, admitted)) = self.next_run() else {
                    return false;
                };
                let arenas = mem::take(&mut *lock(&self.arenas));
                Box::pin(run(first, admitted, arenas))
            }
        };
        match inside(self.name(), || step(steps.as_mut())) {
            Poll::Pending => *lock(&self.threads.paused) = Some(steps),
            Poll::Ready(Ran {
                first,
                admitted,
                mut arenas,
            }) => {
                self.computed(&mut arenas);
                *lock(&self.arenas) = arenas;
                self.no_longer_holds();
                self.settle(first, admitted);
            }
        }
        true
    }
}

/// Turns of an executor for code that waits for its calls, as long as it is there.
#[derive(Clone)]
pub struct Turns(Weak<Core>);

impl Turns {
    /// Of an executor.
    pub fn of(executor: &Executor) -> Turns {
        Turns(Arc::downgrade(executor.core()))
    }

    /// As [`Executor::turn`].
    pub fn next(&self) -> bool {
        self.0.upgrade().is_some_and(|core| core.turn())
    }
}

impl PartialEq for Turns {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// The right to use the only lane.
pub(super) struct Turn;

impl Threads {
    pub(super) fn new(_lanes: usize) -> Self {
        Threads {
            mood: SharedMood::new(),
            paused: Mutex::new(None),
        }
    }

    pub(super) fn start(&self, _core: &Arc<Core>) -> Result<()> {
        Ok(())
    }

    pub(super) fn ready(&self, _core: &Arc<Core>) -> Result<()> {
        Ok(())
    }

    pub(super) fn team(&self) -> &dyn ForkJoin {
        &Solo
    }

    pub(super) fn line_up(&self, _executor: usize, _wanted: bool) {}

    pub(super) fn step_out(&self, _executor: usize) {}

    pub(super) fn turn_now(&self) -> Result<Turn> {
        Ok(Turn)
    }

    /// The caller's.
    pub(super) fn busy(&self) -> usize {
        1
    }

    /// Nothing was asked of the system.
    pub(super) fn refused(&self) -> Vec<String> {
        Vec::new()
    }

    pub(super) fn release(&self) {}

    pub(super) fn mood(&self) -> Mood {
        self.mood.get()
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        self.mood.set(mood);
    }

    pub(super) fn ring(&self) {}

    pub(super) fn check_process(&self) -> Result<()> {
        Ok(())
    }

    /// Runs what is queued, here and now.
    pub(super) fn finish(core: &Core) {
        while core.turn() {}
    }

    pub(super) fn join(&self) {}

    pub(super) fn is_joined(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arena, Control, Executor, Mood, Share, Work, pause};
    use crate::kernels::ForkJoin;
    use crate::placement::RamOptions;
    use crate::{Result, Status};
    use std::sync::{Arc, Mutex};

    /// What ended so far: a number a call, with its status if it failed.
    type Ends = Arc<Mutex<Vec<(u32, Option<Status>)>>>;

    fn submit(executor: &Executor, ends: &Ends, number: u32) -> Arc<Control> {
        let control = Arc::new(Control::new());
        let ends = Arc::clone(ends);
        executor.deferred(
            Arc::clone(&control),
            |hold| {
                assert_eq!((hold.team.lanes(), hold.arenas.len()), (1, 1));
                Ok(())
            },
            move |outcome: Result<()>| {
                let status = outcome.err().map(|error| error.status());
                ends.lock().unwrap().push((number, status));
            },
        );
        control
    }

    #[test]
    fn deferred_calls_run_a_turn_each_and_drain_and_free_run_the_rest() {
        let options = RamOptions {
            threads: Some(8),
            ..RamOptions::default()
        };
        for executor in [Executor::for_ram(&options).unwrap(), Executor::inline()] {
            let ends = Ends::default();
            let ended = || ends.lock().unwrap().len();
            assert_eq!(executor.threads(), 1);
            let controls: Vec<_> = (0..5)
                .map(|number| submit(&executor, &ends, number))
                .collect();
            assert_eq!((ended(), executor.outstanding()), (0, 5));
            let refused = executor.immediate(&Control::new(), |_| Ok(()));
            assert_eq!(refused.unwrap_err().status(), Status::Contended);
            assert!(executor.turn());
            controls[2].cancel();
            assert_eq!(
                *ends.lock().unwrap(),
                [(0, None), (2, Some(Status::Aborted))]
            );
            executor.drain(Mood::Spinning).unwrap();
            assert_eq!((ended(), executor.mood()), (5, Mood::Spinning));
            assert!(!executor.turn());
            executor.immediate(&Control::new(), |_| Ok(())).unwrap();
            submit(&executor, &ends, 5);
            executor.free();
            submit(&executor, &ends, 6);
            let last = ends.lock().unwrap()[5..].to_vec();
            assert_eq!(last, [(5, None), (6, Some(Status::Freed))]);
            assert!(executor.is_finished());
        }
    }

    /// Work that joins neighbours of the same number.
    struct Alike(u32);

    impl Work for Alike {
        type Output = usize;

        fn admits(&mut self, next: &Self) -> bool {
            self.0 == next.0
        }

        async fn run(
            calls: &mut [Share<'_, Self>],
            _team: &dyn ForkJoin,
            _arenas: &mut [Arena],
        ) -> Result<Vec<Result<usize>>> {
            Ok(calls.iter().map(|_| Ok(calls.len())).collect())
        }
    }

    #[test]
    fn neighbours_run_in_one_turn() {
        let executor = Executor::inline();
        let told: Arc<Mutex<Vec<usize>>> = Arc::default();
        for number in [1, 1, 1, 2, 1, 1] {
            let told = Arc::clone(&told);
            let done = move |together: Result<usize>| told.lock().unwrap().push(together.unwrap());
            executor.deferred_work(Arc::new(Control::new()), Alike(number), done);
        }
        for wanted in [&[3, 3, 3][..], &[3, 3, 3, 1], &[3, 3, 3, 1, 2, 2]] {
            assert!(executor.turn());
            assert_eq!(*told.lock().unwrap(), wanted);
        }
        assert!(!executor.turn());
    }

    /// Work of so many steps, which counts those behind it.
    struct Stepwise(u32, Arc<Mutex<u32>>);

    impl Work for Stepwise {
        type Output = ();

        fn admits(&mut self, _next: &Self) -> bool {
            false
        }

        async fn run(
            calls: &mut [Share<'_, Self>],
            _team: &dyn ForkJoin,
            arenas: &mut [Arena],
        ) -> Result<Vec<Result<()>>> {
            let Share { work, control } = &calls[0];
            for step in 0..work.0 {
                control.check()?;
                let [piece] = arenas[0].carve([1])?;
                // What one step leaves, the next one finds.
                assert!(step == 0 || piece[0] == step as f32);
                piece[0] = (step + 1) as f32;
                *work.1.lock().unwrap() += 1;
                pause().await;
            }
            Ok(vec![Ok(())])
        }
    }

    fn submit_stepwise(executor: &Executor, ends: &Ends, steps: u32) -> (Arc<Control>, Steps) {
        let (control, behind) = (Arc::new(Control::new()), Steps::default());
        let (ends, work) = (Arc::clone(ends), Stepwise(steps, Arc::clone(&behind)));
        executor.deferred_work(Arc::clone(&control), work, move |outcome| {
            let status = outcome.err().map(|error| error.status());
            ends.lock().unwrap().push((steps, status));
        });
        (control, behind)
    }

    type Steps = Arc<Mutex<u32>>;

    #[test]
    fn a_turn_computes_a_step_and_the_call_holds_between() {
        let (executor, ends) = (Executor::inline(), Ends::default());
        let (_, behind) = submit_stepwise(&executor, &ends, 3);
        submit(&executor, &ends, 9);
        for done in 1..=3 {
            assert!(executor.turn());
            assert_eq!(*behind.lock().unwrap(), done);
            assert_eq!((ends.lock().unwrap().len(), executor.outstanding()), (0, 2));
            let refused = executor.immediate(&Control::new(), |_| Ok(()));
            assert_eq!(refused.unwrap_err().status(), Status::Contended);
        }
        assert!(executor.turn() && executor.turn() && !executor.turn());
        assert_eq!(*ends.lock().unwrap(), [(3, None), (9, None)]);
        assert!(executor.scratch_bytes() > 0);
    }

    #[test]
    fn a_call_in_the_middle_of_its_steps_is_ended_by_whoever_cannot_wait() {
        let ended = |end: fn(&Executor, &Control), wanted: Option<Status>| {
            let (executor, ends) = (Executor::inline(), Ends::default());
            let (control, behind) = submit_stepwise(&executor, &ends, 3);
            assert!(executor.turn());
            end(&executor, &control);
            while executor.turn() {}
            drop(executor);
            assert_eq!(*ends.lock().unwrap(), [(3, wanted)]);
            *behind.lock().unwrap()
        };
        assert_eq!(ended(|executor, _| executor.free(), None), 3);
        assert_eq!(
            ended(|executor, _| executor.drain(Mood::Parked).unwrap(), None),
            3
        );
        let aborted = Some(Status::Aborted);
        assert_eq!(ended(|_, control| control.cancel(), aborted), 1);
        assert_eq!(ended(|executor, _| executor.abandon(), aborted), 1);
    }

    #[test]
    fn an_executor_forgotten_in_the_middle_of_a_call_aborts_it() {
        let (executor, ends) = (Executor::inline(), Ends::default());
        let (_, behind) = submit_stepwise(&executor, &ends, 3);
        assert!(executor.turn());
        drop(executor);
        assert_eq!(*ends.lock().unwrap(), [(3, Some(Status::Aborted))]);
        assert_eq!(*behind.lock().unwrap(), 1);
    }

    #[test]
    fn a_forgotten_executor_aborts_what_nobody_will_run() {
        let ends = Ends::default();
        let executor = Executor::inline();
        submit(&executor, &ends, 0);
        drop(executor);
        assert_eq!(*ends.lock().unwrap(), [(0, Some(Status::Aborted))]);
    }
}
