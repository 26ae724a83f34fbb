//! ForkUnion 3's C interface, as far as it is used: `forkunion.h` of the crate `forkunion`.
//!
//! The crate's own types cannot be made of an address, so its functions are declared here.
//!
//! A pool carries no version. It is recognised by what its memory must say: a way to wait that this
//! machine has, threads, and compute domains that add up to them. Another version's pool
//! keeps these elsewhere, and what is found in their place does not fit.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

// Links the library.
use forkunion as _;

use crate::placement::MOST_THREADS;
use crate::{Error, Result};

/// Called by each thread of a pool, with its number and that of its compute domain.
type Lane = extern "C" fn(*mut c_void, usize, usize);

// SAFETY: declared as in the crate's `include/forkunion.h`, whose version the manifest pins.
unsafe extern "C" {
    fn fu_topology_new() -> *mut c_void;
    fn fu_topology_delete(topology: *mut c_void);
    fn fu_runtime_capabilities() -> c_uint;
    fn fu_pool_new(name: *const c_char, allowed: c_uint) -> *mut c_void;
    fn fu_pool_delete(pool: *mut c_void);
    fn fu_pool_spawn(
        topology: *mut c_void,
        pool: *mut c_void,
        threads: usize,
        exclusivity: c_int,
    ) -> c_int;
    fn fu_pool_capabilities(pool: *mut c_void) -> c_uint;
    fn fu_pool_caller_exclusivity(pool: *mut c_void) -> c_int;
    fn fu_pool_threads_count(pool: *mut c_void) -> usize;
    fn fu_pool_compute_domains_count(pool: *mut c_void) -> usize;
    fn fu_pool_threads_count_in(pool: *mut c_void, compute_domain: usize) -> usize;
    fn fu_pool_unsafe_for_threads(pool: *mut c_void, lane: Lane, context: *mut c_void) -> usize;
    fn fu_pool_unsafe_join(pool: *mut c_void, generation: usize);
}

const INCLUSIVE: c_int = 0;

/// The capabilities that name a way to wait (`pause`, `tpause`, `yield`, `wfet`, `wrs`) or to hand
/// over a cache line (`cldemote`, `dc cvac`, `zicbom`). A spawned pool has no others.
const WAYS_TO_WAIT: c_uint = 0b11_1111 | 1 << 15 | 1 << 16 | 1 << 17;

/// The capability without which a pool is one set of threads, which ForkUnion does not place.
const PLACE_MEMORY_ON_DOMAIN: c_uint = 1 << 11;

/// Where a pool's memory begins: its parts have cache lines of their own, in pairs.
const ALIGNMENT: usize = 128;

/// A live pool, perhaps borrowed.
#[derive(Clone, Copy)]
pub(super) struct Handle(NonNull<c_void>);

// SAFETY: a pool may be operated by any thread, one at a time, which is asked of callers below.
unsafe impl Send for Handle {}
// SAFETY: as above; what is only read does not change while a pool lives.
unsafe impl Sync for Handle {}

impl Handle {
    /// The pool at an address.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when it is null or misaligned,
    /// or what is there does not look like a spawned pool of this version.
    ///
    /// # Safety
    /// Null, misaligned, or the address of a pool of any version of ForkUnion that no code
    /// spawns, terminates or deletes meanwhile.
    pub(super) unsafe fn at(address: usize) -> Result<Handle> {
        let refuse = |why: &str| {
            Error::invalid(format!(
                "pool is {address:#x}, {why}: expected the address of a live `fu_pool_t` of \
                 ForkUnion 3, such as ThreadPool.spawn gives"
            ))
        };
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(address);
        let Some(pool) = NonNull::new(pointer) else {
            return Err(refuse("which is null"));
        };
        if !address.is_multiple_of(ALIGNMENT) {
            return Err(refuse("which no pool's address is, being misaligned"));
        }
        let pool = Handle(pool);
        // SAFETY: the caller vouches for the address.
        match unsafe { pool.is_plausible() } {
            true => Ok(pool),
            false => Err(refuse(
                "where there is no pool with threads: it was not spawned, it was terminated, or it \
                 is of another version",
            )),
        }
    }

    /// Whether all that can be told of the memory is as in a spawned pool.
    ///
    /// # Safety
    /// The memory is readable.
    unsafe fn is_plausible(self) -> bool {
        let pool = self.0.as_ptr();
        // SAFETY: these read the pool's memory and change nothing. Its list of domains, which lies
        // elsewhere, is followed last.
        unsafe {
            let waits = fu_pool_capabilities(pool);
            if waits & !(WAYS_TO_WAIT & fu_runtime_capabilities()) != 0 || waits.count_ones() > 2 {
                return false;
            }
            let threads = fu_pool_threads_count(pool);
            let domains = fu_pool_compute_domains_count(pool);
            (1..=MOST_THREADS).contains(&threads)
                && (1..=threads).contains(&domains)
                && (0..domains)
                    .map(|domain| fu_pool_threads_count_in(pool, domain))
                    .try_fold(0usize, usize::checked_add)
                    == Some(threads)
        }
    }

    /// How many threads it has now; 0 once its owner terminated it.
    ///
    /// # Safety
    /// The pool was not deleted.
    pub(super) unsafe fn threads(self) -> usize {
        // SAFETY: the caller vouches for the pool.
        unsafe { fu_pool_threads_count(self.0.as_ptr()) }
    }

    /// Whether the thread that gives it work is one of its threads, number 0.
    ///
    /// # Safety
    /// The pool was not deleted.
    pub(super) unsafe fn is_inclusive(self) -> bool {
        // SAFETY: the caller vouches for the pool.
        unsafe { fu_pool_caller_exclusivity(self.0.as_ptr()) == INCLUSIVE }
    }

    /// Has each thread call `lane` once. Between the two closures' worth of time, `meanwhile` runs;
    /// then this waits, on an inclusive pool after calling `lane` as thread 0.
    ///
    /// # Safety
    /// The pool is live and has threads, and no other thread gives it work or waits for
    /// it. `lane` may be called with `context` until this returns, and does not unwind.
    pub(super) unsafe fn run(self, lane: Lane, context: *mut c_void, meanwhile: impl FnOnce()) {
        let pool = self.0.as_ptr();
        // SAFETY: the caller vouches for the pool, and for `lane` with `context`.
        let generation = unsafe { fu_pool_unsafe_for_threads(pool, lane, context) };
        meanwhile();
        // SAFETY: as above; the generation is the one in flight.
        unsafe { fu_pool_unsafe_join(pool, generation) };
    }
}

/// A pool made here, whose threads end when it is dropped.
pub(super) struct Spawned(Handle);

impl Spawned {
    /// Spawns an inclusive pool of so many threads, one of which is the thread that gives it work. The others
    /// inherit the calling thread's affinity, memory policy, name and signal mask, and keep
    /// them. `None` when the system refuses.
    pub(super) fn new(name: &CStr, threads: usize) -> Option<Spawned> {
        let topology = Topology::read()?;
        // SAFETY: the name is copied.
        let pool = unsafe { fu_pool_new(name.as_ptr(), !PLACE_MEMORY_ON_DOMAIN) };
        let spawned = Spawned(Handle(NonNull::new(pool)?));
        // SAFETY: both were made above; the topology is read during the call alone.
        let up = unsafe { fu_pool_spawn(topology.0.as_ptr(), pool, threads, INCLUSIVE) };
        (up != 0).then_some(spawned)
    }

    pub(super) fn address(&self) -> usize {
        self.0.0.as_ptr().expose_provenance()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // SAFETY: made by `new` and deleted once. The owner sees to it that no code uses it.
        unsafe { fu_pool_delete(self.0.0.as_ptr()) };
    }
}

/// The machine as ForkUnion reads it, which spawning asks for.
struct Topology(NonNull<c_void>);

impl Topology {
    fn read() -> Option<Topology> {
        // SAFETY: takes nothing.
        NonNull::new(unsafe { fu_topology_new() }).map(Topology)
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // SAFETY: made by `read` and deleted once.
        unsafe { fu_topology_delete(self.0.as_ptr()) };
    }
}
