//! The protocol under a model checker: every order in which three processes can act, read, run out of
//! time, give up, and crash.
//!
//! What a process does is [`Protocol::step`] itself, as the real loop calls it. The model is of the rest:
//! of files, of which a process reads any one at any time, so that what it has read of
//! different files may be arbitrarily old; of deadlines, which may pass at any time; and of leaving, in its
//! single steps.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stateright::{Checker, Model, Property};

use super::checks::tests::member;
use super::member::{Member, Nonce, Prepared};
use super::process::Life;
use super::protocol::{Ending, Next, Protocol};
use super::record::{Agreed, Kind, Record, Run, Verdict};
use super::view::{Clock, Sighting, View};

/// What may happen, and to whom.
#[derive(Clone, Debug)]
struct World {
    /// Those that join, in any order.
    members: Vec<Member>,
    /// What lies there of an earlier run.
    left: Vec<(Arc<Record>, Option<Verdict>)>,
    /// How many may crash.
    crashes: u8,
    /// How many may be given up by their callers.
    cancels: u8,
    /// Whether deadlines may pass before all is over.
    deadlines: bool,
    /// What must be reachable, lest nothing was tried.
    reachable: fn() -> Vec<Property<World>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    records: BTreeMap<Nonce, Arc<Record>>,
    verdicts: BTreeMap<Run, Verdict>,
    processes: Vec<Process>,
    crashes: u8,
    cancels: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    protocol: Protocol,
    view: View,
    phase: Phase,
}

/// States that differ in nothing a process will ever look at are one.
impl Hash for Process {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.phase.hash(state);
        self.protocol.promised().hash(state);
        if self.phase != Phase::Joining {
            return;
        }
        self.protocol.hash(state);
        self.view.verdict.hash(state);
        for (nonce, other) in &self.view.others {
            let Record {
                seen,
                agreed,
                refused,
                ..
            } = &*other.record;
            (
                nonce,
                other.gone,
                seen.contains(&self.nonce()),
                agreed,
                refused,
            )
                .hash(state);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Joining,
    /// In its run, until it frees its mesh.
    Joined,
    /// Its record is removed, and these are the runs it was in whose verdicts lie there; of the first
    /// so many processes were looked for.
    Leaving(Ending, Vec<Run>, usize),
    Ended(Ending),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Reads a record, or that it is no longer there, and goes on.
    Read(usize, Nonce),
    /// Reads the verdict, and goes on.
    ReadVerdict(usize),
    /// Goes on with what it has read.
    Step(usize),
    Leave(usize),
    /// A step when the deadline and all patience are over. That this comes first and a
    /// step in time after it only adds orders to those there are.
    StepLate(usize),
    /// A step when the caller has given up.
    Cancel(usize),
    Crash(usize),
}

const LATE: Clock = Clock {
    cancelled: false,
    expired: true,
    out_of_patience: true,
};

const CANCELLED: Clock = Clock {
    cancelled: true,
    expired: false,
    out_of_patience: false,
};

fn nonce(place: usize) -> Nonce {
    Nonce(place as u128 + 1)
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let joining = |(place, member): (usize, &Member)| Process {
            protocol: Protocol::new(nonce(place), member.clone()),
            view: View::default(),
            phase: Phase::Joining,
        };
        let left = self.left.iter();
        let verdicts = left.clone().filter_map(|(record, verdict)| {
            let agreed = record.agreed.as_ref()?;
            Some((agreed.run.clone(), verdict.clone()?))
        });
        vec![State {
            records: left
                .map(|(record, _)| (record.nonce, record.clone()))
                .collect(),
            verdicts: verdicts.collect(),
            processes: self.members.iter().enumerate().map(joining).collect(),
            crashes: self.crashes,
            cancels: self.cancels,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (place, process) in state.processes.iter().enumerate() {
            match process.phase {
                Phase::Joining => {
                    let nonces = state.records.keys().chain(process.view.others.keys());
                    let others = nonces.filter(|other| **other != nonce(place));
                    let mut others: Vec<Nonce> = others.copied().collect();
                    others.sort_unstable();
                    others.dedup();
                    actions.extend(others.into_iter().map(|other| Action::Read(place, other)));
                    actions.push(Action::ReadVerdict(place));
                    actions.push(Action::Step(place));
                    if self.deadlines {
                        actions.push(Action::StepLate(place));
                    }
                    if state.cancels > 0 {
                        actions.push(Action::Cancel(place));
                    }
                }
                Phase::Joined | Phase::Leaving(..) => actions.push(Action::Leave(place)),
                Phase::Ended(_) | Phase::Crashed => continue,
            }
            if state.crashes > 0 {
                actions.push(Action::Crash(place));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Read(place, other) => {
                let record = state.records.get(&other).cloned();
                state.processes[place].read(other, record)?;
                state.step(place, Clock::default());
            }
            Action::ReadVerdict(place) => {
                let process = &mut state.processes[place];
                let run = process.protocol.promised()?;
                let verdict = state.verdicts.get(run).cloned();
                if verdict == process.view.verdict {
                    return None;
                }
                process.view.verdict = verdict;
                state.step(place, Clock::default());
            }
            Action::Step(place) => state.step(place, Clock::default()),
            Action::StepLate(place) => state.step(place, LATE),
            Action::Cancel(place) => {
                state.step(place, CANCELLED);
                state.cancels -= 1;
            }
            Action::Leave(place) => state.leave(place),
            Action::Crash(place) => {
                let process = &mut state.processes[place];
                process.phase = Phase::Crashed;
                process.view = View::default();
                state.crashes -= 1;
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<World>> {
        let mut properties = vec![
            Property::always("all of a run go on, or none", |_: &World, state: &State| {
                state.runs().all(|(_, run)| {
                    let members = state
                        .processes
                        .iter()
                        .filter(|other| run.0.contains(&other.nonce()));
                    let mut refused = members.filter(|other| other.refusal().is_some());
                    refused.next().is_none()
                })
            }),
            Property::always("a process is in one run", |_: &World, state: &State| {
                state.runs().all(|(_, run)| {
                    let mut others = state.runs().map(|(_, other)| other);
                    others
                        .all(|other| other == run || !run.0.iter().any(|one| other.0.contains(one)))
                })
            }),
            Property::always(
                "a run is of this time, complete and of one mind",
                |world: &World, state: &State| {
                    state.runs().all(|(_, run)| {
                        let places = run.0.iter().map(|nonce| nonce.0 as usize - 1);
                        let members: Option<Vec<&Member>> =
                            places.map(|place| world.members.get(place)).collect();
                        let Some(members) = members else { return false };
                        let count = members[0].count;
                        let all = members.iter().map(|member| member.index).eq(0..count);
                        all && members
                            .iter()
                            .all(|member| member.version == members[0].version)
                    })
                },
            ),
            Property::always(
                "nobody waits beyond the deadline",
                |_: &World, state: &State| {
                    let joining = state
                        .processes
                        .iter()
                        .filter(|process| process.phase == Phase::Joining);
                    joining.cloned().all(|mut process| {
                        let done = |next: &Next| matches!(next, Next::Done(_) | Next::Decide(_));
                        (0..4).any(|_| match process.protocol.step(&process.view, LATE) {
                            Next::Prepare(run) => {
                                process.protocol.promise(run, Prepared::default());
                                false
                            }
                            next => done(&next),
                        })
                    })
                },
            ),
            Property::always(
                "nobody who lives leaves a file",
                |world: &World, state: &State| {
                    let ended = |process: &Process| matches!(process.phase, Phase::Ended(_));
                    let all_ended = state.processes.iter().all(ended);
                    let own = state.records.len() - world.left.len();
                    let start = &world.init_states()[0];
                    !all_ended || own == 0 && state.verdicts == start.verdicts
                },
            ),
        ];
        if !self.deadlines {
            let name = "who fits and is not held up is refused nothing";
            properties.push(Property::always(name, |_: &World, state: &State| {
                let mut processes = state.processes.iter();
                processes.all(|process| process.refusal().is_none())
            }));
        }
        properties.extend((self.reachable)());
        properties
    }
}

impl State {
    /// What a process does until others can see something of it.
    fn step(&mut self, place: usize, clock: Clock) {
        let process = &mut self.processes[place];
        let mut next = process.protocol.step(&process.view, clock);
        if let Next::Prepare(run) = next {
            process.protocol.promise(run, Prepared::default());
            next = process.protocol.step(&process.view, clock);
        }
        match next {
            Next::Publish => {
                let record = process.protocol.record().clone();
                self.records.insert(record.nonce, record);
            }
            Next::Decide(verdict) => {
                let run = process
                    .protocol
                    .promised()
                    .cloned()
                    .expect("who decides has promised");
                let decided = self.verdicts.entry(run).or_insert(verdict);
                process.view.verdict = Some(decided.clone());
            }
            Next::Wait | Next::Prepare(_) => (),
            Next::Done(Ending::Joined) => process.phase = Phase::Joined,
            Next::Done(ending) => self.remove(place, ending),
        }
    }

    fn remove(&mut self, place: usize, ending: Ending) {
        let own = nonce(place);
        self.records.remove(&own);
        let runs = self.verdicts.keys().filter(|run| run.0.contains(&own));
        let process = &mut self.processes[place];
        process.view = View::default();
        process.phase = Phase::Leaving(ending, runs.cloned().collect(), 0);
    }

    fn leave(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Phase::Leaving(ending, mut runs, looked) = process.phase.clone() else {
            return self.remove(place, Ending::Joined);
        };
        let looked = match runs.first().and_then(|run| run.0.get(looked)) {
            Some(other) if !self.records.contains_key(other) => looked + 1,
            found => {
                if let Some(run) = runs.first().filter(|_| found.is_none()) {
                    self.verdicts.remove(run);
                }
                runs = runs.into_iter().skip(1).collect();
                0
            }
        };
        process.phase = match runs.is_empty() {
            true => Phase::Ended(ending),
            false => Phase::Leaving(ending, runs, looked),
        };
    }

    /// Who joined, and what.
    fn runs(&self) -> impl Iterator<Item = (&Process, &Run)> {
        let joined = self
            .processes
            .iter()
            .filter(|process| match &process.phase {
                Phase::Joined => true,
                Phase::Leaving(ending, ..) | Phase::Ended(ending) => *ending == Ending::Joined,
                Phase::Joining | Phase::Crashed => false,
            });
        joined.filter_map(|process| Some((process, process.protocol.promised()?)))
    }
}

impl Process {
    fn nonce(&self) -> Nonce {
        self.protocol.record().nonce
    }

    fn refusal(&self) -> Option<Kind> {
        match &self.phase {
            Phase::Leaving(Ending::Refused(refusal), ..)
            | Phase::Ended(Ending::Refused(refusal)) => Some(refusal.kind),
            _ => None,
        }
    }

    /// `None` if there is nothing new.
    fn read(&mut self, other: Nonce, record: Option<Arc<Record>>) -> Option<()> {
        let known = self.view.others.get_mut(&other);
        match (record, known) {
            (Some(record), Some(known)) if known.record == record => None,
            (Some(record), _) => {
                let sighting = Sighting {
                    record,
                    life: Life::Unknown,
                    gone: false,
                };
                self.view.others.insert(other, sighting);
                Some(())
            }
            (None, Some(known)) if !known.gone => {
                known.gone = true;
                Some(())
            }
            (None, _) => None,
        }
    }
}

/// A crash is also to never act again, and that every state shows. Crashes and callers who give up
/// multiply the states, so they are kept for the patient tests where the states are many.
fn when_patient(most: u8) -> u8 {
    if std::env::var_os("UFORM_SOAK").is_some() {
        most
    } else {
        0
    }
}

/// How many processes ended so.
fn ended(state: &State, how: impl Fn(&Ending) -> bool) -> usize {
    let ended = state
        .processes
        .iter()
        .filter(|process| match &process.phase {
            Phase::Leaving(ending, ..) | Phase::Ended(ending) => how(ending),
            Phase::Joining | Phase::Joined | Phase::Crashed => false,
        });
    ended.count()
}

fn refused(state: &State, kind: Kind) -> usize {
    ended(
        state,
        |ending| matches!(ending, Ending::Refused(refusal) if refusal.kind == kind),
    )
}

fn all_join() -> Property<World> {
    Property::sometimes("all join", |world: &World, state: &State| {
        ended(state, |ending| *ending == Ending::Joined) == world.members[0].count as usize
    })
}

fn all_time_out() -> Property<World> {
    Property::sometimes("all time out", |world: &World, state: &State| {
        refused(state, Kind::TimedOut) == world.members.len()
    })
}

fn all_contradict() -> Property<World> {
    Property::sometimes("all contradict", |world: &World, state: &State| {
        refused(state, Kind::Mismatch) == world.members.len()
    })
}

/// Looks at all there is, and fails with the way to the first state that should not be.
fn check(world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn three_that_are_held_up_and_crash() {
    check(World {
        members: (0..3).map(|index| member(index, 3)).collect(),
        left: Vec::new(),
        crashes: 1,
        cancels: when_patient(1),
        deadlines: true,
        reachable: || vec![all_join(), all_time_out()],
    });
}

#[test]
fn three_of_which_one_disagrees() {
    let mut members: Vec<Member> = (0..3).map(|index| member(index, 3)).collect();
    members[2].version = "another".to_owned();
    check(World {
        members,
        left: Vec::new(),
        crashes: when_patient(1),
        cancels: 0,
        deadlines: true,
        reachable: || vec![all_contradict()],
    });
}

/// One index is there twice, be it by mistake or because its process was started again.
#[test]
fn two_and_one_more() {
    check(World {
        members: [0, 1, 1].map(|index| member(index, 2)).to_vec(),
        left: Vec::new(),
        crashes: when_patient(1),
        cancels: when_patient(1),
        deadlines: true,
        reachable: || vec![all_join(), all_contradict()],
    });
}

/// A run of the same job crashed after everything was decided.
#[test]
fn two_after_a_crash() {
    let run = Run(vec![nonce(7), nonce(8)]);
    let left = |index: u32| {
        let record = Record {
            nonce: run.0[index as usize],
            member: member(index, 2),
            seen: run.0.iter().copied().collect(),
            agreed: Some(Agreed {
                run: run.clone(),
                prepared: Prepared::default(),
            }),
            refused: None,
        };
        (
            Arc::new(record),
            Some(Verdict::Go(vec![Prepared::default(); 2])),
        )
    };
    check(World {
        members: (0..2).map(|index| member(index, 2)).collect(),
        left: vec![left(0), left(1)],
        crashes: 1,
        cancels: 1,
        deadlines: true,
        reachable: || vec![all_join(), all_time_out()],
    });
}

/// A process crashed before it had promised anything, and was started again; nobody is held up.
#[test]
fn two_in_time_after_a_crash() {
    let left = Record {
        nonce: nonce(7),
        member: member(1, 2),
        seen: [nonce(8)].into(),
        agreed: None,
        refused: None,
    };
    check(World {
        members: (0..2).map(|index| member(index, 2)).collect(),
        left: vec![(Arc::new(left), None)],
        crashes: 0,
        cancels: 0,
        deadlines: false,
        reachable: || vec![all_join()],
    });
}
