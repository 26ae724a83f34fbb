//! Neighbouring deferred calls computed as one run: which calls join, and that no call
//! can tell but by the time it takes.

#![cfg(feature = "native")]

mod common;

use std::panic;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::tiny::Tiny;
use proptest::prelude::*;
use uform::executor::{Arena, Control, Executor, Mood, Share, Work};
use uform::kernels::{ForkJoin, Precision};
use uform::model::{
    Embeddings, EncodeOptions, Model, ModelOptions, Texts, Truncate, files::Memory,
};
use uform::placement::RamOptions;
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

/// Keeps the executor busy until the sender is used or dropped.
fn blocked(executor: &Executor) -> Sender<()> {
    let (go, may_go) = mpsc::channel();
    let (started, has_started) = mpsc::channel();
    executor.deferred(
        Arc::new(Control::new()),
        move |_| {
            started.send(()).unwrap();
            _ = may_go.recv();
            Ok(())
        },
        |_: Result<()>| {},
    );
    has_started.recv_timeout(HANG).expect("the call to start");
    go
}

/// How work behaves when it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Succeeds,
    /// Fails by itself.
    Refused,
    /// Takes the whole run with it.
    Fatal,
    Panics,
}
use Manner::{Fatal, Panics, Refused, Succeeds};

/// Work that joins its own kind, up to [`MOST`] of it.
struct TestWork {
    number: usize,
    kind: u8,
    weight: usize,
    manner: Manner,
    /// What ran together, in order.
    runs: Arc<Mutex<Vec<Vec<usize>>>>,
}

const MOST: usize = 10;

impl Work for TestWork {
    type Output = usize;

    fn admits(&mut self, next: &Self) -> bool {
        let together = self.weight + next.weight;
        let admits = self.kind == next.kind && together <= MOST;
        if admits {
            self.weight = together;
        }
        admits
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        team: &dyn ForkJoin,
        arenas: &mut [Arena],
    ) -> Result<Vec<Result<usize>>> {
        assert_eq!(team.lanes(), arenas.len());
        let numbers = calls.iter().map(|call| call.work.number).collect();
        calls[0].work.runs.lock().unwrap().push(numbers);
        let outcome = |call: &Share<'_, Self>| match call.work.manner {
            Succeeds => Ok(Ok(call.work.number)),
            Refused => Ok(Err(Error::invalid(call.work.number.to_string()))),
            Fatal => Err(Error::new(Status::OutOfMemory, "all")),
            Panics => panic::resume_unwind(Box::new("a test")),
        };
        calls.iter().map(outcome).collect()
    }
}

/// What is queued behind a busy executor.
#[derive(Clone, Debug)]
enum Step {
    Work(u8, usize, Manner),
    /// A call that is not of any kind.
    Other,
    Drain,
    /// Gives up the call submitted so many calls before.
    Cancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let manner = prop_oneof![
        12 => Just(Succeeds), 2 => Just(Refused), 1 => Just(Fatal), 1 => Just(Panics),
    ];
    let step = prop_oneof![
        16 => (0..2u8, 0..5usize, manner).prop_map(|(kind, weight, manner)| Step::Work(kind, weight, manner)),
        1 => Just(Step::Other),
        1 => Just(Step::Drain),
        2 => (0..4usize).prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 0..60)
}

/// What the model knows of a call: how it behaves, and whether it was given up.
struct Expected {
    work: Option<(u8, usize, Manner)>,
    cancelled: bool,
    /// Drains that were submitted before it.
    drains: usize,
}

impl Expected {
    fn status(&self) -> Option<Status> {
        match self.work {
            _ if self.cancelled => Some(Status::Aborted),
            Some((_, _, Refused)) => Some(Status::InvalidArgument),
            Some((_, _, Fatal)) => Some(Status::OutOfMemory),
            Some((_, _, Panics)) => Some(Status::Internal),
            _ => None,
        }
    }
}

/// The runs that calls make one after the other, with those repeated that fail.
fn runs_of(calls: &[Expected]) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    // The run that is open: its kind, weight, drains, and numbers.
    let mut open: Option<(u8, usize, usize, Vec<usize>)> = None;
    let mut close = |open: Option<(u8, usize, usize, Vec<usize>)>| {
        let Some((.., numbers)) = open else { return };
        let fails = |number: &usize| matches!(calls[*number].work, Some((_, _, Fatal | Panics)));
        if numbers.len() > 1 && numbers.iter().any(fails) {
            runs.push(numbers.clone());
            runs.extend(numbers.into_iter().map(|number| vec![number]));
        } else {
            runs.push(numbers);
        }
    };
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| !call.cancelled) {
        let Some((kind, weight, _)) = call.work else {
            close(open.take());
            continue;
        };
        match &mut open {
            Some((of, sum, drains, numbers))
                if *of == kind && *sum + weight <= MOST && *drains == call.drains =>
            {
                *sum += weight;
                numbers.push(number);
            }
            _ => close(open.replace((kind, weight, call.drains, vec![number]))),
        }
    }
    close(open);
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn calls_end_as_if_they_had_run_one_by_one(steps in steps(), threads in 1..3usize) {
        let executor = with_threads(threads);
        let go = blocked(&executor);
        let runs = Arc::default();
        let (told, outcomes) = mpsc::channel();
        let mut calls: Vec<Expected> = Vec::new();
        let mut controls = Vec::new();
        let mut drains = Vec::new();
        for step in steps {
            let number = calls.len();
            let work = match step {
                Step::Drain => {
                    let told = told.clone();
                    // Tells how many calls were to be over by then.
                    executor.drain_deferred(Mood::Parked, move |_| told.send((None, Ok(number))).unwrap());
                    drains.push(number);
                    continue;
                }
                Step::Cancel(back) => {
                    if let Some(at) = number.checked_sub(1 + back) {
                        let first = !calls[at].cancelled;
                        let control: &Arc<Control> = &controls[at];
                        control.cancel();
                        calls[at].cancelled = true;
                        if first {
                            let (which, outcome): (_, Result<usize>) = outcomes.try_recv().unwrap();
                            prop_assert_eq!((which, outcome.unwrap_err().status()), (Some(at), Status::Aborted));
                        }
                    }
                    continue;
                }
                Step::Other => None,
                Step::Work(kind, weight, manner) => Some((kind, weight, manner)),
            };
            let control = Arc::new(Control::new());
            let told = told.clone();
            let done = move |outcome| told.send((Some(number), outcome)).unwrap();
            match work {
                Some((kind, weight, manner)) => {
                    let runs = Arc::clone(&runs);
                    let work = TestWork { number, kind, weight, manner, runs };
                    executor.deferred_work(Arc::clone(&control), work, done);
                }
                None => executor.deferred(Arc::clone(&control), move |_| Ok(number), done),
            }
            controls.push(control);
            calls.push(Expected { work, cancelled: false, drains: drains.len() });
        }
        prop_assert_eq!(executor.outstanding(), 1 + calls.iter().filter(|call| !call.cancelled).count());
        drop(go);
        let mut drains = drains.into_iter().peekable();
        for (number, call) in calls.iter().enumerate() {
            // A drain is over before the calls after it are told of.
            while let Some(before) = drains.next_if(|before| *before <= number) {
                let (which, outcome) = outcomes.recv_timeout(HANG).unwrap();
                prop_assert_eq!((which, outcome.unwrap()), (None, before));
            }
            if call.cancelled {
                continue;
            }
            let (which, outcome) = outcomes.recv_timeout(HANG).unwrap();
            prop_assert_eq!(which, Some(number));
            match outcome {
                Ok(found) => prop_assert_eq!((found, call.status()), (number, None)),
                Err(error) => {
                    prop_assert_eq!(Some(error.status()), call.status());
                    if error.status() == Status::InvalidArgument {
                        prop_assert_eq!(error.message(), number.to_string());
                    }
                }
            }
        }
        executor.free();
        prop_assert_eq!(&*runs.lock().unwrap(), &runs_of(&calls));
    }
}

/// Work that runs until it is given up, or, where it may, until it is let go.
struct Loop {
    let_go: Arc<Mutex<bool>>,
    started: Sender<usize>,
}

impl Work for Loop {
    type Output = ();

    fn admits(&mut self, _next: &Self) -> bool {
        true
    }

    async fn run(
        calls: &mut [Share<'_, Self>],
        _team: &dyn ForkJoin,
        _arenas: &mut [Arena],
    ) -> Result<Vec<Result<()>>> {
        calls[0].work.started.send(calls.len()).unwrap();
        while !*calls[0].work.let_go.lock().unwrap() {
            if calls.iter().all(|call| call.control.is_cancelled()) {
                return Err(Error::aborted());
            }
            thread::yield_now();
        }
        Ok(calls.iter().map(|_| Ok(())).collect())
    }
}

/// Three looping calls in one run that has started.
struct Running {
    executor: Executor,
    let_go: Arc<Mutex<bool>>,
    controls: Vec<Arc<Control>>,
    outcomes: Vec<Receiver<Result<()>>>,
}

impl Running {
    fn new() -> Running {
        let (executor, let_go) = (with_threads(2), Arc::default());
        let go = blocked(&executor);
        let (started, has_started) = mpsc::channel();
        let (mut controls, mut outcomes) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let control = Arc::new(Control::new());
            let (done, outcome) = mpsc::channel();
            let work = Loop {
                let_go: Arc::clone(&let_go),
                started: started.clone(),
            };
            executor.deferred_work(Arc::clone(&control), work, move |result| {
                done.send(result).unwrap();
            });
            controls.push(control);
            outcomes.push(outcome);
        }
        drop(go);
        assert_eq!(has_started.recv_timeout(HANG).unwrap(), 3);
        assert_eq!(executor.outstanding(), 3);
        Running {
            executor,
            let_go,
            controls,
            outcomes,
        }
    }

    fn statuses(&self) -> Vec<Option<Status>> {
        let told = self.outcomes.iter();
        told.map(|outcome| outcome.recv_timeout(HANG).unwrap().err())
            .map(|error| error.map(|error| error.status()))
            .collect()
    }
}

#[test]
fn a_call_given_up_in_a_run_ends_aborted_and_its_companions_do_not() {
    const ABORTED: Option<Status> = Some(Status::Aborted);
    for (given_up, wanted) in [
        (&[1][..], [None, ABORTED, None]),
        (&[0, 2], [ABORTED, None, ABORTED]),
        (&[0, 1, 2], [ABORTED; 3]),
    ] {
        let run = Running::new();
        given_up
            .iter()
            .for_each(|call| run.controls[*call].cancel());
        *run.let_go.lock().unwrap() = given_up.len() < 3;
        assert_eq!(run.statuses(), wanted);
        run.executor.free();
    }
}

#[test]
fn abandoning_stops_a_whole_run() {
    let run = Running::new();
    run.executor.abandon();
    assert_eq!(run.statuses(), [Some(Status::Aborted); 3]);
}

#[test]
fn a_call_can_be_given_up_until_it_is_told() {
    let executor = with_threads(1);
    let go = blocked(&executor);
    let second = Arc::new(Control::new());
    let (done, outcomes) = mpsc::channel();
    let work = |number| TestWork {
        number,
        kind: 0,
        weight: 1,
        manner: Succeeds,
        runs: Arc::default(),
    };
    let (gives_up, tell) = (Arc::clone(&second), done.clone());
    executor.deferred_work(Arc::new(Control::new()), work(0), move |outcome| {
        gives_up.cancel();
        tell.send(outcome).unwrap();
    });
    executor.deferred_work(second, work(1), move |outcome| done.send(outcome).unwrap());
    drop(go);
    assert_eq!(outcomes.recv_timeout(HANG).unwrap().unwrap(), 0);
    let second = outcomes.recv_timeout(HANG).unwrap();
    assert_eq!(second.unwrap_err().status(), Status::Aborted);
}

fn tiny_model(change: impl FnOnce(&mut Tiny)) -> Model {
    let mut tiny = Tiny::new();
    change(&mut tiny);
    let source = Memory::new(tiny.files);
    // How much text may run together is the precision's to say.
    let options = ModelOptions {
        precision: Some(Precision::F32),
        ..ModelOptions::default()
    };
    Model::load_from(&source, &options, &Executor::inline()).unwrap()
}

/// A call on one of two models.
#[derive(Clone)]
struct Ask {
    model: usize,
    texts: Vec<String>,
    options: EncodeOptions,
}

impl Ask {
    fn new(text: &str) -> Ask {
        Ask {
            model: 0,
            texts: vec![text.to_owned()],
            options: EncodeOptions::default(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut EncodeOptions)) -> Ask {
        change(&mut self.options);
        self
    }
}

type Told = (usize, Result<Embeddings>, Vec<(u64, u64)>);

/// Queues the calls behind a busy executor, and lets go. Each outcome comes with
/// the progress of all calls when it was told.
fn ask(
    executor: &Executor,
    models: &[Model],
    asks: &[Ask],
    between: impl Fn(usize, &[Arc<Control>]),
) -> Vec<Told> {
    let go = blocked(executor);
    let controls: Arc<Vec<_>> = Arc::new(asks.iter().map(|_| Arc::new(Control::new())).collect());
    let (told, outcomes) = mpsc::channel();
    for (number, ask) in asks.iter().enumerate() {
        let (told, all) = (told.clone(), Arc::clone(&controls));
        models[ask.model].encode_text_deferred(
            executor,
            Texts::from_iter(&ask.texts),
            ask.options.clone(),
            Arc::clone(&controls[number]),
            move |outcome| {
                let progress = all.iter().map(|control| control.progress()).collect();
                told.send((number, outcome, progress)).unwrap();
            },
        );
        between(number, &controls);
    }
    drop((go, told));
    let told: Vec<_> = asks
        .iter()
        .map(|_| outcomes.recv_timeout(HANG).unwrap())
        .collect();
    assert!(
        outcomes.recv_timeout(HANG).is_err(),
        "an outcome was told twice"
    );
    told
}

/// Two calls, what is submitted between them, and whether they are one run.
type Neighbours = (&'static str, Ask, fn(&Executor), Ask, bool);

#[test]
fn equal_short_calls_join_and_no_others() {
    let models = [tiny_model(|_| {}), tiny_model(|_| {})];
    let plain = || Ask::new("a red bicycle");
    let other_model = Ask {
        model: 1,
        ..plain()
    };
    let empty = Ask {
        texts: vec![],
        ..plain()
    };
    let long = |bytes: usize| Ask::new(&"a".repeat(bytes));
    let prompted =
        |bytes: usize| plain().with(|options| options.prompt_text = Some("a".repeat(bytes)));
    let nothing = |_: &Executor| {};
    let call = |executor: &Executor| {
        executor.deferred(Arc::new(Control::new()), |_| Ok(()), |_: Result<()>| {});
    };
    let drain = |executor: &Executor| executor.drain_deferred(Mood::Parked, |_| {});
    let table: &[Neighbours] = &[
        ("equal", plain(), nothing, plain(), true),
        ("empty", empty.clone(), nothing, plain(), true),
        ("empty second", plain(), nothing, empty, true),
        ("short", long(900), nothing, long(100), true),
        ("too long", long(900), nothing, long(200), false),
        ("far too long", long(5000), nothing, plain(), false),
        ("a prompt", prompted(450), nothing, prompted(450), true),
        (
            "a long prompt",
            prompted(600),
            nothing,
            prompted(600),
            false,
        ),
        ("another model", plain(), nothing, other_model, false),
        (
            "other options",
            plain(),
            nothing,
            plain().with(|options| options.normalize = Some(false)),
            false,
        ),
        (
            "another length",
            plain().with(|options| options.dimensions = Some(4)),
            nothing,
            plain().with(|options| options.dimensions = Some(5)),
            false,
        ),
        ("a call between", plain(), call, plain(), false),
        ("a drain between", plain(), drain, plain(), false),
    ];
    let executor = with_threads(1);
    for (name, first, between, second, joins) in table {
        let told = ask(
            &executor,
            &models,
            &[first.clone(), second.clone()],
            |number, _| {
                if number == 0 {
                    between(&executor);
                }
            },
        );
        let (number, outcome, progress) = &told[0];
        assert_eq!(
            (*number, outcome.is_ok(), told[1].1.is_ok()),
            (0, true, true),
            "{name}"
        );
        let texts = |ask: &Ask| ask.texts.len() as u64;
        assert_eq!(progress[0], (texts(first), texts(first)), "{name}");
        // It was computed by then, if it was in the same run.
        match texts(second) {
            0 => assert_eq!(progress[1], (0, 0), "{name}"),
            texts if *joins => assert_eq!(progress[1], (texts, texts), "{name}"),
            _ => assert_eq!(progress[1], (0, 0), "{name}"),
        }
    }
}

#[test]
fn two_hundred_calls_get_what_each_would_get_alone() {
    let models = [tiny_model(|_| {}), tiny_model(|tiny| tiny.add_dense(6))];
    let words = [
        "red", "bicycle", "green", "tree", "the", "sea", "is", "blue",
    ];
    let text = |number: usize| {
        let length = 1 + number * 7 % 25;
        let words = (0..length).map(|word| words[(word * 3 + number * 5) % 8]);
        words.collect::<Vec<_>>().join(" ")
    };
    let asks: Vec<_> = (0..200)
        .map(|number| {
            let mut ask = Ask::new(&text(number));
            match number % 41 {
                // Runs of neighbours with something else between them.
                7 => ask.model = 1,
                13 => ask.options.normalize = Some(false),
                19 => ask.texts.clear(),
                23 => ask.texts = (0..400).map(text).collect(),
                29..33 => ask.options.truncate = Truncate::Refuse,
                37 => ask.texts.push(text(number + 1)),
                38 => ask.options.prompt = Some("no such prompt".into()),
                _ => {}
            }
            ask
        })
        .collect();
    let cancelled = |number: usize| number % 17 == 3;
    for threads in [1, 2, 3] {
        let executor = with_threads(threads);
        let told = ask(&executor, &models, &asks, |number, controls| {
            if cancelled(number) {
                controls[number].cancel();
            }
        });
        let kept: Vec<_> = told
            .iter()
            .map(|(number, ..)| *number)
            .filter(|number| !cancelled(*number))
            .collect();
        assert!(kept.is_sorted(), "told in order of submission");
        let mut together = 0;
        let mut refused = 0;
        for (number, outcome, progress) in told {
            let ask = &asks[number];
            let alone = models[ask.model].encode_text(
                &Executor::inline(),
                &Texts::from_iter(&ask.texts),
                &ask.options,
            );
            together += usize::from(progress.get(number + 1).is_some_and(|next| next.0 > 0));
            match (outcome, alone) {
                (Err(error), _) if cancelled(number) => {
                    assert_eq!(error.status(), Status::Aborted, "call {number}");
                }
                (Ok(found), Ok(alone)) => {
                    // Equal numbers that are finite, and not zeros of either sign, are equal bits.
                    assert!(found == alone, "call {number}");
                    let texts = ask.texts.len() as u64;
                    assert_eq!(progress[number], (texts, texts), "call {number}");
                }
                (Err(error), Err(alone)) => {
                    refused += 1;
                    assert_eq!(error.status(), alone.status(), "call {number}");
                    assert_eq!(error.message(), alone.message(), "call {number}");
                }
                (found, alone) => panic!("call {number}: {found:?} instead of {alone:?}"),
            }
        }
        assert!(
            together > 100 && refused > 5,
            "{together} together, {refused} refused"
        );
    }
}

#[test]
fn a_model_is_free_to_go_when_the_first_of_a_run_is_told() {
    let model = tiny_model(|_| {});
    let executor = with_threads(2);
    let go = blocked(&executor);
    let (done, outcome) = mpsc::channel();
    let last = Arc::new(Mutex::new(Some(model.clone())));
    for _ in 0..3 {
        let (done, last) = (done.clone(), Arc::clone(&last));
        model.encode_text_deferred(
            &executor,
            Texts::from_iter(["the sea"]),
            EncodeOptions::default(),
            Arc::new(Control::new()),
            move |found| {
                // Waits for calls in flight, which must not be this thread's own to end.
                if let Some(model) = last.lock().unwrap().take() {
                    model.free();
                }
                done.send(found).unwrap();
            },
        );
    }
    drop(go);
    for _ in 0..3 {
        assert_eq!(outcome.recv_timeout(HANG).unwrap().unwrap().rows, 1);
    }
}
