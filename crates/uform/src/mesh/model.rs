//! The protocol under a model checker: every order in which three processes can act, read, run out of
//! time, give up, and crash.
//!
//! What a process does is [`Protocol::step`] itself, as the real loop calls it. The model is of the rest:
//! of files, of which a process reads any one at any time, so that what it has read of
//! different files may be arbitrarily old; of deadlines, which may pass at any time; and of leaving, in its
//! single steps.

use std::collections::BTreeMap;
use std::hash::Hash;

use stateright::{Checker, Model, Property};

use super::checks::tests::member;
use super::member::{Member, Nonce};
use super::process::Life;
use super::protocol::{Ending, Next, Protocol};
use super::record::{Kind, Record, Run, Verdict};
use super::view::{Clock, Sighting, View};

/// What may happen, and to whom.
#[derive(Clone, Debug)]
struct World {
    /// Those that join, in any order.
    members: Vec<Member>,
    /// What lies there of an earlier run.
    left: Vec<(Record, Option<Verdict>)>,
    /// How many may crash.
    crashes: u8,
    /// How many may be given up by their callers.
    cancels: u8,
    /// Whether deadlines may pass before all is over.
    deadlines: bool,
    /// What must be reachable, lest nothing was tried.
    reachable: fn(&World) -> Vec<Property<World>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    records: BTreeMap<Nonce, Record>,
    verdicts: BTreeMap<Run, Verdict>,
    processes: Vec<Process>,
    crashes: u8,
    cancels: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    protocol: Protocol,
    view: View,
    clock: Clock,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Joining,
    /// In its run, until it frees its mesh.
    Joined,
    /// Its record is removed, and so many others of the run were looked for.
    Leaving(Ending, usize),
    Ended(Ending),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Read(usize, Nonce),
    ReadVerdict(usize),
    Step(usize),
    Leave(usize),
    Expire(usize),
    LosePatience(usize),
    Cancel(usize),
    Crash(usize),
}

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
            clock: Clock::default(),
            phase: Phase::Joining,
        };
        let left = self.left.iter();
        let verdicts = left.clone().filter_map(|(record, verdict)| {
            let agreed = record.agreed.as_ref()?;
            Some((agreed.run.clone(), verdict.clone()?))
        });
        vec![State {
            records: left.map(|(record, _)| (record.nonce, record.clone())).collect(),
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
                        actions.push(Action::Expire(place));
                        actions.push(Action::LosePatience(place));
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
                state.processes[place].read(other, record);
            }
            Action::ReadVerdict(place) => {
                let process = &mut state.processes[place];
                let run = process.protocol.promised()?;
                process.view.verdict = state.verdicts.get(run).cloned();
            }
            Action::Step(place) => state.step(place),
            Action::Leave(place) => state.leave(place),
            Action::Expire(place) => state.processes[place].clock.expired = true,
            Action::LosePatience(place) => {
                let process = &mut state.processes[place];
                process.protocol.record().refused.as_ref()?;
                process.clock.out_of_patience = true;
            }
            Action::Cancel(place) => {
                state.processes[place].clock.cancelled = true;
                state.cancels -= 1;
            }
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
            Property::always("all of a run go on, or none", |_, state: &State| {
                state.runs().all(|(_, run)| {
                    let members = state.processes.iter().filter(|other| run.0.contains(&other.nonce()));
                    let mut refused = members.filter(|other| other.refusal().is_some());
                    refused.next().is_none()
                })
            }),
            Property::always("a process is in one run", |_, state: &State| {
                state.runs().all(|(_, run)| {
                    let mut others = state.runs().map(|(_, other)| other);
                    others.all(|other| other == run || !run.0.iter().any(|one| other.0.contains(one)))
                })
            }),
            Property::always("a run is of this time, complete and of one mind", |world, state: &State| {
                state.runs().all(|(_, run)| {
                    let places = run.0.iter().map(|nonce| nonce.0 as usize - 1);
                    let members: Option<Vec<&Member>> =
                        places.map(|place| world.members.get(place)).collect();
                    let Some(members) = members else { return false };
                    let count = members[0].count;
                    let all = members.iter().map(|member| member.index).eq(0..count);
                    all && members.iter().all(|member| member.version == members[0].version)
                })
            }),
            Property::always("nobody waits beyond the deadline", |_, state: &State| {
                let joining = state.processes.iter().filter(|process| process.phase == Phase::Joining);
                joining.cloned().all(|mut process| {
                    process.clock.expired = true;
                    process.clock.out_of_patience = true;
                    let done = |next: &Next| matches!(next, Next::Done(_) | Next::Decide(_));
                    (0..4).any(|_| match process.protocol.step(&process.view, process.clock) {
                        Next::Try(run) => {
                            process.protocol.promise(run, None);
                            false
                        }
                        next => done(&next),
                    })
                })
            }),
            Property::always("nobody who lives leaves a file", |world, state: &State| {
                let ended = |process: &Process| matches!(process.phase, Phase::Ended(_));
                let all_ended = state.processes.iter().all(ended);
                let own = state.records.len() - world.left.len();
                let verdicts = world.left.iter().filter(|(_, verdict)| verdict.is_some());
                !all_ended || own == 0 && state.verdicts.len() == verdicts.count()
            }),
        ];
        properties.extend((self.reachable)(self));
        properties
    }
}

impl State {
    fn step(&mut self, place: usize) {
        let process = &mut self.processes[place];
        match process.protocol.step(&process.view, process.clock) {
            Next::Publish => {
                let record = process.protocol.record().clone();
                self.records.insert(record.nonce, record);
            }
            Next::Try(run) => process.protocol.promise(run, None),
            Next::Decide(verdict) => {
                let run = process.protocol.promised().cloned().expect("who decides has promised");
                let decided = self.verdicts.entry(run).or_insert(verdict);
                process.view.verdict = Some(decided.clone());
            }
            Next::Wait => (),
            Next::Done(Ending::Joined) => process.phase = Phase::Joined,
            Next::Done(ending) => self.remove(place, ending),
        }
    }

    fn remove(&mut self, place: usize, ending: Ending) {
        self.records.remove(&nonce(place));
        let process = &mut self.processes[place];
        process.view = View::default();
        process.phase = Phase::Leaving(ending, 0);
    }

    fn leave(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Phase::Leaving(ending, looked) = process.phase.clone() else {
            return self.remove(place, Ending::Joined);
        };
        let run = process.protocol.promised();
        let next = run.and_then(|run| run.0.get(looked));
        process.phase = match next {
            Some(other) if self.records.contains_key(other) => Phase::Ended(ending),
            Some(_) => Phase::Leaving(ending, looked + 1),
            None => {
                if let Some(run) = run {
                    self.verdicts.remove(run);
                }
                Phase::Ended(ending)
            }
        };
    }

    /// Who joined, and what.
    fn runs(&self) -> impl Iterator<Item = (&Process, &Run)> {
        let joined = self.processes.iter().filter(|process| match &process.phase {
            Phase::Joined => true,
            Phase::Leaving(ending, _) | Phase::Ended(ending) => *ending == Ending::Joined,
            Phase::Joining | Phase::Crashed => false,
        });
        joined.filter_map(|process| Some((process, process.protocol.promised()?)))
    }

    fn refused(&self, kind: Kind) -> usize {
        let refused = self.processes.iter().filter(|process| process.refusal() == Some(kind));
        refused.count()
    }
}

impl Process {
    fn nonce(&self) -> Nonce {
        self.protocol.record().nonce
    }

    fn refusal(&self) -> Option<Kind> {
        match &self.phase {
            Phase::Leaving(Ending::Refused(refusal), _) | Phase::Ended(Ending::Refused(refusal)) => {
                Some(refusal.kind)
            }
            _ => None,
        }
    }

    fn read(&mut self, other: Nonce, record: Option<Record>) {
        match record {
            Some(record) => {
                let sighting = Sighting {
                    record,
                    life: Life::Unknown,
                    gone: false,
                };
                self.view.others.insert(other, sighting);
            }
            None => {
                if let Some(known) = self.view.others.get_mut(&other) {
                    known.gone = true;
                }
            }
        }
    }
}

#[test]
fn probe() {
    let world = World {
        members: (0..3).map(|index| member(index, 3)).collect(),
        left: Vec::new(),
        crashes: 0,
        cancels: 0,
        deadlines: false,
        reachable: |_| Vec::new(),
    };
    let start = std::time::Instant::now();
    let checker = world.checker().threads(2).spawn_bfs().report(&mut stateright::report::WriteReporter::new(&mut std::io::stderr()));
    println!("{} states {:?}", checker.unique_state_count(), start.elapsed());
}
