//! What is behind both interfaces: devices, and what is made on them.
//!
//! Handles are numbers that are looked up, so that one that is none is refused. A device's first
//! fault stays: everything that asks it anything is told of that.
//!
//! `memory` is a device's own, and what it reaches of its peers'; `stream` what happens in which
//! order; `code` modules, kernels and their launches; `multicast` the objects by which a switch
//! writes to several devices at once.

mod code;
mod host;
mod memory;
mod multicast;
mod stream;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys::CUresult;

use crate::environment::{Described, Faults, devices, faults};
use crate::ptx;
use code::Kernel;
use memory::{Allocation, Memory};
use multicast::Multicasts;
use stream::Stream;

pub use host::HostFunction;
pub use multicast::GRANULARITY;

// The codes of CUDA, as integers. HIP has the same.
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: u32 = CUresult::CUDA_ERROR_INVALID_VALUE as u32;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
/// `CUDA_ERROR_NOT_INITIALIZED`.
pub const NOT_INITIALIZED: u32 = CUresult::CUDA_ERROR_NOT_INITIALIZED as u32;
/// `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
/// `CUDA_ERROR_INVALID_DEVICE`.
pub const INVALID_DEVICE: u32 = CUresult::CUDA_ERROR_INVALID_DEVICE as u32;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: u32 = CUresult::CUDA_ERROR_INVALID_CONTEXT as u32;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
pub const NO_BINARY: u32 = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as u32;
/// `CUDA_ERROR_INVALID_PTX`.
pub const INVALID_PTX: u32 = CUresult::CUDA_ERROR_INVALID_PTX as u32;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
pub const UNSUPPORTED_PTX_VERSION: u32 = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as u32;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub const INVALID_HANDLE: u32 = CUresult::CUDA_ERROR_INVALID_HANDLE as u32;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: u32 = CUresult::CUDA_ERROR_NOT_FOUND as u32;
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
pub const OUT_OF_RESOURCES: u32 = CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES as u32;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub const PEER_ALREADY_ENABLED: u32 = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
pub const PEER_NOT_ENABLED: u32 = CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED as u32;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: u32 = CUresult::CUDA_ERROR_NOT_SUPPORTED as u32;
/// `CUDA_ERROR_SYSTEM_NOT_READY`.
pub const SYSTEM_NOT_READY: u32 = CUresult::CUDA_ERROR_SYSTEM_NOT_READY as u32;

/// What a call returns if not 0.
pub type Answer<T> = Result<T, u32>;

/// A vendor's devices and all that was made on them.
pub struct Machine {
    /// Them.
    pub devices: Vec<Arc<Device>>,
    faults: Faults,
    calls: AtomicU64,
    allocations: AtomicU64,
    launches: AtomicU64,
    handles: AtomicU64,
    streams: Mutex<HashMap<usize, Arc<Stream>>>,
    modules: Mutex<HashMap<usize, Arc<ptx::Module>>>,
    kernels: Mutex<HashMap<usize, Kernel>>,
    host: Mutex<HashMap<usize, Allocation>>,
    multicasts: Mutex<Multicasts>,
}

/// A device.
pub struct Device {
    /// What it is.
    pub described: Described,
    index: usize,
    memory: Mutex<Memory>,
    /// Devices whose memory it reaches beside its own.
    peers: Mutex<Vec<Arc<Device>>>,
    fault: Mutex<Option<(u32, String)>>,
    contexts: AtomicU64,
}

thread_local! {
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Machine {
    /// The machine that the environment describes under a variable.
    pub fn from_environment(variable: &str) -> Machine {
        let value = |name| std::env::var(name).unwrap_or_default();
        let faults = faults(&value("FAKE_CUDA_FAULT"));
        let devices = devices(&value(variable));
        let (described, faults) = match (devices, faults) {
            (Ok(devices), Ok(faults)) => (devices, faults),
            (Err(wrong), _) | (_, Err(wrong)) => {
                // A test that was misspelled must not pass for one.
                eprintln!("fake-gpu: {wrong}");
                std::process::abort();
            }
        };
        Machine::of(described, faults)
    }

    /// A machine of these devices, where this goes wrong.
    pub fn of(devices: Vec<Described>, faults: Faults) -> Machine {
        let devices = devices.into_iter().enumerate().map(|(index, described)| {
            Arc::new(Device {
                described,
                index,
                memory: Mutex::default(),
                peers: Mutex::default(),
                fault: Mutex::default(),
                contexts: AtomicU64::new(0),
            })
        });
        Machine {
            devices: devices.collect(),
            faults,
            calls: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            handles: AtomicU64::new(0x1000),
            streams: Mutex::default(),
            modules: Mutex::default(),
            kernels: Mutex::default(),
            host: Mutex::default(),
            multicasts: Mutex::default(),
        }
    }

    /// Counts a call, which may be the one that returns a code.
    pub fn called(&self) -> Answer<()> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        match self.faults.code {
            Some((when, code)) if when == call => Err(code),
            _ => Ok(()),
        }
    }

    /// What is alive, as a line of JSON.
    pub fn counts(&self) -> String {
        let devices = || self.devices.iter();
        let contexts: u64 = devices().map(|device| device.contexts.load(SeqCst)).sum();
        let memory = devices().map(|device| locked(&device.memory).count());
        format!(
            "{{\"contexts\":{contexts},\"allocations\":{},\"hostAllocations\":{},\"streams\":{},\
             \"modules\":{},\"multicasts\":{},\"launches\":{}}}\n",
            memory.sum::<usize>(),
            locked(&self.host).len(),
            locked(&self.streams).len(),
            locked(&self.modules).len(),
            locked(&self.multicasts).count(),
            self.launches.load(SeqCst),
        )
    }

    fn handle(&self) -> usize {
        self.handles.fetch_add(0x10, SeqCst) as usize
    }

    /// The device of an index.
    pub fn device(&self, index: i32) -> Answer<&Arc<Device>> {
        let index = usize::try_from(index).map_err(|_| INVALID_DEVICE)?;
        self.devices.get(index).ok_or(INVALID_DEVICE)
    }

    /// The thread's device, unless it faulted.
    pub fn current(&self) -> Answer<&Arc<Device>> {
        let index = current().ok_or(INVALID_CONTEXT)?;
        let device = self.devices.get(index).ok_or(INVALID_CONTEXT)?;
        device.check()?;
        Ok(device)
    }

    /// The words of the first fault that any device had.
    pub fn fault_words(&self) -> Option<String> {
        let faults = self
            .devices
            .iter()
            .map(|device| locked(&device.fault).clone());
        faults.flatten().map(|(_, words)| words).next()
    }
}

/// The device whose context the thread has entered.
pub fn current() -> Option<usize> {
    CURRENT.get()
}

/// Enters a device's context, or none.
pub fn enter(index: Option<usize>) {
    CURRENT.set(index);
}

impl Device {
    fn check(&self) -> Answer<()> {
        locked(&self.fault)
            .as_ref()
            .map_or(Ok(()), |(code, _)| Err(*code))
    }

    fn fail(&self, code: u32, words: String) {
        locked(&self.fault).get_or_insert((code, words));
    }

    /// Counts contexts held, up or down.
    pub fn hold(&self, is_taken: bool) {
        match is_taken {
            true => self.contexts.fetch_add(1, SeqCst),
            false => self.contexts.fetch_sub(1, SeqCst),
        };
    }
}

impl Described {
    /// Its compute capability, ten times; `None`: it has none.
    pub fn capability(&self) -> Option<u32> {
        let (major, minor) = self.architecture.split_once('.')?;
        Some(major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?)
    }

    /// Whether a switch writes to it and others at once: datacenter devices from Hopper on.
    pub fn has_multicast(&self) -> bool {
        matches!(self.capability(), Some(90 | 100 | 103 | 107))
    }

    /// Shared memory that a block may ask for ("Technical Specifications per Compute Capability").
    fn most_shared(&self) -> u32 {
        match self.capability() {
            Some(80 | 87) => 163 << 10,
            Some(86 | 89 | 120 | 121) => 99 << 10,
            Some(_) => 227 << 10,
            None => 64 << 10,
        }
    }
}

/// A machine that is made when its library is started.
pub struct Started {
    machine: std::sync::OnceLock<Machine>,
    variable: &'static str,
}

impl Started {
    /// One that a variable describes.
    pub const fn by(variable: &'static str) -> Started {
        Started {
            machine: std::sync::OnceLock::new(),
            variable,
        }
    }

    /// Starts it. Without devices there is nothing to start.
    pub fn start(&'static self, at_exit: extern "C" fn()) -> Answer<()> {
        let machine = self.machine.get_or_init(|| {
            // SAFETY: takes nothing, and the library stays loaded.
            unsafe { libc::atexit(at_exit) };
            Machine::from_environment(self.variable)
        });
        machine.called()?;
        match machine.devices.is_empty() {
            true => Err(NO_DEVICE),
            false => Ok(()),
        }
    }

    /// It, if it was started.
    pub fn get(&'static self) -> Answer<&'static Machine> {
        self.machine.get().ok_or(NOT_INITIALIZED)
    }

    /// Appends what is alive to the file that a variable names.
    pub fn write_counts(&'static self) {
        let file = std::env::var_os("FAKE_GPU_COUNTS");
        if let (Some(file), Ok(machine)) = (file, self.get()) {
            let mut options = std::fs::OpenOptions::new();
            let opened = options.create(true).append(true).open(file);
            let write =
                |mut file| std::io::Write::write_all(&mut file, machine.counts().as_bytes());
            if let Err(error) = opened.and_then(write) {
                eprintln!("fake-gpu: FAKE_GPU_COUNTS: {error}");
            }
        }
    }
}
