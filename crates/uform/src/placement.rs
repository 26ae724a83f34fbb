//! Where the caller wants threads and bytes: options as they were given.
//! What they resolve to on this machine is the executor's to know.

use crate::hardware::CpuClass;

/// How many deferred calls may be outstanding on an executor when nothing else was said.
pub const DEFAULT_DEFERRED_LIMIT: usize = 1024;

/// The most host threads one executor takes.
pub const MOST_THREADS: usize = 1024;

/// Options of an executor for models that reside in host memory. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct RamOptions {
    /// How many threads; absent: 7/8 of the cores this process may use, at least one.
    pub threads: Option<usize>,
    /// The kernels' class; absent: the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// The most deferred calls outstanding; absent: [`DEFAULT_DEFERRED_LIMIT`].
    pub deferred_limit: Option<usize>,
}

/// Options of an executor on a borrowed pool. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// The kernels' class; absent: the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// The most deferred calls outstanding; absent: [`DEFAULT_DEFERRED_LIMIT`].
    pub deferred_limit: Option<usize>,
}

/// Options of a pool to be shared. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct ThreadPoolOptions {
    /// How many threads; absent: 7/8 of the cores this process may use, at least one.
    pub threads: Option<usize>,
    /// What its threads are called, 1 to 15 bytes; absent: `uform-pool`.
    pub name: Option<String>,
}
