//! How processes that share nothing but a folder become one run, as a function without side
//! effects: from what a process reads to what it does next.
//!
//! **What is written.** Every process has one [`Record`], which it alone replaces; and a run
//! has one [`Verdict`], which whoever comes first makes and nobody changes.
//!
//! **Who is alive.** An attempt to join has a [`Nonce`] nobody can have known before. A record that
//! lists it among those it has *seen* was therefore written later, by a process that was alive then;
//! clocks, process numbers and the order of starting do not come into it. A record that does not list
//! it, whether left by a crash before or after any phase, or of another run, is never believed. Its
//! process may be called up on this very host and found to have ended, which only ever makes
//! a record count less.
//!
//! **Seen.** A process gathers those who list its nonce. When as many are together as there should
//! be, it judges their facts; what it cannot accept it *refuses*, in its record, for all to read, and it
//! stays until they have, or for as long as patience lasts.
//!
//! **Agreed.** If all is well the nonces of all, in the order of their indexes, are the
//! [`Run`], and the process promises to be part of it. It promises once, and never another run, so
//! two runs that all of their processes promised have no process in common.
//!
//! **Decided.** Who has read everybody's promise decides *go*, and whoever promised and can wait no
//! longer decides *stop*. Only the first decision counts, and nobody who promised goes on or
//! gives up without having read which it was. So all processes of a run that live go on, or none
//! does, however their deadlines fall.
//!
//! The run's own name is made of its nonces: a verdict of an earlier run is about another name.

use std::sync::Arc;

use super::checks::{disagreement, indexes, missing, named};
use super::member::{Member, Nonce, Prepared};
use super::process::Life;
use super::record::{Agreed, Kind, Record, Refusal, Run, Verdict};
use super::view::{Clock, Sighting, View};

/// A process's side of the joining. Its state is its record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Protocol {
    own: Arc<Record>,
    /// Whether the folder has the record as it is now.
    published: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Replace the record in the folder, then go on.
    Publish,
    /// Make ready what those processes need of this one, say how it went by [`Protocol::promise`], go on.
    Prepare(Run),
    /// Decide that of the run promised, if nobody has decided yet; go on with what is then decided.
    Decide(Verdict),
    /// Look again, after a while.
    Wait,
    /// It is over: leave, unless it is a run.
    Done(Ending),
}

/// How joining ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// In the run promised.
    Joined,
    /// In none.
    Refused(Refusal),
    /// The caller gave up.
    Cancelled,
}

impl Protocol {
    pub fn new(nonce: Nonce, member: Member) -> Protocol {
        let own = Record {
            nonce,
            member,
            seen: Default::default(),
            agreed: None,
            refused: None,
        };
        Protocol {
            own: Arc::new(own),
            published: false,
        }
    }

    /// The record, as it is to be in the folder.
    pub fn record(&self) -> &Arc<Record> {
        &self.own
    }

    /// The run this process promised to be part of.
    pub fn promised(&self) -> Option<&Run> {
        self.own.agreed.as_ref().map(|agreed| &agreed.run)
    }

    /// Promises to be part of a run, after [`Next::Prepare`].
    pub fn promise(&mut self, run: Run, prepared: Prepared) {
        Arc::make_mut(&mut self.own).agreed = Some(Agreed { run, prepared });
        self.published = false;
    }

    /// What to do next, given what was last read and how late it is.
    pub fn step(&mut self, view: &View, clock: Clock) -> Next {
        if clock.cancelled && self.own.agreed.is_none() {
            return Next::Done(Ending::Cancelled);
        }
        for nonce in view.others.keys() {
            if !self.own.seen.contains(nonce) {
                Arc::make_mut(&mut self.own).seen.insert(*nonce);
                self.published = false;
            }
        }
        if !self.published {
            self.published = true;
            return Next::Publish;
        }
        match (&self.own.agreed, &self.own.refused) {
            (Some(agreed), _) => self.promised_step(&agreed.run, view, clock),
            (None, Some(refusal)) => self.refused_step(refusal, view, clock),
            (None, None) => match self.gathering_step(view, clock) {
                Ok(next) => next,
                Err(refusal) => {
                    Arc::make_mut(&mut self.own).refused = Some(refusal);
                    Next::Publish
                }
            },
        }
    }

    /// Those that are known to have been alive after this process began, and may be of its run, also
    /// when they have left since. Who is of another may be about to leave it, and then to come anew.
    fn came<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Sighting> {
        view.others.values().filter(|other| {
            let answers = other.record.seen.contains(&self.own.nonce);
            answers && !self.is_of_another_run(&other.record)
        })
    }

    /// The records of those of them that have not left.
    fn met<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Record> {
        let there = self.came(view).filter(|other| !other.gone);
        let there = there.filter(|other| other.life != Life::Ended);
        there.map(|other| &*other.record)
    }

    /// Waits for as many as there should be.
    fn gathering_step(&self, view: &View, clock: Clock) -> Result<Next, Refusal> {
        let met: Vec<&Record> = self.met(view).collect();
        if let Some(refusal) = met.iter().find_map(|record| record.refused.clone()) {
            return Err(refusal);
        }
        let mut all: Vec<&Record> = met.into_iter().chain([&*self.own]).collect();
        all.sort_by_key(|record| record.member.index);
        let members: Vec<&Member> = all.iter().map(|record| &record.member).collect();
        let enough = all.len() >= self.own.member.count as usize;
        if enough || clock.expired {
            if let Some(wrong) = disagreement(&members) {
                return Err(self.contradiction(&wrong, &members));
            }
            if !enough {
                return Err(match self.goes_without_us(view) {
                    Some(other) => self.taken(other),
                    None => self.nobody_came(view, &members),
                });
            }
            // As many as there should be, every index at most once and below their one count: all.
            return Ok(Next::Prepare(Run(all
                .iter()
                .map(|record| record.nonce)
                .collect())));
        }
        Ok(Next::Wait)
    }

    /// A process that is alive and has promised a run without this one.
    fn goes_without_us<'a>(&self, view: &'a View) -> Option<&'a Record> {
        let mut others = view.others.values().filter(|other| {
            let alive = match other.life {
                Life::Unknown => other.record.seen.contains(&self.own.nonce),
                Life::Alive => true,
                Life::Ended => false,
            };
            alive && !other.gone && self.is_of_another_run(&other.record)
        });
        others.next().map(|other| &*other.record)
    }

    /// Whether a process has promised to be where this one is not.
    fn is_of_another_run(&self, other: &Record) -> bool {
        let agreed = other.agreed.as_ref();
        agreed.is_some_and(|agreed| !agreed.run.0.contains(&self.own.nonce))
    }

    /// Waits for everybody's promise, and then for the verdict.
    fn promised_step(&self, run: &Run, view: &View, clock: Clock) -> Next {
        let stop = |refusal| Next::Decide(Verdict::Stop(refusal));
        match &view.verdict {
            Some(_) if clock.cancelled => return Next::Done(Ending::Cancelled),
            Some(Verdict::Go(_)) => return Next::Done(Ending::Joined),
            Some(Verdict::Stop(refusal)) => return Next::Done(Ending::Refused(refusal.clone())),
            None if clock.cancelled => return stop(self.gave_up(&self.own.member)),
            None => (),
        }
        let mut late = Vec::new();
        let mut all = Vec::with_capacity(run.0.len());
        for nonce in &run.0 {
            // What is not this process's own was read before the promise was made, and is not forgotten.
            let Some(other) = view.others.get(nonce) else {
                let own = self.own.agreed.as_ref();
                all.extend(own.map(|agreed| agreed.prepared.clone()));
                continue;
            };
            let Record {
                agreed,
                refused,
                member,
                ..
            } = &*other.record;
            match (agreed, refused) {
                (Some(agreed), _) if agreed.run == *run => all.push(agreed.prepared.clone()),
                (Some(_), _) => return stop(self.taken(&other.record)),
                (None, Some(refusal)) => return stop(refusal.clone()),
                (None, None) if other.gone => return stop(self.gave_up(member)),
                (None, None) => late.push(member),
            }
        }
        match late.is_empty() {
            true => Next::Decide(Verdict::Go(all)),
            false if clock.expired => stop(self.nobody_answered(&late)),
            false => Next::Wait,
        }
    }

    /// Stays until everybody concerned knows, or for as long as patience lasts.
    fn refused_step(&self, refusal: &Refusal, view: &View, clock: Clock) -> Next {
        let knows = |record: &Record| record.refused.is_some() || record.agreed.is_some();
        // Who comes late to a contradiction is still to hear of it.
        let came = self.came(view).map(|other| &other.record.member);
        let came: Vec<&Member> = came.chain([&self.own.member]).collect();
        let count = came.iter().map(|member| member.count).max().unwrap_or(0);
        let all_came = refusal.kind == Kind::TimedOut || missing(count, &came).is_empty();
        match clock.out_of_patience || all_came && self.met(view).all(knows) {
            true => Next::Done(Ending::Refused(refusal.clone())),
            false => Next::Wait,
        }
    }

    fn contradiction(&self, wrong: &str, members: &[&Member]) -> Refusal {
        let absent = missing(self.own.member.count, members);
        let absent = match absent.is_empty() {
            true => String::new(),
            false => format!("; nobody has {}", indexes(&absent)),
        };
        Refusal::mismatch(format!(
            "the processes that met do not fit together: {wrong}{absent}; start all of them again \
             with options that agree"
        ))
    }

    fn taken(&self, other: &Record) -> Refusal {
        let without = match &other.agreed {
            Some(agreed) => format!("a run of {} processes", agreed.run.0.len()),
            None => "a run".to_owned(),
        };
        Refusal::mismatch(format!(
            "{} is part of {without} that is going on without {}: one process is too many, \
             or two runs have the same `job`, or one was started again while the others were still \
             joining",
            other.member, self.own.member
        ))
    }

    fn gave_up(&self, member: &Member) -> Refusal {
        Refusal::timed_out(format!(
            "{member} gave up joining before everybody had agreed"
        ))
    }

    fn nobody_answered(&self, late: &[&Member]) -> Refusal {
        Refusal::timed_out(format!(
            "everybody had come, and these did not agree in time: {}; they were ended, or are held up: \
             look at what they report, or raise `timeoutSeconds`",
            named(late)
        ))
    }

    fn nobody_came(&self, view: &View, members: &[&Member]) -> Refusal {
        let Member { count, .. } = self.own.member;
        let absent = indexes(&missing(count, members));
        let here = format!(
            "{absent} of {count} did not come in time; here are {}",
            named(members)
        );
        let hint = match view.leftovers(&self.own.nonce, None) {
            Some(leftovers) => leftovers,
            None => {
                "see whether the others were started, with the same `directory` and `job` on every \
                     host, or raise `timeoutSeconds`"
                    .to_owned()
            }
        };
        Refusal::timed_out(format!("{here}; {hint}"))
    }
}
