//! What one environment, the main thread or a worker, owns, and how it ends.
//!
//! An environment's threads must all have ended before Node may unload the
//! addon's image, and a worker can be terminated at any instruction. So the
//! environment knows every executor and pool that may still have a thread, also those
//! JavaScript has freed or forgotten, and its cleanup hook stops and joins them: executors
//! first, since they borrow pools. A pool that another environment's executor still
//! borrows is left to that executor, which joins it.

use crate::{
    channel::{Channel, Ticket},
    errors::{Result, internal, refusal},
};
use napi::{Env, Error, check_status, sys};
use std::{
    cell::{Cell, OnceCell, RefCell},
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
};
use uform::{
    executor::{Executor, ThreadPool},
    mesh::{Mesh, WeakMesh},
    placement::RamOptions,
};

/// The state of one environment. It lives on that environment's JS thread.
pub struct Environment {
    env: sys::napi_env,
    channel: Arc<Channel>,
    /// Every executor that may still have a thread.
    executors: RefCell<Vec<Executor>>,
    /// Every pool that may still have a thread.
    pools: RefCell<Vec<ThreadPool>>,
    /// Every mesh that may still be of a run.
    meshes: RefCell<Vec<WeakMesh>>,
    /// Its thread copies vectors from devices; made for the first copy.
    copies: OnceCell<Executor>,
    /// Deferred calls whose outcome was not delivered yet.
    outstanding: Cell<usize>,
    /// Bytes outside the collector's heap that it is yet to be told of.
    untold: Cell<i64>,
    closed: Cell<bool>,
}

impl Environment {
    /// Sets up the environment in which the addon is being loaded.
    pub fn open(env: Env) -> napi::Result<()> {
        let raw = env.raw();
        let environment = Rc::new(Environment {
            env: raw,
            channel: Channel::open(raw)?,
            executors: RefCell::default(),
            pools: RefCell::default(),
            meshes: RefCell::default(),
            copies: OnceCell::new(),
            outstanding: Cell::new(0),
            untold: Cell::new(0),
            closed: Cell::new(false),
        });
        let hook = Rc::into_raw(Rc::clone(&environment));
        env.set_instance_data(environment, (), |_| ())?;
        // Node runs hooks in reverse: this one, added after the channel was opened, runs before
        // the channel's function is deleted.
        // SAFETY: `close` takes back the count that `into_raw` gave away; Node calls it once.
        check_status!(unsafe {
            sys::napi_add_env_cleanup_hook(raw, Some(close), hook.cast_mut().cast())
        })
    }

    /// The environment being run, on its JS thread.
    pub fn of(env: sys::napi_env) -> napi::Result<Rc<Environment>> {
        Env::from_raw(env)
            .get_instance_data::<Rc<Environment>>()?
            .map(|environment| Rc::clone(environment))
            .ok_or_else(|| Error::from_reason("this environment has no uform addon loaded"))
    }

    /// Remembers an executor until its threads have ended.
    pub fn adopt(&self, executor: &Executor) {
        self.forget_finished();
        self.executors.borrow_mut().push(executor.clone());
    }

    /// The executor of copies from devices, which wait for those and must keep no other call waiting. Its
    /// one thread ends with the environment.
    pub fn copies(&self) -> Result<&Executor> {
        if let Some(copies) = self.copies.get() {
            return Ok(copies);
        }
        let options = RamOptions {
            threads: Some(1),
            // No caller chose this limit, so none could raise it.
            deferred_limit: Some(u64::MAX),
            ..RamOptions::default()
        };
        let copies = Executor::for_ram(&options).map_err(refusal)?;
        self.adopt(&copies);
        Ok(self.copies.get_or_init(|| copies))
    }

    /// Remembers a pool until its threads have ended.
    pub fn adopt_pool(&self, pool: &ThreadPool) {
        self.forget_finished();
        self.pools.borrow_mut().push(pool.clone());
    }

    /// Remembers a mesh until it is freed or forgotten.
    pub fn adopt_mesh(&self, mesh: &Mesh) {
        let mut meshes = self.meshes.borrow_mut();
        meshes.retain(WeakMesh::is_there);
        meshes.push(mesh.downgrade());
    }

    /// Removes what meshes have written, where the process may end without anything else.
    pub fn leave_runs(&self) {
        for mesh in self.meshes.take() {
            mesh.leave();
        }
    }

    /// Lets go of what has no thread left, and with it of what it borrows.
    pub fn forget_finished(&self) {
        let mut executors = self.executors.borrow_mut();
        executors.retain(|executor| !executor.is_finished());
        self.pools.borrow_mut().retain(|pool| !pool.is_finished());
    }

    /// Whether it has stopped everything, and is going.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Lets go of an executor that has no handle any more. It finishes
    /// its calls and ends its threads by itself, and stays known until then.
    pub fn retire(&self, executor: &Executor) {
        if !self.closed.get() {
            executor.retire();
            // One that never had a thread cannot itself give back what it borrows.
            self.forget_finished();
        }
    }

    /// Lets go of a pool that has no handle any more, in the same way.
    pub fn retire_pool(&self, pool: &ThreadPool) {
        if !self.closed.get() {
            pool.retire();
            self.forget_finished();
        }
    }

    /// A ticket for a deferred call about to be submitted, which keeps the
    /// process alive until `settle(error, value)` was called.
    pub fn ticket(&self, settle: sys::napi_value) -> Result<Ticket> {
        let ticket = Ticket::issue(&self.channel, self.env, settle).map_err(internal)?;
        if self.outstanding.replace(self.outstanding.get() + 1) == 0 {
            self.channel.keep_alive(self.env, true);
        }
        Ok(ticket)
    }

    /// One outcome was delivered.
    pub fn settled(&self) {
        self.outstanding
            .set(self.outstanding.get().saturating_sub(1));
        if self.outstanding.get() == 0 {
            self.channel.keep_alive(self.env, false);
        }
    }

    /// Tells the collector how much memory outside its heap came or went, in bytes.
    pub fn account(&self, bytes: i64) {
        // The heap goes as a whole, and a collection in the middle of its end is none of ours to start.
        if self.closed.get() {
            return;
        }
        // What it was not told of cannot go.
        let bytes = match bytes {
            ..0 => bytes + self.untold.take(),
            _ => bytes,
        };
        let mut now = 0;
        if bytes != 0 {
            // SAFETY: on the JS thread, which handles of this environment never leave. A
            // failure costs the collector a hint and nothing else.
            unsafe { sys::napi_adjust_external_memory(self.env, bytes, &mut now) };
        }
    }

    /// Stops everything and joins every thread.
    fn close(&self) {
        self.closed.set(true);
        self.channel.close();
        for executor in self.executors.take() {
            executor.abandon();
        }
        for pool in self.pools.take() {
            // Refused when another environment's executor borrows it: that one ends it.
            if pool.free().is_err() {
                pool.retire();
            }
        }
    }
}

unsafe extern "C" fn close(environment: *mut c_void) {
    // SAFETY: `open` gave one count of the `Rc` to this hook.
    let environment = unsafe { Rc::from_raw(environment.cast_const().cast::<Environment>()) };
    // A panic may not cross into Node; the environment ends either way.
    let _ = catch_unwind(AssertUnwindSafe(|| environment.close()));
}

/// A running account of the memory one handle keeps outside the collector's heap.
pub struct Account {
    environment: Rc<Environment>,
    bytes: Cell<i64>,
}

impl Account {
    /// An account of nothing yet.
    pub fn new(environment: Rc<Environment>) -> Self {
        Account {
            environment,
            bytes: Cell::new(0),
        }
    }

    /// The environment the handle belongs to.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Sets what a new handle keeps, which the collector is told of when the next one sets it so. It begins to
    /// search at once when it is told of a model; but of what is new nothing is garbage, and the search
    /// would take the cores from the first call.
    pub fn set_first(&self, bytes: usize) {
        let environment = &self.environment;
        environment.account(environment.untold.take());
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes.set(bytes);
        environment.untold.set(bytes);
    }

    /// Sets what the handle keeps now.
    pub fn set(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.environment.account(bytes - self.bytes.replace(bytes));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
    }
}
