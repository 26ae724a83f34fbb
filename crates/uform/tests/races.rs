//! Many threads do everything at once to one executor, and an oracle says what may have come of it.
//!
//! The models beside the executor go through every order of a few steps; here real threads go
//! through a few orders of very many. The variable `UFORM_SOAK` makes it minutes.

#![cfg(feature = "native")]

use std::env;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use uform::executor::{Control, Executor, Hold, Mood};
use uform::placement::{DEFAULT_DEFERRED_LIMIT, RamOptions};
use uform::{Error, Result, Status};

/// Numbers without rhyme or reason: xorshift64.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Counts up at everything that happens, so that what came first can be told.
#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    /// A moment after all before it.
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// What a call is made to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Fine,
    Fails,
    Panics,
    /// Goes on until it is cancelled.
    Endless,
}

/// What became of one deferred call; moments, and zero for never.
struct Record {
    kind: Kind,
    thread: usize,
    control: Arc<Control>,
    submitted: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    cancelled: AtomicU64,
    told: AtomicU64,
    times_told: AtomicUsize,
    outcome: Mutex<Option<Status>>,
}

/// One executor, and everything that is known about it.
struct Round {
    executor: Executor,
    clock: Clock,
    /// In the order of submission, for each thread.
    records: Mutex<Vec<Arc<Record>>>,
    busy: AtomicBool,
    /// When its end was first asked for, and whether by `abandon`.
    closing: AtomicU64,
    abandoned: AtomicBool,
    limit: u64,
}

fn read(moment: &AtomicU64) -> u64 {
    moment.load(Ordering::SeqCst)
}

impl Round {
    /// What every call does while it holds: no other call may.
    fn work(&self, kind: Kind, hold: &mut Hold<'_>) -> Result<()> {
        assert!(
            !self.busy.swap(true, Ordering::SeqCst),
            "two calls hold at once"
        );
        let done = AtomicUsize::new(0);
        hold.team.run(5, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 5);
        while kind == Kind::Endless && !hold.control.is_cancelled() {
            thread::yield_now();
        }
        self.busy.store(false, Ordering::SeqCst);
        match kind {
            Kind::Fine => Ok(()),
            Kind::Fails => Err(Error::corrupt("on purpose")),
            Kind::Panics => panic::resume_unwind(Box::new("on purpose")),
            Kind::Endless => hold.control.check(),
        }
    }

    fn deferred(self: &Arc<Self>, kind: Kind, thread: usize) -> Arc<Record> {
        let record = Arc::new(Record {
            kind,
            thread,
            control: Arc::new(Control::new()),
            submitted: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            told: AtomicU64::new(0),
            times_told: AtomicUsize::new(0),
            outcome: Mutex::new(None),
        });
        self.records.lock().unwrap().push(Arc::clone(&record));
        let (running, tells) = (Arc::clone(&record), Arc::clone(&record));
        let (round, later) = (Arc::clone(self), Arc::clone(self));
        self.executor.deferred(
            Arc::clone(&record.control),
            move |hold| {
                running.begun.store(round.clock.now(), Ordering::SeqCst);
                let outcome = round.work(running.kind, hold);
                running.ended.store(round.clock.now(), Ordering::SeqCst);
                outcome
            },
            move |outcome: Result<()>| {
                *tells.outcome.lock().unwrap() = outcome.err().map(|error| error.status());
                tells.times_told.fetch_add(1, Ordering::SeqCst);
                tells.told.store(later.clock.now(), Ordering::SeqCst);
            },
        );
        record.submitted.store(self.clock.now(), Ordering::SeqCst);
        record
    }

    fn cancel(&self, record: &Record) {
        record.control.cancel();
        let now = self.clock.now();
        _ = record
            .cancelled
            .compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn immediate(&self) {
        let outcome = self
            .executor
            .immediate(&Control::new(), |hold| self.work(Kind::Fine, hold));
        match outcome.map_err(|error| error.status()) {
            Ok(()) | Err(Status::Contended) => {}
            // `abandon` cancels the call that holds; its work here does not check.
            Err(Status::Freed) => assert_ne!(read(&self.closing), 0),
            other => panic!("an immediate call ended with {other:?}"),
        }
    }

    /// Gives up what would go on for ever, and waits for everything submitted so far.
    fn drain(&self, mood: Mood) {
        let before = self.submitted();
        for record in before.iter().filter(|record| record.kind == Kind::Endless) {
            self.cancel(record);
        }
        match self.executor.drain(mood).map_err(|error| error.status()) {
            Ok(()) => before
                .iter()
                .for_each(|record| assert_ne!(read(&record.told), 0, "drained, and not told")),
            Err(status) => {
                assert_eq!(status, Status::Freed);
                assert_ne!(read(&self.closing), 0);
            }
        }
    }

    fn submitted(&self) -> Vec<Arc<Record>> {
        let records = self.records.lock().unwrap();
        let submitted = records.iter().filter(|record| read(&record.submitted) != 0);
        submitted.cloned().collect()
    }

    /// Ends the executor in one of its ways.
    fn end(&self, dice: &mut Dice) {
        let before = self.submitted();
        let way = dice.throw(3);
        self.abandoned.fetch_or(way == 0, Ordering::SeqCst);
        _ = self
            .closing
            .compare_exchange(0, self.clock.now(), Ordering::SeqCst, Ordering::SeqCst);
        match way {
            0 => self.executor.abandon(),
            1 => self.executor.retire(),
            _ => self.executor.free(),
        }
        if way != 1 {
            assert!(self.executor.is_finished());
            for record in &before {
                assert_ne!(read(&record.told), 0, "freed, and not told");
            }
        }
    }

    /// One thread's part.
    fn play(self: &Arc<Self>, thread: usize, mut dice: Dice, ends: bool) {
        let mut mine = Vec::new();
        for step in 0..60 {
            match dice.throw(12) {
                0 => self.immediate(),
                1 => self.drain(Mood::Parked),
                2 => self.drain(Mood::Spinning),
                3 | 4 if !mine.is_empty() => {
                    let record: &Arc<Record> = &mine[dice.throw(mine.len() as u64) as usize];
                    self.cancel(record);
                }
                5 => assert!(self.executor.outstanding() as u64 <= self.limit),
                6 => mine.push(self.deferred(Kind::Fails, thread)),
                7 => mine.push(self.deferred(Kind::Panics, thread)),
                8 => {
                    let record = self.deferred(Kind::Endless, thread);
                    if dice.throw(2) == 0 {
                        thread::yield_now();
                    }
                    // Others wait for it: the thread that makes one cancels it.
                    self.cancel(&record);
                    mine.push(record);
                }
                _ => mine.push(self.deferred(Kind::Fine, thread)),
            }
            if ends && step == 45 {
                self.end(&mut dice);
            }
        }
    }

    /// What must hold of every story.
    fn judge(&self) {
        let records = self.records.lock().unwrap();
        let closing = read(&self.closing);
        for record in records.iter() {
            assert_eq!(record.times_told.load(Ordering::SeqCst), 1);
            let outcome = *record.outcome.lock().unwrap();
            let [begun, ended, told, cancelled] = [
                &record.begun,
                &record.ended,
                &record.told,
                &record.cancelled,
            ]
            .map(read);
            let story = format!(
                "{:?} begun {begun}, ended {ended}, told {told}, cancelled {cancelled}: {outcome:?}",
                record.kind
            );
            let ran = begun != 0;
            let given_up = cancelled != 0 || self.abandoned.load(Ordering::SeqCst);
            match outcome {
                None => assert!(ran && record.kind == Kind::Fine, "{story}"),
                Some(Status::CorruptModel) => assert!(ran && record.kind == Kind::Fails, "{story}"),
                Some(Status::Internal) => assert!(ran && record.kind == Kind::Panics, "{story}"),
                Some(Status::Aborted) => assert!(given_up, "{story}"),
                Some(Status::Contended) => assert!(!ran, "{story}"),
                Some(Status::DeferredLimit) => {
                    assert!(!ran && self.limit < DEFAULT_DEFERRED_LIMIT, "{story}")
                }
                Some(Status::Freed) => assert!(!ran && closing != 0, "{story}"),
                Some(_) => panic!("{story}"),
            }
            if ran && record.kind != Kind::Panics {
                assert!(begun < ended && ended < told, "{story}");
                // Given up before it ended, and yet fine?
                assert!(
                    outcome.is_some() || cancelled == 0 || ended < cancelled,
                    "{story}"
                );
            }
        }
        // A thread's own calls began in the order it submitted them.
        for thread in 0..4 {
            let began = records.iter().filter(|record| record.thread == thread);
            let began: Vec<_> = began
                .map(|record| read(&record.begun))
                .filter(|begun| *begun != 0)
                .collect();
            assert!(began.is_sorted(), "{began:?}");
        }
    }
}

#[test]
fn nothing_is_lost_when_everything_races() {
    let soak = env::var_os("UFORM_SOAK").is_some();
    let length = Duration::from_millis(if soak { 120_000 } else { 1_500 });
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let (start, mut rounds, mut calls) = (Instant::now(), 0, 0);
    while start.elapsed() < length {
        let limit = [3, DEFAULT_DEFERRED_LIMIT][dice.throw(2) as usize];
        let (executor, limit) = match dice.throw(4) {
            0 => (Executor::inline(), DEFAULT_DEFERRED_LIMIT),
            threads => {
                let options = RamOptions {
                    threads: Some(threads),
                    deferred_limit: Some(limit),
                    ..RamOptions::default()
                };
                (Executor::for_ram(&options).unwrap(), limit)
            }
        };
        let round = Arc::new(Round {
            executor,
            clock: Clock::default(),
            records: Mutex::default(),
            busy: AtomicBool::new(false),
            closing: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
            limit,
        });
        thread::scope(|scope| {
            for thread in 0..4 {
                let own = Dice(dice.throw(u64::MAX) | 1);
                let ends = dice.throw(4) == 0;
                let round = &round;
                scope.spawn(move || round.play(thread, own, ends));
            }
        });
        round.executor.free();
        assert!(round.executor.is_finished());
        round.judge();
        rounds += 1;
        calls += round.records.lock().unwrap().len();
    }
    println!("{calls} calls in {rounds} rounds");
    assert!(rounds > 1);
}
