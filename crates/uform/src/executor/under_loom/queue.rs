//! Calls from several threads, and the conductor that runs them.

use std::cell::RefCell;
use std::panic;
use std::sync::Arc;

use super::{Preemptions, executor, explore};
use crate::executor::sync::{Mutex, lock, thread};
use crate::executor::{Arena, Control, Executor, Mood, Share, Work};
use crate::kernels::ForkJoin;
use crate::{Error, Result, Status};

/// Three threads or more at a lock each few steps: all orders would be too many.
const BOUND: Preemptions = Preemptions {
    short: Some(2),
    full: Some(3),
};

/// What happened, in order. Calls go by names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Submitted(&'static str),
    Begun(&'static str),
    Ended(&'static str),
    Told(&'static str, Option<Status>),
    /// A mark of its user's.
    Mark(&'static str),
}
use Event::{Begun, Ended, Mark, Submitted, Told};

/// An executor, and the diary of what it does. Its lock is a step of the model: loom reorders only
/// what touches one thing, and so explores in which order entries come.
#[derive(Clone)]
struct Scene {
    executor: Executor,
    diary: Arc<Mutex<Vec<Event>>>,
}

impl Scene {
    fn new(limit: u64) -> Self {
        Scene {
            executor: executor(1, limit),
            diary: Arc::default(),
        }
    }

    fn note(&self, event: Event) {
        lock(&self.diary).push(event);
    }

    fn diary(&self) -> Vec<Event> {
        lock(&self.diary).clone()
    }

    /// What a call's closure does.
    fn work(&self, call: &'static str) -> impl FnOnce() + Send + 'static {
        let diary = Arc::clone(&self.diary);
        move || {
            lock(&diary).push(Begun(call));
            lock(&diary).push(Ended(call));
        }
    }

    fn deferred(&self, call: &'static str) -> Arc<Control> {
        let control = Arc::new(Control::new());
        self.deferred_with(call, &control, Ok(()));
        control
    }

    fn deferred_with(&self, call: &'static str, control: &Arc<Control>, outcome: Result<()>) {
        let work = self.work(call);
        let work = move |_: &mut crate::executor::Hold<'_>| {
            work();
            outcome
        };
        self.executor
            .deferred(Arc::clone(control), work, self.told(call));
        self.note(Submitted(call));
    }

    fn told(&self, call: &'static str) -> impl FnOnce(Result<()>) + Send + 'static {
        let diary = Arc::clone(&self.diary);
        move |outcome| {
            let status = outcome.err().map(|error| error.status());
            lock(&diary).push(Told(call, status));
        }
    }

    fn immediate(&self, call: &'static str) {
        let work = self.work(call);
        let outcome = self.executor.immediate(&Control::new(), |_| {
            work();
            Ok(())
        });
        self.note(Told(call, outcome.err().map(|error| error.status())));
    }

    /// Runs `act` on a thread of its own.
    fn beside(&self, act: impl FnOnce(&Scene) + 'static) -> loom::thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || act(&scene))
    }

    /// Frees, and checks what must hold of every story: each call is told once, after it ended
    /// if it began, and no two overlap.
    fn end(self, calls: &[&'static str]) -> Vec<Event> {
        self.executor.free();
        assert!(self.executor.is_finished());
        let diary = self.diary();
        let mut holding = None;
        for event in &diary {
            match event {
                Begun(call) => assert_eq!(holding.replace(*call), None, "{diary:?}"),
                Ended(call) => assert_eq!(holding.take(), Some(*call), "{diary:?}"),
                _ => {}
            }
        }
        for call in calls {
            let told = |event: &&Event| matches!(event, Told(other, _) if other == call);
            assert_eq!(diary.iter().filter(told).count(), 1, "{call}: {diary:?}");
            if let Some(begun) = at(&diary, Begun(call)) {
                let ended = at(&diary, Ended(call)).expect("it ended");
                let told = diary.iter().position(|event| told(&event));
                assert!(Some(begun) < Some(ended) && Some(ended) < told, "{diary:?}");
            }
        }
        diary
    }
}

/// Where in the diary something is.
fn at(diary: &[Event], event: Event) -> Option<usize> {
    diary.iter().position(|other| *other == event)
}

fn outcome(diary: &[Event], call: &str) -> Option<Status> {
    let told = diary.iter().find_map(|event| match event {
        Told(other, status) if *other == call => Some(*status),
        _ => None,
    });
    told.expect("an outcome")
}

thread_local! {
    /// What came of calls in any order of the model. All of a model's threads are one of the system's.
    static SEEN: RefCell<Vec<(&'static str, Option<Status>)>> = const { RefCell::new(Vec::new()) };
}

/// That each of these came of a call in some order: a model that never gets there checks nothing.
fn reached(outcomes: &[(&'static str, Option<Status>)]) {
    let seen = SEEN.take();
    for outcome in outcomes {
        assert!(seen.contains(outcome), "{outcome:?} is not among {seen:?}");
    }
}

/// That what came of a call is one of these.
fn came_of(diary: &[Event], call: &'static str, allowed: &[Option<Status>]) {
    let outcome = outcome(diary, call);
    SEEN.with_borrow_mut(|seen| {
        if !seen.contains(&(call, outcome)) {
            seen.push((call, outcome));
        }
    });
    assert!(
        allowed.contains(&outcome),
        "{call}: {outcome:?} in {diary:?}"
    );
}

const FINE: Option<Status> = None;
const CONTENDED: Option<Status> = Some(Status::Contended);
const ABORTED: Option<Status> = Some(Status::Aborted);
const FREED: Option<Status> = Some(Status::Freed);
const LIMIT: Option<Status> = Some(Status::DeferredLimit);

#[test]
fn an_immediate_call_during_deferred_ones_runs_alone_or_is_contended() {
    explore("immediate during deferred", BOUND, || {
        let scene = Scene::new(9);
        scene.deferred("a");
        scene.immediate("now");
        scene.deferred("b");
        let diary = scene.end(&["a", "now", "b"]);
        came_of(&diary, "now", &[FINE, CONTENDED]);
        came_of(&diary, "a", &[FINE]);
        came_of(&diary, "b", &[FINE]);
    });
    reached(&[("now", FINE), ("now", CONTENDED)]);
}

#[test]
fn a_deferred_call_from_elsewhere_during_an_immediate_one_is_contended_or_runs_after() {
    explore("deferred during immediate", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("a");
        });
        scene.immediate("now");
        other.join().unwrap();
        let diary = scene.end(&["a", "now"]);
        came_of(&diary, "now", &[FINE, CONTENDED]);
        came_of(&diary, "a", &[FINE, CONTENDED]);
        assert!(
            outcome(&diary, "a") == FINE || outcome(&diary, "now") == FINE,
            "they refused each other: {diary:?}"
        );
    });
    reached(&[
        ("now", CONTENDED),
        ("a", CONTENDED),
        ("now", FINE),
        ("a", FINE),
    ]);
}

#[test]
fn calls_run_in_the_order_of_their_submission() {
    explore("two submitters", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("c");
        });
        scene.deferred("a");
        scene.deferred("b");
        other.join().unwrap();
        let diary = scene.end(&["a", "b", "c"]);
        assert!(at(&diary, Begun("a")) < at(&diary, Begun("b")), "{diary:?}");
        for call in ["a", "b", "c"] {
            came_of(&diary, call, &[FINE]);
        }
        // Whose submission had returned before the other's began.
        if at(&diary, Submitted("c")) < at(&diary, Submitted("a")) {
            assert!(at(&diary, Begun("c")) < at(&diary, Begun("b")), "{diary:?}");
        }
    });
}

#[test]
fn a_drain_returns_after_what_was_submitted_before_it() {
    explore("drain during submissions", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("b");
        });
        scene.deferred("a");
        let before = scene.diary();
        scene.executor.drain(Mood::Parked).unwrap();
        scene.note(Mark("drained"));
        other.join().unwrap();
        let diary = scene.end(&["a", "b"]);
        for call in ["a", "b"] {
            if before.contains(&Submitted(call)) {
                let told = at(&diary, Told(call, FINE)).expect("it was told");
                assert!(Some(told) < at(&diary, Mark("drained")), "{diary:?}");
            }
        }
    });
}

#[test]
fn a_drain_that_does_not_block_is_told_once_and_in_time() {
    explore("deferred drain during submissions", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("b");
        });
        scene.deferred("a");
        let told = scene.told("drain");
        scene.executor.drain_deferred(Mood::Parked, told);
        other.join().unwrap();
        let diary = scene.end(&["a", "b", "drain"]);
        came_of(&diary, "drain", &[FINE]);
        let drained = at(&diary, Told("drain", FINE));
        assert!(at(&diary, Told("a", FINE)) < drained, "{diary:?}");
    });
}

#[test]
fn moods_change_while_the_conductor_works() {
    explore("drain into another mood", BOUND, || {
        let scene = Scene::new(9);
        scene.deferred("a");
        scene.executor.drain(Mood::Spinning).unwrap();
        assert_eq!(scene.executor.mood(), Mood::Spinning);
        scene.deferred("b");
        scene.executor.drain(Mood::Parked).unwrap();
        assert_eq!(scene.executor.mood(), Mood::Parked);
        scene.end(&["a", "b"]);
    });
}

#[test]
fn free_leaves_nothing_of_what_it_raced_with() {
    explore("free during submissions", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("a");
            scene.deferred("b");
        });
        scene.executor.free();
        scene.note(Mark("freed"));
        other.join().unwrap();
        let diary = scene.end(&["a", "b"]);
        came_of(&diary, "a", &[FINE, FREED]);
        came_of(&diary, "b", &[FINE, FREED]);
        assert!(
            outcome(&diary, "a") == FINE || outcome(&diary, "b") == FREED,
            "{diary:?}"
        );
        for event in &diary[at(&diary, Mark("freed")).unwrap()..] {
            assert!(
                !matches!(event, Begun(_) | Ended(_) | Told(_, FINE)),
                "{diary:?}"
            );
        }
    });
    reached(&[("a", FREED), ("a", FINE), ("b", FREED), ("b", FINE)]);
}

#[test]
fn two_that_free_both_wait_for_the_end() {
    explore("free twice at once", BOUND, || {
        let scene = Scene::new(9);
        scene.deferred("a");
        let other = scene.beside(|scene| {
            scene.executor.free();
            assert!(scene.executor.is_finished());
            assert!(at(&scene.diary(), Told("a", FINE)).is_some());
        });
        scene.executor.free();
        assert!(at(&scene.diary(), Told("a", FINE)).is_some());
        other.join().unwrap();
        scene.end(&["a"]);
    });
}

#[test]
fn free_waits_for_an_immediate_call_elsewhere() {
    explore("free during an immediate call", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| scene.immediate("now"));
        scene.executor.free();
        scene.note(Mark("freed"));
        other.join().unwrap();
        let diary = scene.end(&["now"]);
        came_of(&diary, "now", &[FINE, FREED]);
        assert!(
            at(&diary, Ended("now")) < at(&diary, Mark("freed")),
            "{diary:?}"
        );
    });
    reached(&[("now", FINE), ("now", FREED)]);
}

/// That a call which was cancelled, as the mark tells, before it had ended was given up. It may
/// have been taken from the queue by then, and begin all the same.
fn heeded(diary: &[Event], call: &'static str) {
    let cancelled = at(diary, Mark("cancelled")).expect("the mark");
    match at(diary, Ended(call)) {
        Some(ended) if ended < cancelled => came_of(diary, call, &[FINE, ABORTED]),
        _ => came_of(diary, call, &[ABORTED]),
    }
}

#[test]
fn cancelling_takes_a_call_out_or_asks_it_to_stop() {
    explore("cancel at the start", BOUND, || {
        let scene = Scene::new(9);
        scene.deferred("a");
        let control = scene.deferred("b");
        let other = scene.beside(move |scene| {
            control.cancel();
            scene.note(Mark("cancelled"));
        });
        scene.deferred("c");
        other.join().unwrap();
        let diary = scene.end(&["a", "b", "c"]);
        came_of(&diary, "a", &[FINE]);
        came_of(&diary, "c", &[FINE]);
        heeded(&diary, "b");
    });
    reached(&[("b", FINE), ("b", ABORTED)]);
}

#[test]
fn cancelling_before_or_while_it_is_submitted_is_not_overlooked() {
    explore("cancel during the submission", BOUND, || {
        let scene = Scene::new(9);
        let control = Arc::new(Control::new());
        let other = scene.beside({
            let control = Arc::clone(&control);
            move |scene| {
                control.cancel();
                scene.note(Mark("cancelled"));
            }
        });
        scene.deferred_with("a", &control, Ok(()));
        other.join().unwrap();
        let diary = scene.end(&["a"]);
        heeded(&diary, "a");
    });
    reached(&[("a", FINE), ("a", ABORTED)]);
}

#[test]
fn beyond_the_limit_is_refused_and_nothing_else_is() {
    explore("two submitters, a limit of one", BOUND, || {
        let scene = Scene::new(1);
        let other = scene.beside(|scene| {
            scene.deferred("b");
        });
        scene.deferred("a");
        other.join().unwrap();
        let diary = scene.end(&["a", "b"]);
        came_of(&diary, "a", &[FINE, LIMIT]);
        came_of(&diary, "b", &[FINE, LIMIT]);
        assert!(
            outcome(&diary, "a") == FINE || outcome(&diary, "b") == FINE,
            "{diary:?}"
        );
    });
    reached(&[("a", LIMIT), ("a", FINE), ("b", LIMIT), ("b", FINE)]);
}

#[test]
fn an_error_and_a_panic_end_their_own_call_alone() {
    explore("failures in the queue", BOUND, || {
        let scene = Scene::new(9);
        let control = Arc::new(Control::new());
        scene.deferred_with("fails", &control, Err(Error::corrupt("on purpose")));
        scene.executor.deferred(
            Arc::new(Control::new()),
            |_| panic::resume_unwind(Box::new("on purpose")),
            scene.told("panics"),
        );
        scene.executor.deferred(
            Arc::new(Control::new()),
            |_| Ok(()),
            |_: Result<()>| panic::resume_unwind(Box::new("by who is told")),
        );
        scene.deferred("fine");
        let diary = scene.end(&["fails", "panics", "fine"]);
        came_of(&diary, "fails", &[Some(Status::CorruptModel)]);
        came_of(&diary, "panics", &[Some(Status::Internal)]);
        came_of(&diary, "fine", &[FINE]);
    });
}

#[test]
fn abandoning_answers_everything_it_races_with() {
    explore("abandon during submissions", BOUND, || {
        let scene = Scene::new(9);
        let other = scene.beside(|scene| {
            scene.deferred("a");
            scene.deferred("b");
        });
        scene.executor.abandon();
        assert!(scene.executor.is_finished());
        other.join().unwrap();
        let diary = scene.end(&["a", "b"]);
        came_of(&diary, "a", &[FINE, ABORTED, FREED]);
        came_of(&diary, "b", &[FINE, ABORTED, FREED]);
    });
    reached(&[("a", FINE), ("a", ABORTED), ("a", FREED), ("b", ABORTED)]);
}

#[test]
fn abandoning_and_cancelling_one_call_tell_it_once() {
    explore("abandon and cancel", BOUND, || {
        let scene = Scene::new(9);
        let control = scene.deferred("a");
        let other = scene.beside(move |_| control.cancel());
        scene.executor.abandon();
        other.join().unwrap();
        let diary = scene.end(&["a"]);
        came_of(&diary, "a", &[FINE, ABORTED]);
    });
    reached(&[("a", FINE), ("a", ABORTED)]);
}

#[test]
fn a_forgotten_executor_finishes_what_it_accepted() {
    explore("the last handle is dropped", BOUND, || {
        let scene = Scene::new(9);
        scene.deferred("a");
        let core = Arc::clone(scene.executor.core());
        let diary = Arc::clone(&scene.diary);
        drop(scene);
        core.threads.join();
        let diary = lock(&diary).clone();
        came_of(&diary, "a", &[FINE]);
        assert!(core.is_over());
    });
}

#[test]
fn who_is_told_may_submit_and_free() {
    explore("a call from a callback", BOUND, || {
        let scene = Scene::new(1);
        let again = scene.clone();
        let told = scene.told("first");
        scene.executor.deferred(
            Arc::new(Control::new()),
            |_| Ok(()),
            move |outcome: Result<()>| {
                told(outcome);
                again.deferred("second");
                again.executor.free();
                again.deferred("third");
            },
        );
        let other = scene.beside(|scene| {
            // Its turn comes before or after the callback's calls.
            _ = scene.executor.drain(Mood::Parked);
        });
        other.join().unwrap();
        // The callback is over when its call is: drain, or else free, has waited for it.
        let diary = scene.end(&["first", "second", "third"]);
        came_of(&diary, "first", &[FINE]);
        came_of(&diary, "second", &[FINE]);
        came_of(&diary, "third", &[FREED]);
    });
}

/// Work that joins any neighbour, and tells how many were together.
struct Sociable;

impl Work for Sociable {
    type Output = usize;

    fn admits(&mut self, _next: &Self) -> bool {
        true
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        _team: &dyn ForkJoin,
        _arenas: &mut [Arena],
    ) -> Result<Vec<Result<usize>>> {
        thread::yield_now();
        Ok(calls.iter().map(|_| Ok(calls.len())).collect())
    }
}

#[test]
fn neighbours_in_one_run_are_cancelled_and_answered_each_alone() {
    explore("cancel one of a run", BOUND, || {
        let scene = Scene::new(9);
        let mut controls = Vec::new();
        for call in ["a", "b", "c"] {
            let control = Arc::new(Control::new());
            let told = scene.told(call);
            scene
                .executor
                .deferred_work(Arc::clone(&control), Sociable, move |outcome| {
                    told(outcome.map(|together| assert!((1..=3).contains(&together))));
                });
            controls.push(control);
        }
        let other = scene.beside(move |_| controls[1].cancel());
        scene.executor.drain(Mood::Parked).unwrap();
        let diary = scene.diary();
        other.join().unwrap();
        came_of(&diary, "a", &[FINE]);
        came_of(&diary, "c", &[FINE]);
        assert!(at(&diary, Told("a", FINE)) < at(&diary, Told("c", FINE)));
        let diary = scene.end(&["a", "b", "c"]);
        came_of(&diary, "b", &[FINE, ABORTED]);
    });
    reached(&[("b", FINE), ("b", ABORTED)]);
}

#[test]
fn a_spawned_team_computes_and_ends() {
    let bound = Preemptions {
        short: Some(1),
        full: Some(2),
    };
    explore("two lanes from start to end", bound, || {
        let executor = executor(2, 9);
        executor.core().threads.start(executor.core()).unwrap();
        let sums = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&sums);
        let sum = |hold: &mut crate::executor::Hold<'_>| {
            let sum = Mutex::new(0);
            hold.team.run(2, &|_, task| *lock(&sum) += task + 1);
            Ok(sum.into_inner().unwrap())
        };
        executor.deferred(Arc::new(Control::new()), sum, move |outcome| {
            lock(&told).push(outcome.unwrap());
        });
        executor.free();
        assert!(executor.is_finished());
        assert_eq!(*lock(&sums), [3]);
    });
}
