//! What a kernel needs to run: lanes that share one job's tasks.
//!
//! The executor's team implements [`ForkJoin`] with threads, [`Solo`] with the
//! calling thread alone. A kernel written against the trait runs the same
//! instructions for a task on either, which is what makes vectors bit-identical
//! on one thread or many.

/// Lanes that work on one job together and return together.
pub trait ForkJoin: Sync {
    /// How many lanes there are, at least one. A lane number is below this.
    fn lanes(&self) -> usize;

    /// Calls `body(lane, task)` once for each task below `tasks`, and returns
    /// when all are done. Tasks are claimed in ascending order by whichever lane is
    /// free; two tasks of one lane never overlap in time. A panic in a task is
    /// raised again here, after every lane has left the job.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync));
}

/// The calling thread as the only lane.
pub struct Solo;

impl ForkJoin for Solo {
    fn lanes(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        for task in 0..tasks {
            body(0, task);
        }
    }
}

/// Runs `work(lane_state, task)` for every task, each with the state of the lane
/// that took it. `states` holds one entry a lane; more are left untouched.
///
/// # Panics
/// When there are fewer states than lanes.
pub fn for_each<L: Send, T: Send>(
    team: &dyn ForkJoin,
    states: &mut [L],
    tasks: &mut [T],
    work: impl Fn(&mut L, &mut T) + Sync,
) {
    assert!(states.len() >= team.lanes(), "one state a lane");
    let states = Shared(states.as_mut_ptr());
    let items = Shared(tasks.as_mut_ptr());
    team.run(tasks.len(), &|lane, task| {
        // SAFETY: `run` hands each task out once, so no two calls share an
        // item, and never overlaps two tasks of a lane, so no two calls share a state.
        // Both indexes are in range by `run`'s contract and the assertion above.
        let (state, item) = unsafe { (&mut *states.at(lane), &mut *items.at(task)) };
        work(state, item);
    });
}

/// A pointer that lanes may share because each touches its own elements.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Shared<T> {
    /// The address of one element.
    ///
    /// # Safety
    /// `index` lies within the allocation, and no other lane has a reference to that element.
    pub(crate) unsafe fn at(&self, index: usize) -> *mut T {
        // SAFETY: the caller keeps the index in range.
        unsafe { self.0.add(index) }
    }

    /// Some elements.
    ///
    /// # Safety
    /// They lie within the allocation, and no other lane has a reference to one of them.
    #[allow(clippy::mut_from_ref)] // What the type is for; the caller says why it is sound.
    pub(crate) unsafe fn slice(&self, start: usize, length: usize) -> &mut [T] {
        // SAFETY: handed on to the caller.
        unsafe { std::slice::from_raw_parts_mut(self.at(start), length) }
    }
}

// SAFETY: `Shared` only carries an address; the code that dereferences it says why
// elements are not shared between lanes.
unsafe impl<T: Send> Sync for Shared<T> {}
