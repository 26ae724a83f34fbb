//! A ForkUnion pool of our own, for programs that share one between packages.
//!
//! Its *keeper* is a thread that spawns the pool, sleeps while it lives, and deletes it. So what a
//! pool's threads inherit is never set on the caller's, and ending a pool blocks no thread
//! who does not want to wait.

use std::ffi::CString;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use super::affinity::{Here, pin_to_all};
use super::forkunion::Spawned;
use super::pools::Pool;
use super::threads::block_signals;
use crate::placement::{Placement, ThreadPoolOptions};
use crate::{Error, Result, Status, quoted};

/// What a pool's threads are called when nothing else was said.
const DEFAULT_NAME: &str = "uform-pool";

/// The longest name the system keeps of a thread, in bytes.
const LONGEST_NAME: usize = 15;

/// A live ForkUnion pool, to be borrowed by its address: by executors
/// ([`Executor::on_pool`](super::Executor::on_pool)), and by others. Clones are the same pool.
///
/// It is an inclusive pool: who gives it work is one of its threads meanwhile. The others spin for
/// as long as it lives, whether or not there is work: that is how ForkUnion waits, and what
/// sharing one pool spares. They stay on the cores of the memory domains asked for, and prefer their
/// memory; of none in particular, if none was. What the system refuses of it, an executor that borrows
/// the pool tells.
#[derive(Clone)]
pub struct ThreadPool(Arc<Owned>);

/// What the clones share. The registry keeps the pool alone.
struct Owned {
    pool: Arc<Pool>,
    threads: usize,
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.pool.is_of_this_process() {
            self.pool.leave();
        }
    }
}

impl ThreadPool {
    /// Spawns a pool and returns when it is live. The calling thread's affinity, name and signal
    /// mask are not touched.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for a count of threads that
    /// [`Executor::for_ram`](super::Executor::for_ram) refuses too, memory domains likewise, and for a name that is empty,
    /// longer than 15 bytes, or holds a NUL; [`OutOfMemory`](Status::OutOfMemory) when the system
    /// refuses a thread. Nothing is left behind.
    pub fn spawn(options: &ThreadPoolOptions) -> Result<ThreadPool> {
        let placement = Placement::here(&options.memory_domains)?;
        let threads = super::lanes_of(options.threads, &placement)?;
        let name = name_of(options.name.as_deref())?;
        let (pool, keeper) = Keeper::start(name, threads, placement)?;
        let pool = Pool::spawned(pool, keeper);
        Ok(ThreadPool(Arc::new(Owned { pool, threads })))
    }

    /// Where the `fu_pool_t` is. It is valid until the pool was freed.
    pub fn address(&self) -> usize {
        self.0.pool.address()
    }

    /// How many threads it has, at least one.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// Ends the pool's threads and waits until they have ended. It must not be in use: of our
    /// executors this is checked, of others it is the caller's to know. Again, or in a forked child,
    /// it does nothing.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) while an executor borrows it.
    pub fn free(&self) -> Result<()> {
        match self.0.pool.is_of_this_process() {
            true => self.0.pool.end(),
            false => Ok(()),
        }
    }

    /// Lets the threads end without waiting for them, or as soon as the executors that borrow the
    /// pool have ended. A later [`free`](Self::free) still waits. Dropping the last clone does this.
    pub fn retire(&self) {
        if self.0.pool.is_of_this_process() {
            self.0.pool.leave();
        }
    }

    /// Whether nothing is left to wait for: its threads have ended, or their end is
    /// the last borrower's.
    pub fn is_finished(&self) -> bool {
        !self.0.pool.is_of_this_process() || self.0.pool.is_over()
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("threads", &self.threads())
            .finish()
    }
}

/// What the threads are to be called.
fn name_of(name: Option<&str>) -> Result<CString> {
    let name = name.unwrap_or(DEFAULT_NAME);
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    match CString::new(name) {
        Ok(name) if fits => Ok(name),
        _ => Err(Error::invalid(format!(
            "name is {}: a thread's name has 1 to {LONGEST_NAME} bytes, none of them NUL; or \
             leave it out for {DEFAULT_NAME:?}",
            quoted::text(name)
        ))),
    }
}

/// The thread that keeps a pool alive until it is told.
pub(super) struct Keeper {
    /// The keeper listens for the end of this.
    until: Option<mpsc::Sender<()>>,
    thread: JoinHandle<()>,
    /// What the system refused to the pool's threads, a sentence each.
    refused: Vec<String>,
}

impl Keeper {
    /// Spawns a pool on a thread of its own. Returns where it is.
    fn start(name: CString, threads: usize, placement: Placement) -> Result<(usize, Keeper)> {
        let (up, is_up) = mpsc::channel();
        let (until, told) = mpsc::channel::<()>();
        // The pool's threads inherit the name, the cores and the memory policy.
        let thread = Builder::new()
            .name(name.to_string_lossy().into_owned())
            .spawn(move || {
                block_signals();
                let refused = pin_to_all(&placement, &Here);
                let pool = Spawned::new(&name, threads);
                _ = up.send(pool.as_ref().map(|pool| (pool.address(), refused)));
                if pool.is_some() {
                    // Nothing is ever sent: this ends with the sender.
                    _ = told.recv();
                }
            })
            .map_err(|error| refused(threads).because(error))?;
        let mut keeper = Keeper {
            until: Some(until),
            thread,
            refused: Vec::new(),
        };
        match is_up.recv() {
            Ok(Some((address, refused))) => {
                keeper.refused = refused;
                Ok((address, keeper))
            }
            _ => {
                keeper.end();
                Err(refused(threads))
            }
        }
    }

    /// What the system refused to the pool's threads, a sentence each.
    pub(super) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Has it delete the pool.
    pub(super) fn tell(&mut self) {
        self.until = None;
    }

    /// The same, and waits until the last thread has ended.
    pub(super) fn end(mut self) {
        self.tell();
        drop(self.thread.join());
    }

    /// Whether it has deleted the pool.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// The system refused a thread.
fn refused(threads: usize) -> Error {
    Error::new(
        Status::OutOfMemory,
        format!(
            "the system refused a thread to a pool of {threads} threads: ask for fewer \
             (`threads`), or raise the limit on processes or memory"
        ),
    )
}
