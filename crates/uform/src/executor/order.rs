//! Who holds the executor, and who is next: the one rule, without any threads in it.
//!
//! Every accepted call gets a [`Ticket`], numbered upwards, and goes through
//!
//! ```text
//!  immediate ───────────────┐
//!                           ▼
//!  deferred ──▶ queued ──▶ holding ──▶ settling ──▶ over
//!                  │                      ▲
//!                  └──── withdrawn ───────┘
//! ```
//!
//! - One call holds at a time; queued calls come to hold in ticket order.
//! - A queued call may [`join`](Order::join) the one that holds, if it is the next
//!   in the queue and no drain waits between the two. They hold as one and are
//!   released as one; each still counts for itself.
//! - An immediate call is refused while any call holds or is queued, and a deferred
//!   one while an immediate call holds: the two never wait for each other.
//! - A *settling* call no longer holds, but its outcome is still being handed over.
//!   It counts only for drains, so that the callback may submit the next call.
//! - A drain waits until every ticket given out before it is over, and then sets
//!   the mood. Drains are served in the order they came.
//! - Once closed, everything new is refused, and what was accepted goes its way.
//!
//! Threads, if there are any, live elsewhere: the conductor asks for the
//! [`next`](Order::next) call, and without threads the event loop does.

use std::collections::VecDeque;

use super::mood::Mood;
use crate::{Error, Status};

/// A call's place in the order of submission.
pub(super) type Ticket = u64;

/// Why a call was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another call holds or is queued.
    Contended,
    /// So many deferred calls are outstanding, which is the limit.
    Limit(u64),
    /// The executor was freed.
    Freed,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Contended => Error::new(
                Status::Contended,
                "another call holds this executor or is queued on it: wait for it first, or use \
                 an executor of its own for work that should overlap",
            ),
            Refusal::Limit(limit) => Error::new(
                Status::DeferredLimit,
                format!(
                    "{limit} deferred calls are outstanding on this executor, which is its \
                     deferredLimit: wait for some of them, or make an executor with a higher one"
                ),
            ),
            Refusal::Freed => Error::new(
                Status::Freed,
                "the executor was freed and takes no more calls: make a new one",
            ),
        }
    }
}

/// Someone who waits for the tickets below `before`.
struct Drain<D> {
    before: Ticket,
    mood: Option<Mood>,
    waiter: D,
}

/// The order of calls `C` and of the waiters `D` of drains.
pub(super) struct Order<C, D> {
    limit: u64,
    next_ticket: Ticket,
    /// The calls that hold, ascending: none, one, or neighbours that joined it.
    holding: Vec<Ticket>,
    /// Whether the call that holds is an immediate one.
    immediate: bool,
    queue: VecDeque<(Ticket, C)>,
    /// Mostly told in the order they were released.
    settling: VecDeque<Ticket>,
    drains: VecDeque<Drain<D>>,
    closed: bool,
}

impl<C, D> Order<C, D> {
    /// No call holds; up to `limit` deferred calls may be queued and running.
    pub(super) fn new(limit: u64) -> Self {
        Order {
            limit,
            next_ticket: 0,
            holding: Vec::new(),
            immediate: false,
            queue: VecDeque::new(),
            settling: VecDeque::new(),
            drains: VecDeque::new(),
            closed: false,
        }
    }

    /// Lets an immediate call hold at once, or not at all.
    pub(super) fn immediate(&mut self) -> Result<Ticket, Refusal> {
        if self.closed {
            Err(Refusal::Freed)
        } else if !self.holding.is_empty() || !self.queue.is_empty() {
            Err(Refusal::Contended)
        } else {
            let ticket = self.ticket();
            self.holding.push(ticket);
            self.immediate = true;
            Ok(ticket)
        }
    }

    /// Queues a deferred call, or gives it back.
    pub(super) fn deferred(&mut self, call: C) -> Result<Ticket, (Refusal, C)> {
        if self.closed {
            Err((Refusal::Freed, call))
        } else if self.immediate {
            Err((Refusal::Contended, call))
        } else if self.outstanding() as u64 >= self.limit {
            Err((Refusal::Limit(self.limit), call))
        } else {
            let ticket = self.ticket();
            self.queue.push_back((ticket, call));
            Ok(ticket)
        }
    }

    /// Whether a call waits for its turn.
    pub(super) fn has_next(&self) -> bool {
        self.holding.is_empty() && !self.queue.is_empty()
    }

    /// The queued call whose turn it is; it holds until [`release`](Self::release).
    pub(super) fn next(&mut self) -> Option<(Ticket, C)> {
        if !self.holding.is_empty() {
            return None;
        }
        self.start_first()
    }

    /// The call queued right behind those that hold, if it `may` hold with them.
    /// A drain between them keeps it: who drains waits for none that came after.
    pub(super) fn join(&mut self, may: impl FnOnce(&C) -> bool) -> Option<(Ticket, C)> {
        let last = *self.holding.last()?;
        let (ticket, call) = self.queue.front()?;
        let between = last + 1..=*ticket;
        if self
            .drains
            .iter()
            .any(|drain| between.contains(&drain.before))
            || !may(call)
        {
            return None;
        }
        self.start_first()
    }

    /// Takes the first call out of the queue to hold.
    fn start_first(&mut self) -> Option<(Ticket, C)> {
        let (ticket, call) = self.queue.pop_front()?;
        self.holding.push(ticket);
        Some((ticket, call))
    }

    /// Takes a call out of the queue, if it is still there. It is settling from now on.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> Option<C> {
        let place = self
            .queue
            .binary_search_by_key(&ticket, |(queued, _)| *queued)
            .ok()?;
        let (_, call) = self.queue.remove(place)?;
        self.settling.push_back(ticket);
        Some(call)
    }

    /// Takes out the first call of the queue.
    pub(super) fn withdraw_first(&mut self) -> Option<(Ticket, C)> {
        let (ticket, _) = self.queue.front()?;
        let ticket = *ticket;
        Some((ticket, self.withdraw(ticket)?))
    }

    /// The calls that hold no longer do; they are settling.
    pub(super) fn release(&mut self) {
        self.settling.extend(self.holding.drain(..));
        self.immediate = false;
    }

    /// The call's outcome was handed over.
    pub(super) fn settled(&mut self, ticket: Ticket) {
        if let Some(place) = self.settling.iter().position(|other| *other == ticket) {
            self.settling.remove(place);
        }
    }

    /// Lines up a drain behind every call so far, or gives its waiter back.
    pub(super) fn drain(&mut self, mood: Mood, waiter: D) -> Result<(), (Refusal, D)> {
        if self.closed {
            return Err((Refusal::Freed, waiter));
        }
        self.line_up(Some(mood), waiter);
        Ok(())
    }

    /// Lines up a waiter that is refused by nothing and leaves the mood as it is.
    pub(super) fn watch(&mut self, waiter: D) {
        self.line_up(None, waiter);
    }

    /// The first drain, if all it waited for is over; and the mood it asked for.
    pub(super) fn drained(&mut self) -> Option<(Option<Mood>, D)> {
        let before = self.drains.front()?.before;
        if self.oldest().is_some_and(|ticket| ticket < before) {
            return None;
        }
        let drain = self.drains.pop_front()?;
        Some((drain.mood, drain.waiter))
    }

    /// Refuses everything new from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether everything new is refused.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is closed and the last call is over.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.oldest().is_none()
    }

    /// Deferred calls queued or running.
    pub(super) fn outstanding(&self) -> usize {
        let running = if self.immediate {
            0
        } else {
            self.holding.len()
        };
        self.queue.len() + running
    }

    fn ticket(&mut self) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    fn line_up(&mut self, mood: Option<Mood>, waiter: D) {
        self.drains.push_back(Drain {
            before: self.next_ticket,
            mood,
            waiter,
        });
    }

    /// The oldest ticket that is not over.
    fn oldest(&self) -> Option<Ticket> {
        let holding = self.holding.first().copied();
        let queued = self.queue.front().map(|(ticket, _)| *ticket);
        let settling = self.settling.iter().copied().min();
        holding.into_iter().chain(queued).chain(settling).min()
    }
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::{Mood, Order, Refusal, Ticket};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Names = Order<&'static str, &'static str>;

    /// One thing that happens to an order, and what must come of it.
    enum Step {
        Immediate(Result<Ticket, Refusal>),
        Deferred(&'static str, Result<Ticket, Refusal>),
        /// The next call, by name.
        Next(Option<&'static str>),
        /// The call that joins, by name, when only these may.
        Join(&'static [&'static str], Option<&'static str>),
        Withdraw(Ticket, Option<&'static str>),
        Release,
        Settled(Ticket),
        Drain(&'static str, Result<(), Refusal>),
        Watch(&'static str),
        Drained(Option<&'static str>),
        Close,
        Finished(bool),
        Outstanding(usize),
    }
    use Refusal::{Contended, Freed, Limit};
    use Step::*;

    fn play(name: &str, limit: u64, steps: &[Step]) {
        let mut order = Names::new(limit);
        for (at, step) in steps.iter().enumerate() {
            let step_name = format!("{name}, step {at}");
            match step {
                Immediate(wanted) => assert_eq!(order.immediate(), *wanted, "{step_name}"),
                Deferred(call, wanted) => {
                    let got = order.deferred(call).map_err(|(refusal, back)| {
                        assert_eq!(back, *call);
                        refusal
                    });
                    assert_eq!(got, *wanted, "{step_name}");
                }
                Next(wanted) => {
                    assert_eq!(order.next().map(|(_, call)| call), *wanted, "{step_name}");
                }
                Join(may, wanted) => {
                    let joined = order.join(|call| may.contains(call));
                    assert_eq!(joined.map(|(_, call)| call), *wanted, "{step_name}");
                }
                Withdraw(ticket, wanted) => {
                    assert_eq!(order.withdraw(*ticket), *wanted, "{step_name}");
                }
                Release => order.release(),
                Settled(ticket) => order.settled(*ticket),
                Drain(waiter, wanted) => {
                    let got = order.drain(Mood::Spinning, waiter);
                    assert_eq!(got.map_err(|(refusal, _)| refusal), *wanted, "{step_name}");
                }
                Watch(waiter) => order.watch(waiter),
                Drained(wanted) => {
                    let waiter = order.drained().map(|(_, waiter)| waiter);
                    assert_eq!(waiter, *wanted, "{step_name}");
                }
                Close => order.close(),
                Finished(wanted) => assert_eq!(order.is_finished(), *wanted, "{step_name}"),
                Outstanding(wanted) => assert_eq!(order.outstanding(), *wanted, "{step_name}"),
            }
        }
    }

    #[test]
    fn corner_cases() {
        let cases: &[(&str, u64, &[Step])] = &[
            (
                "deferred calls come to hold one at a time, in order",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Next(Some("a")),
                    Next(None),
                    Release,
                    Next(Some("b")),
                    Settled(0),
                    Next(None),
                ],
            ),
            (
                "an immediate call is refused by a queued and by a holding call, not by a settling one",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Immediate(Err(Contended)),
                    Next(Some("a")),
                    Immediate(Err(Contended)),
                    Release,
                    Immediate(Ok(1)),
                    Immediate(Err(Contended)),
                    Release,
                    Settled(1),
                    Immediate(Ok(2)),
                ],
            ),
            (
                "a deferred call is refused while an immediate one holds",
                9,
                &[
                    Immediate(Ok(0)),
                    Deferred("a", Err(Contended)),
                    Release,
                    Deferred("a", Ok(1)),
                ],
            ),
            (
                "the limit counts the queued and the running, not the settling",
                2,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Deferred("c", Err(Limit(2))),
                    Next(Some("a")),
                    Outstanding(2),
                    Deferred("c", Err(Limit(2))),
                    Release,
                    Outstanding(1),
                    Deferred("c", Ok(2)),
                ],
            ),
            (
                "a withdrawn call makes room and never runs; a running one stays",
                2,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Next(Some("a")),
                    Withdraw(0, None),
                    Withdraw(1, Some("b")),
                    Withdraw(1, None),
                    Outstanding(1),
                    Deferred("c", Ok(2)),
                    Release,
                    Next(Some("c")),
                ],
            ),
            (
                "only the neighbour in the queue joins, and only while a call holds",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Deferred("c", Ok(2)),
                    Deferred("d", Ok(3)),
                    Deferred("e", Ok(4)),
                    Join(&["a", "b", "c"], None),
                    Next(Some("a")),
                    Withdraw(1, Some("b")),
                    Join(&["b", "c", "e"], Some("c")),
                    Join(&["b", "c", "e"], None),
                    Next(None),
                    Release,
                    Join(&["d"], None),
                    Next(Some("d")),
                    Join(&["e"], Some("e")),
                    Join(&["e"], None),
                ],
            ),
            (
                "calls that hold as one count, and are waited for, one by one",
                3,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Deferred("c", Ok(2)),
                    Next(Some("a")),
                    Join(&["b", "c"], Some("b")),
                    Join(&["b", "c"], Some("c")),
                    Outstanding(3),
                    Deferred("d", Err(Limit(3))),
                    Immediate(Err(Contended)),
                    Withdraw(1, None),
                    Drain("drain", Ok(())),
                    Release,
                    Outstanding(0),
                    Settled(0),
                    Settled(1),
                    Drained(None),
                    Immediate(Ok(3)),
                    Settled(2),
                    Drained(Some("drain")),
                ],
            ),
            (
                "no call joins across a drain, or joins an immediate call",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Deferred("b", Ok(1)),
                    Drain("drain", Ok(())),
                    Deferred("c", Ok(2)),
                    Next(Some("a")),
                    Join(&["b", "c"], Some("b")),
                    Join(&["b", "c"], None),
                    Release,
                    Settled(0),
                    Settled(1),
                    Drained(Some("drain")),
                    Next(Some("c")),
                    Release,
                    Settled(2),
                    Immediate(Ok(3)),
                    Deferred("d", Err(Contended)),
                    Join(&["d"], None),
                ],
            ),
            (
                "a drain waits for the calls before it, and for none after",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Drain("first", Ok(())),
                    Deferred("b", Ok(1)),
                    Drain("second", Ok(())),
                    Drained(None),
                    Next(Some("a")),
                    Drained(None),
                    Release,
                    Drained(None),
                    Settled(0),
                    Drained(Some("first")),
                    Drained(None),
                    Next(Some("b")),
                    Release,
                    Settled(1),
                    Drained(Some("second")),
                    Drained(None),
                ],
            ),
            (
                "a drain of an idle order is over at once; one of an immediate call when that ends",
                9,
                &[
                    Drain("idle", Ok(())),
                    Drained(Some("idle")),
                    Immediate(Ok(0)),
                    Drain("busy", Ok(())),
                    Drained(None),
                    Release,
                    Settled(0),
                    Drained(Some("busy")),
                ],
            ),
            (
                "a drain waits for a withdrawn call until its end was told",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Drain("drain", Ok(())),
                    Withdraw(0, Some("a")),
                    Drained(None),
                    Settled(0),
                    Drained(Some("drain")),
                ],
            ),
            (
                "closing refuses what is new and lets the rest finish",
                9,
                &[
                    Deferred("a", Ok(0)),
                    Close,
                    Deferred("b", Err(Freed)),
                    Immediate(Err(Freed)),
                    Drain("drain", Err(Freed)),
                    Watch("free"),
                    Finished(false),
                    Next(Some("a")),
                    Release,
                    Finished(false),
                    Drained(None),
                    Settled(0),
                    Finished(true),
                    Drained(Some("free")),
                ],
            ),
            (
                "freed outranks contended and limit",
                1,
                &[
                    Immediate(Ok(0)),
                    Close,
                    Immediate(Err(Freed)),
                    Deferred("a", Err(Freed)),
                ],
            ),
        ];
        for (name, limit, steps) in cases {
            play(name, *limit, steps);
        }
    }

    proptest! {
        /// Whatever happens in whatever order: one holder and its neighbours, ascending
        /// tickets, the limit kept, and a drain over exactly when all before it are.
        #[test]
        fn the_rule_holds(moves in prop::collection::vec((0..9u8, 0..40u64), 1..120)) {
            const LIMIT: u64 = 4;
            let mut order: Order<(), u64> = Order::new(LIMIT);
            // What the model knows of each ticket that is not over.
            let mut open: BTreeMap<Ticket, &str> = BTreeMap::new();
            // Every drain there was.
            let mut drains: Vec<Ticket> = Vec::new();
            let (mut given, mut started) = (0, None);
            for (what, which) in moves {
                let holding = open.iter().find(|(_, state)| state.ends_with("holding"));
                let holding = holding.map(|(ticket, state)| (*ticket, *state));
                let queued = open.values().filter(|state| **state == "queued").count();
                match what {
                    0 => {
                        let wanted = if holding.is_some() || queued > 0 { Err(Contended) } else { Ok(given) };
                        prop_assert_eq!(order.immediate(), wanted);
                        if wanted.is_ok() {
                            open.insert(given, "immediate holding");
                            given += 1;
                        }
                    }
                    1 | 2 => {
                        let running = open.values().filter(|state| state.ends_with("holding")).count();
                        let wanted = match holding {
                            Some((_, "immediate holding")) => Err(Contended),
                            _ if (queued + running) as u64 >= LIMIT => Err(Limit(LIMIT)),
                            _ => Ok(given),
                        };
                        prop_assert_eq!(order.deferred(()).map_err(|(refusal, ())| refusal), wanted);
                        if wanted.is_ok() {
                            open.insert(given, "queued");
                            given += 1;
                        }
                    }
                    3 => match order.next() {
                        Some((ticket, ())) => {
                            prop_assert!(holding.is_none());
                            prop_assert!(started.is_none_or(|last| last < ticket));
                            prop_assert_eq!(open.insert(ticket, "deferred holding"), Some("queued"));
                            started = Some(ticket);
                        }
                        None => prop_assert!(holding.is_some() || queued == 0),
                    },
                    4 => {
                        let was_queued = open.get(&which) == Some(&"queued");
                        prop_assert_eq!(order.withdraw(which).is_some(), was_queued);
                        if was_queued {
                            open.insert(which, "settling");
                        }
                    }
                    5 => {
                        order.release();
                        for state in open.values_mut().filter(|state| state.ends_with("holding")) {
                            *state = "settling";
                        }
                    }
                    6 => {
                        if open.get(&which) == Some(&"settling") {
                            order.settled(which);
                            open.remove(&which);
                        }
                    }
                    7 => {
                        let first = open.iter().find(|(_, state)| **state == "queued").map(|(ticket, _)| *ticket);
                        let apart = |before: &u64| Some(*before) > started && first.is_some_and(|first| *before <= first);
                        let wanted = match holding {
                            Some((_, "deferred holding")) if which > 0 && !drains.iter().any(apart) => first,
                            _ => None,
                        };
                        prop_assert_eq!(order.join(|()| which > 0).map(|(ticket, ())| ticket), wanted);
                        if let Some(ticket) = wanted {
                            open.insert(ticket, "deferred holding");
                            started = wanted;
                        }
                    }
                    _ => {
                        prop_assert!(order.drain(Mood::Parked, given).is_ok());
                        drains.push(given);
                    }
                }
                while let Some((_, before)) = order.drained() {
                    prop_assert!(open.keys().all(|ticket| *ticket >= before));
                }
                let oldest = open.keys().next().copied().unwrap_or(Ticket::MAX);
                prop_assert!(order.drains.iter().all(|drain| drain.before > oldest));
            }
        }
    }
}
