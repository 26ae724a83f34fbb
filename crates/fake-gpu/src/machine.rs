//! What is behind both interfaces: devices, their memory, streams and modules.
//!
//! Handles are numbers that are looked up, so that one that is none is refused. A device's first
//! fault stays: everything that asks it anything is told of that.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread;

use crate::environment::{Described, Faults, devices, faults};
use crate::ptx::{self, Grid};

/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NOT_INITIALIZED`.
pub const NOT_INITIALIZED: u32 = 3;
/// `CUDA_ERROR_NO_DEVICE`.
pub const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_INVALID_DEVICE`.
pub const INVALID_DEVICE: u32 = 101;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: u32 = 201;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`.
pub const NO_BINARY: u32 = 209;
/// `CUDA_ERROR_INVALID_PTX`.
pub const INVALID_PTX: u32 = 218;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
pub const UNSUPPORTED_PTX_VERSION: u32 = 222;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: u32 = 600;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
pub const OUT_OF_RESOURCES: u32 = 701;

/// The newest PTX that is taken, ten times: that of CUDA 12.8.
const NEWEST_PTX: u32 = 87;

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
}

/// A device.
pub struct Device {
    /// What it is.
    pub described: Described,
    index: usize,
    memory: Mutex<Memory>,
    fault: Mutex<Option<(u32, String)>>,
    contexts: AtomicU64,
}

#[derive(Default)]
struct Memory {
    used: u64,
    allocations: BTreeMap<u64, Allocation>,
}

/// Memory, which begins as NaN in every type of float.
struct Allocation {
    at: usize,
    layout: Layout,
}

impl Allocation {
    fn new(bytes: usize) -> Answer<Allocation> {
        let layout = Layout::from_size_align(bytes, 256).map_err(|_| OUT_OF_MEMORY)?;
        // SAFETY: of more than no bytes, which callers see to.
        let pointer = unsafe { alloc(layout) };
        if pointer.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: just allocated, of this size.
        unsafe { pointer.write_bytes(0xff, bytes) };
        Ok(Allocation {
            at: pointer as usize,
            layout,
        })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at as *mut u8, self.layout) };
    }
}

#[derive(Clone)]
struct Kernel {
    module: (usize, Arc<ptx::Module>),
    index: usize,
    shared_allowed: u32,
}

/// A stream: a thread that does what it is sent, in that order.
pub struct Stream {
    device: Arc<Device>,
    sender: mpsc::Sender<Job>,
    progress: Arc<(Mutex<Progress>, Condvar)>,
}

#[derive(Default)]
struct Progress {
    submitted: u64,
    done: u64,
}

type Job = Box<dyn FnOnce(&Device) + Send>;

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
        let devices = described.into_iter().enumerate().map(|(index, described)| {
            Arc::new(Device {
                described,
                index,
                memory: Mutex::default(),
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
        let memory = devices().map(|device| locked(&device.memory).allocations.len());
        format!(
            "{{\"contexts\":{contexts},\"allocations\":{},\"hostAllocations\":{},\"streams\":{},\
             \"modules\":{},\"launches\":{}}}\n",
            memory.sum::<usize>(),
            locked(&self.host).len(),
            locked(&self.streams).len(),
            locked(&self.modules).len(),
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

    /// Memory of the current device.
    pub fn allocate(&self, bytes: usize) -> Answer<u64> {
        let device = self.current()?;
        self.may_allocate(bytes)?;
        let mut memory = locked(&device.memory);
        if memory.used + bytes as u64 > device.described.bytes {
            return Err(OUT_OF_MEMORY);
        }
        let allocation = Allocation::new(bytes)?;
        let address = allocation.at as u64;
        memory.used += bytes as u64;
        memory.allocations.insert(address, allocation);
        Ok(address)
    }

    fn may_allocate(&self, bytes: usize) -> Answer<()> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let number = self.allocations.fetch_add(1, SeqCst) + 1;
        match self.faults.out_of_memory == Some(number) {
            true => Err(OUT_OF_MEMORY),
            false => Ok(()),
        }
    }

    /// Gives memory back when all streams of the device are done.
    pub fn free(&self, address: u64) -> Answer<()> {
        let index = current().ok_or(INVALID_CONTEXT)?;
        let device = self.devices.get(index).ok_or(INVALID_CONTEXT)?;
        let streams: Vec<Arc<Stream>> = locked(&self.streams).values().cloned().collect();
        let own = streams.iter().filter(|stream| stream.device.index == index);
        own.for_each(|stream| stream.finish());
        let mut memory = locked(&device.memory);
        let freed = memory.allocations.remove(&address).ok_or(INVALID_VALUE)?;
        memory.used -= freed.layout.size() as u64;
        drop(memory);
        device.check()
    }

    /// Memory of the host.
    pub fn allocate_host(&self, bytes: usize) -> Answer<usize> {
        self.current()?;
        self.may_allocate(bytes)?;
        let allocation = Allocation::new(bytes)?;
        let address = allocation.at;
        locked(&self.host).insert(address, allocation);
        Ok(address)
    }

    /// Gives it back.
    pub fn free_host(&self, address: usize) -> Answer<()> {
        let freed = locked(&self.host).remove(&address);
        freed.map(drop).ok_or(INVALID_VALUE)
    }

    /// A new stream of the current device.
    pub fn new_stream(&self) -> Answer<usize> {
        let device = self.current()?.clone();
        let handle = self.handle();
        let (sender, receiver) = mpsc::channel::<Job>();
        let progress = Arc::<(Mutex<Progress>, Condvar)>::default();
        let stream = Stream {
            device: device.clone(),
            sender,
            progress: progress.clone(),
        };
        let work = move || {
            for job in receiver {
                // After a fault nothing is done any more.
                if device.check().is_ok() {
                    job(&device);
                }
                locked(&progress.0).done += 1;
                progress.1.notify_all();
            }
        };
        let name = "fake-gpu stream".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(work);
        spawned.map_err(|_| OUT_OF_RESOURCES)?;
        locked(&self.streams).insert(handle, Arc::new(stream));
        Ok(handle)
    }

    /// The stream of a handle.
    pub fn stream(&self, handle: usize) -> Answer<Arc<Stream>> {
        let streams = locked(&self.streams);
        streams.get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    /// Ends a stream, when it has done what it was sent.
    pub fn end_stream(&self, handle: usize) -> Answer<()> {
        let ended = locked(&self.streams).remove(&handle);
        ended.map(drop).ok_or(INVALID_HANDLE)
    }

    /// Loads a module; beside the code, why it is none.
    pub fn load(&self, text: &[u8]) -> Result<usize, (u32, String)> {
        let device = self.current().map_err(|code| (code, String::new()))?;
        if text.starts_with(b"\x7fELF") {
            let why = "this device interprets, and has no machine code";
            return Err((NO_BINARY, why.into()));
        }
        let text = std::str::from_utf8(text).map_err(|error| (INVALID_PTX, error.to_string()))?;
        let module = ptx::Module::parse(text).map_err(|why| (INVALID_PTX, why))?;
        if module.version > NEWEST_PTX {
            let why = format!("version {} is newer than {NEWEST_PTX}", module.version);
            return Err((UNSUPPORTED_PTX_VERSION, why));
        }
        if device
            .described
            .capability()
            .is_some_and(|own| own < module.target)
        {
            let why = format!("sm_{} is more than this device", module.target);
            return Err((NO_BINARY, why));
        }
        let handle = self.handle();
        locked(&self.modules).insert(handle, Arc::new(module));
        Ok(handle)
    }

    /// Unloads a module.
    pub fn unload(&self, handle: usize) -> Answer<()> {
        let unloaded = locked(&self.modules).remove(&handle);
        locked(&self.kernels).retain(|_, kernel| kernel.module.0 != handle);
        unloaded.map(drop).ok_or(INVALID_HANDLE)
    }

    /// A module's kernel.
    pub fn kernel(&self, handle: usize, name: &str) -> Answer<usize> {
        self.current()?;
        let module = locked(&self.modules).get(&handle).cloned();
        let module = module.ok_or(INVALID_HANDLE)?;
        let mut kernels = module.kernels.iter();
        let index = kernels.position(|kernel| kernel.name == name);
        let kernel = Kernel {
            index: index.ok_or(NOT_FOUND)?,
            module: (handle, module),
            shared_allowed: 48 << 10,
        };
        let handle = self.handle();
        locked(&self.kernels).insert(handle, kernel);
        Ok(handle)
    }

    /// Lets a kernel's blocks have so much dynamic shared memory.
    pub fn allow_shared(&self, kernel: usize, bytes: i32) -> Answer<()> {
        let device = self.current()?;
        let most = device.described.most_shared();
        let mut kernels = locked(&self.kernels);
        let kernel = kernels.get_mut(&kernel).ok_or(INVALID_HANDLE)?;
        let own = kernel.module.1.kernels[kernel.index].shared_bytes as u32;
        let bytes = u32::try_from(bytes).map_err(|_| INVALID_VALUE)?;
        if bytes + own > most {
            return Err(INVALID_VALUE);
        }
        kernel.shared_allowed = bytes + own;
        Ok(())
    }

    /// Sends a launch to a stream.
    ///
    /// # Safety
    /// The arguments are where the kernel's parameters are, one each.
    pub unsafe fn launch(
        &self,
        kernel: usize,
        grid: Grid,
        stream: usize,
        arguments: *const *const u8,
    ) -> Answer<()> {
        self.current()?;
        let stream = self.stream(stream)?;
        let found = locked(&self.kernels).get(&kernel).cloned();
        let Kernel {
            module: (_, module),
            index,
            shared_allowed,
        } = found.ok_or(INVALID_HANDLE)?;
        let kernel = &module.kernels[index];
        let threads: u64 = grid.block.map(u64::from).iter().product();
        let sizes = grid.blocks.iter().chain(&grid.block);
        if sizes.clone().any(|&size| size == 0)
            || threads > 1024
            || grid.block[2] > 64
            || grid.blocks[1..].iter().any(|&blocks| blocks > 65_535)
            || kernel.shared_bytes as u32 + grid.shared_bytes > shared_allowed
        {
            return Err(INVALID_VALUE);
        }
        if kernel
            .most_threads
            .is_some_and(|most| threads > most.into())
        {
            return Err(OUT_OF_RESOURCES);
        }
        let mut parameters = vec![0; kernel.parameter_bytes];
        for (at, parameter) in kernel.parameters.iter().enumerate() {
            let place = &mut parameters[parameter.offset..parameter.offset + parameter.bytes];
            // SAFETY: asked of the caller.
            let value = unsafe { std::slice::from_raw_parts(*arguments.add(at), place.len()) };
            place.copy_from_slice(value);
        }
        let number = self.launches.fetch_add(1, SeqCst) + 1;
        let is_fault = self.faults.illegal_address == Some(number);
        let slow = self.faults.slow.filter(|&(when, _)| when == number);
        stream.submit(move |device| {
            if let Some((_, how_long)) = slow {
                thread::sleep(how_long);
            }
            if is_fault {
                device.fail(ptx::ILLEGAL_ADDRESS, "a fault that was asked for".into());
                return;
            }
            let mut memory = device.ranges();
            memory.extend(module.memory());
            memory.sort_unstable();
            // SAFETY: memory is freed only when streams are done.
            let ran = unsafe { ptx::run(&module.kernels[index], grid, &parameters, &memory) };
            if let Err(trap) = ran {
                device.fail(trap.code, trap.words);
            }
        });
        Ok(())
    }

    /// Sends a copy to a stream; which of the two is the device's is said by `checked`.
    ///
    /// # Safety
    /// The host's part is that large, until the stream has done it.
    pub unsafe fn copy(
        &self,
        to: usize,
        from: usize,
        bytes: usize,
        checked: &[usize],
        stream: usize,
    ) -> Answer<()> {
        let device = self.current()?;
        let stream = self.stream(stream)?;
        for &address in checked {
            device.holds(address as u64, bytes)?;
        }
        stream.submit(move |_| {
            // SAFETY: asked of the caller; the device's part was checked, and is freed only
            // when streams are done.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        });
        Ok(())
    }

    /// Sends filling memory with a byte to a stream.
    pub fn fill(&self, at: u64, byte: u8, bytes: usize, stream: usize) -> Answer<()> {
        let device = self.current()?;
        let stream = self.stream(stream)?;
        device.holds(at, bytes)?;
        stream.submit(move |_| {
            // SAFETY: checked, and freed only when streams are done.
            unsafe { (at as *mut u8).write_bytes(byte, bytes) };
        });
        Ok(())
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

    /// Free and total bytes.
    pub fn memory(&self) -> (u64, u64) {
        let total = self.described.bytes;
        (total - locked(&self.memory).used, total)
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let memory = locked(&self.memory);
        let ranges = memory.allocations.iter();
        ranges
            .map(|(&at, memory)| (at, at + memory.layout.size() as u64))
            .collect()
    }

    fn holds(&self, address: u64, bytes: usize) -> Answer<()> {
        let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let memory = locked(&self.memory);
        let before = memory.allocations.range(..=address).next_back();
        match before {
            Some((&at, memory)) if end <= at + memory.layout.size() as u64 => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }
}

impl Described {
    /// Its compute capability, ten times; `None`: it has none.
    pub fn capability(&self) -> Option<u32> {
        let (major, minor) = self.architecture.split_once('.')?;
        Some(major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?)
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

impl Stream {
    fn submit(&self, job: impl FnOnce(&Device) + Send + 'static) {
        locked(&self.progress.0).submitted += 1;
        // The thread ends when this is gone, not before.
        let _ = self.sender.send(Box::new(job));
    }

    /// Waits for what was submitted so far.
    fn finish(&self) {
        let mut progress = locked(&self.progress.0);
        let goal = progress.submitted;
        while progress.done < goal {
            progress = self
                .progress
                .1
                .wait(progress)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Waits; then, whether its device works.
    pub fn wait(&self) -> Answer<()> {
        self.finish();
        self.device.check()
    }

    /// The index of its device.
    pub fn device_index(&self) -> usize {
        self.device.index
    }

    /// Whether it has done everything.
    pub fn is_done(&self) -> Answer<()> {
        self.device.check()?;
        let progress = locked(&self.progress.0);
        match progress.done == progress.submitted {
            true => Ok(()),
            false => Err(NOT_READY),
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
