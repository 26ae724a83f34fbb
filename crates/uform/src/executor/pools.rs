//! The pools this process borrows or spawned, and which executor may use each next.
//!
//! A pool takes one call at a time, and several executors may borrow it, in
//! several environments. So all that borrow one address share one [`Pool`], which knows
//! who is on it and who waits:
//!
//! - A deferred call waits for its *turn* in its executor's queue. The executor stands in line, in
//!   one place however many calls it has, from when the first was queued. Its conductor is rung
//!   when the pool is free and it is the first. An executor that has more to do lines up anew,
//!   behind the others, before its turn ends.
//! - An immediate call does not wait: a pool that is used, or waited for, is contended.
//!
//! It also counts borrowers, and knows the thread that keeps a pool of ours
//! ([`ThreadPool`](super::ThreadPool)) alive, so that none is deleted under an executor.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::process;
use std::ptr;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use super::bell::Bell;
use super::sync::{Mutex, lock};
use super::thread_pool::Keeper;
use crate::{Error, Result, Status};

/// Every pool in use, by address. It is shared by all environments, because addresses are.
static POOLS: std::sync::Mutex<Pools> = std::sync::Mutex::new(Pools::new());

type Pools = BTreeMap<usize, Weak<Pool>>;

fn pools() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One pool, as the executors of this process share it.
pub(super) struct Pool {
    address: usize,
    /// The process that its threads run in, as far as is known.
    process: u32,
    state: Mutex<State>,
}

struct State {
    owner: Owner,
    /// How many executors borrow it.
    borrowers: usize,
    /// Whether a call is on it.
    used: bool,
    /// The executors that wait for their turn.
    line: VecDeque<Waiting>,
}

/// Who ends a pool.
enum Owner {
    /// Code outside this library.
    Foreign,
    /// The `ThreadPool` of this keeper.
    Ours(Keeper),
    /// The last borrower, since the `ThreadPool` was forgotten before.
    Left(Keeper),
    /// It is ending: its keeper was told, and may still have to be joined.
    Ending(Option<Keeper>),
}

/// An executor in line, by its name, and what to ring when it is its turn.
struct Waiting {
    executor: usize,
    bell: Arc<Bell>,
}

impl Pool {
    /// The pool at an address, as others know it or as a stranger's.
    pub(super) fn at(address: usize) -> Arc<Pool> {
        let mut pools = pools();
        if let Some(pool) = pools.get(&address).and_then(Weak::upgrade) {
            return pool;
        }
        Pool::enter(&mut pools, address, Owner::Foreign)
    }

    /// A pool just spawned.
    pub(super) fn spawned(address: usize, keeper: Keeper) -> Arc<Pool> {
        Pool::enter(&mut pools(), address, Owner::Ours(keeper))
    }

    fn enter(pools: &mut Pools, address: usize, owner: Owner) -> Arc<Pool> {
        pools.retain(|_, pool| pool.strong_count() > 0);
        let pool = Arc::new(Pool {
            address,
            process: process::id(),
            state: Mutex::new(State {
                owner,
                borrowers: 0,
                used: false,
                line: VecDeque::new(),
            }),
        });
        pools.insert(address, Arc::downgrade(&pool));
        pool
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    /// Whether this process is the one that has the pool's threads.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Counts one more borrower, until it is dropped.
    pub(super) fn borrow(self: &Arc<Self>) -> Result<Loan> {
        if !self.is_of_this_process() {
            return Err(Error::unsupported(format!(
                "this process is a fork() of process {}, which has the pool's threads: threads do \
                 not survive a fork, so spawn the pool in the process that uses it",
                self.process
            )));
        }
        let mut state = lock(&self.state);
        if matches!(state.owner, Owner::Ending(_)) {
            return Err(Error::new(
                Status::Freed,
                "the ThreadPool at this address was freed: spawn a new one",
            ));
        }
        state.borrowers += 1;
        Ok(Loan(Arc::clone(self)))
    }

    /// Ends a pool of ours and waits until its threads have ended. Again: nothing.
    pub(super) fn end(&self) -> Result<()> {
        let keeper = {
            let mut state = lock(&self.state);
            if state.borrowers > 0 {
                return Err(Error::invalid(format!(
                    "the ThreadPool is borrowed by executors that were not freed ({}): free them \
                     first, since a pool must outlive its executors",
                    state.borrowers
                )));
            }
            state.take_keeper()
        };
        self.join(keeper);
        Ok(())
    }

    /// Lets the threads of a pool of ours end by themselves, once no executor borrows it.
    pub(super) fn leave(&self) {
        let mut state = lock(&self.state);
        let borrowed = state.borrowers > 0;
        state.owner = match mem::replace(&mut state.owner, Owner::Foreign) {
            Owner::Ours(keeper) if borrowed => Owner::Left(keeper),
            Owner::Ours(mut keeper) => {
                self.forget();
                keeper.tell();
                Owner::Ending(Some(keeper))
            }
            other => other,
        };
    }

    /// Whether only its borrowers are left to end the pool, or has no thread left.
    pub(super) fn is_over(&self) -> bool {
        match &lock(&self.state).owner {
            Owner::Ours(_) => false,
            Owner::Ending(Some(keeper)) => keeper.has_ended(),
            Owner::Foreign | Owner::Left(_) | Owner::Ending(None) => true,
        }
    }

    /// What the system refused to the threads of a pool of ours, a sentence each.
    pub(super) fn refused(&self) -> Vec<String> {
        match &lock(&self.state).owner {
            Owner::Ours(keeper) | Owner::Left(keeper) => keeper.refused().to_vec(),
            Owner::Foreign | Owner::Ending(_) => Vec::new(),
        }
    }

    /// Ends the keeper that was taken, and waits for it.
    fn join(&self, keeper: Option<Keeper>) {
        if let Some(keeper) = keeper {
            self.forget();
            keeper.end();
        }
    }

    /// The address may be another pool's from now on.
    fn forget(&self) {
        let mut pools = pools();
        if let Some(pool) = pools.get(&self.address)
            && ptr::eq(pool.as_ptr(), self)
        {
            pools.remove(&self.address);
        }
    }

    /// Lets an executor's conductor use the pool, if it is its turn; else it stands in line.
    pub(super) fn turn(self: &Arc<Self>, executor: usize, bell: &Arc<Bell>) -> Option<Turn> {
        let mut state = lock(&self.state);
        let first = state.line.front();
        if state.used || first.is_some_and(|first| first.executor != executor) {
            state.line_up(executor, bell);
            return None;
        }
        state.line.pop_front();
        state.used = true;
        Some(Turn(Arc::clone(self)))
    }

    /// Puts an executor in line, if it is not. Its bell is rung when it may be its turn.
    pub(super) fn line_up(&self, executor: usize, bell: &Arc<Bell>) {
        lock(&self.state).line_up(executor, bell);
    }

    /// Lets an immediate call use the pool, unless it is used or waited for.
    pub(super) fn turn_now(self: &Arc<Self>) -> Result<Turn> {
        let mut state = lock(&self.state);
        if state.used || !state.line.is_empty() {
            return Err(Error::new(
                Status::Contended,
                "a call of another executor on the same pool uses it or waits for it: wait for it \
                 first, or use a pool of its own for work that should overlap",
            ));
        }
        state.used = true;
        Ok(Turn(Arc::clone(self)))
    }

    /// Gives up an executor's place in line, if it has one.
    pub(super) fn step_out(&self, executor: usize) {
        let mut state = lock(&self.state);
        if let Some(position) = state.position_of(executor) {
            state.line.remove(position);
            state.ring_first();
        }
    }
}

impl State {
    fn position_of(&self, executor: usize) -> Option<usize> {
        self.line
            .iter()
            .position(|waiting| waiting.executor == executor)
    }

    fn line_up(&mut self, executor: usize, bell: &Arc<Bell>) {
        if self.position_of(executor).is_none() {
            let bell = Arc::clone(bell);
            self.line.push_back(Waiting { executor, bell });
        }
    }

    /// Tells the first in line that it may be its turn.
    fn ring_first(&self) {
        if let Some(first) = self.line.front()
            && !self.used
        {
            first.bell.ring(1);
        }
    }

    /// The keeper, if the pool has one: it is to be ended.
    fn take_keeper(&mut self) -> Option<Keeper> {
        match mem::replace(&mut self.owner, Owner::Ending(None)) {
            Owner::Ours(keeper) | Owner::Left(keeper) => Some(keeper),
            Owner::Ending(keeper) => keeper,
            Owner::Foreign => {
                self.owner = Owner::Foreign;
                None
            }
        }
    }
}

/// The right to use a pool, for one call.
pub(super) struct Turn(Arc<Pool>);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.used = false;
        state.ring_first();
    }
}

/// One executor's borrowing of a pool.
pub(super) struct Loan(Arc<Pool>);

impl Drop for Loan {
    /// The last borrower of a forgotten pool ends it.
    fn drop(&mut self) {
        if !self.0.is_of_this_process() {
            return;
        }
        let keeper = {
            let mut state = lock(&self.0.state);
            state.borrowers -= 1;
            match (&state.owner, state.borrowers) {
                (Owner::Left(_), 0) => state.take_keeper(),
                _ => None,
            }
        };
        self.0.join(keeper);
    }
}
