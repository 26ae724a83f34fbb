//! `libnccl.so.2` and `librccl.so.1`, as far as the engine calls them (`nccl.h`).
//!
//! Ranks meet as [`meeting`] says. A collective is a call on its stream, which ends when all ranks have
//! come; after an error it ends only when it is aborted, as a kernel that waits for its
//! peers does. Stricter than the library: devices of one process that do not ask as a group, for which
//! it would wait for ever, are refused at once, and so is what would block.

#![allow(
    non_snake_case,
    missing_docs,
    reason = "the vendor's names and documentation"
)]

mod fault;
mod meeting;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Once};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{ptr, slice, thread};

use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use crate::machine::HostFunction;
use fault::{Fault, fault};
use meeting::Request;

/// 2.21.5.
const VERSION: c_int = 22_105;

// The functions return and take integers: a program may pass numbers that an enum has no name for.
const SUCCESS: u32 = ncclResult_t::ncclSuccess as u32;
const CUDA_ERROR: u32 = ncclResult_t::ncclUnhandledCudaError as u32;
const SYSTEM_ERROR: u32 = ncclResult_t::ncclSystemError as u32;
const INVALID_ARGUMENT: u32 = ncclResult_t::ncclInvalidArgument as u32;
const INVALID_USAGE: u32 = ncclResult_t::ncclInvalidUsage as u32;
const REMOTE_ERROR: u32 = ncclResult_t::ncclRemoteError as u32;
const IN_PROGRESS: u32 = ncclResult_t::ncclInProgress as u32;

const U64: c_int = ncclDataType_t::ncclUint64 as c_int;
const FLOAT: c_int = ncclDataType_t::ncclFloat32 as c_int;
const SUM: c_int = ncclRedOp_t::ncclSum as c_int;
const MAX: c_int = ncclRedOp_t::ncclMax as c_int;

const ID_BYTES: usize = size_of::<ncclUniqueId>();

/// Has the layout of `ncclUniqueId`: a name that ends with a NUL.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; ID_BYTES]);

impl Id {
    fn name(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0);
        &self.0[..end.unwrap_or(ID_BYTES)]
    }
}

/// The beginning of `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    mark: u32,
    version: u32,
    is_blocking: c_int,
}

struct Communicator {
    id: Id,
    rank: u32,
    ranks: u32,
    /// What `ncclCommGetAsyncError` tells.
    code: AtomicU32,
    /// The connection, which an abort ends.
    stream: Mutex<Option<UnixStream>>,
    is_aborted: Mutex<bool>,
    aborted: Condvar,
    collectives: AtomicU64,
}

static COMMUNICATORS: LazyLock<Mutex<HashMap<usize, Arc<Communicator>>>> =
    LazyLock::new(Mutex::default);
static COLLECTIVES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many groups the thread has begun.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What the end of the outermost does.
    static ASKED: RefCell<Vec<Asked>> = const { RefCell::new(Vec::new()) };
}

type Asked = Box<dyn FnOnce() -> u32>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn communicator(handle: usize) -> Result<Arc<Communicator>, u32> {
    let found = locked(&COMMUNICATORS).get(&handle).cloned();
    found.ok_or(INVALID_ARGUMENT)
}

fn code(outcome: Result<(), u32>) -> u32 {
    outcome.err().unwrap_or(SUCCESS)
}

/// Does it now, or at the end of the group.
fn ask(asked: Asked) -> u32 {
    match DEPTH.get() {
        0 => asked(),
        _ => {
            ASKED.with_borrow_mut(|all| all.push(asked));
            SUCCESS
        }
    }
}

impl Communicator {
    /// Comes to the meeting, on a thread of its own.
    fn join(self: Arc<Self>) {
        let own = self.clone();
        let work = move || {
            if fault() == Some(Fault::InitHang) {
                return;
            }
            let joined = meeting::join(self.id.name(), self.rank, self.ranks, |stream| {
                *locked(&self.stream) = Some(stream.try_clone()?);
                match *locked(&self.is_aborted) {
                    true => Err(std::io::ErrorKind::Interrupted.into()),
                    false => Ok(()),
                }
            });
            let code = joined.map_or(REMOTE_ERROR, |_| SUCCESS);
            self.code.store(code, SeqCst);
        };
        let name = "fake-gpu rank".to_owned();
        if thread::Builder::new().name(name).spawn(work).is_err() {
            own.code.store(SYSTEM_ERROR, SeqCst);
        }
    }

    /// What a stream does: asks the others, and puts what comes of it where it belongs.
    ///
    /// # Safety
    /// So many bytes are at both places.
    unsafe fn work(&self, work: &Work) {
        let number = self.collectives.fetch_add(1, SeqCst) + 1;
        if fault() == Some(Fault::AsyncError(number)) {
            return self.fail(SYSTEM_ERROR);
        }
        // SAFETY: asked of the caller.
        let sent = unsafe { slice::from_raw_parts(work.from as *const u8, work.bytes) };
        let mut values = sent.to_vec();
        let message = meeting::message(work.request, &values);
        let stream = locked(&self.stream).as_ref().map(UnixStream::try_clone);
        let Some(Ok(mut stream)) = stream else {
            return self.fail(REMOTE_ERROR);
        };
        if fault() == Some(Fault::Killed(number)) {
            kill(&mut stream, &message[..message.len() / 2]);
        }
        match meeting::ask(&mut stream, &message, &mut values) {
            // SAFETY: asked of the caller.
            Ok(()) => unsafe {
                slice::from_raw_parts_mut(work.to as *mut u8, work.bytes).copy_from_slice(&values);
            },
            Err(_) => self.fail(REMOTE_ERROR),
        }
    }

    /// Tells an error, and runs on until it is aborted.
    fn fail(&self, code: u32) {
        self.code.store(code, SeqCst);
        let mut is_aborted = locked(&self.is_aborted);
        while !*is_aborted {
            is_aborted = self
                .aborted
                .wait(is_aborted)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn abort(&self) {
        *locked(&self.is_aborted) = true;
        self.aborted.notify_all();
        if let Some(stream) = &*locked(&self.stream) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Sends a part, and ends the process as if from outside.
fn kill(stream: &mut UnixStream, part: &[u8]) {
    let _ = std::io::Write::write_all(stream, part);
    // SAFETY: this very process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A collective of one rank.
struct Work {
    communicator: Arc<Communicator>,
    request: Request,
    from: usize,
    to: usize,
    bytes: usize,
}

unsafe extern "C" fn run(work: *mut c_void) {
    // SAFETY: boxed by who submitted it, and called once.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // SAFETY: asked of who submitted it.
    unsafe { work.communicator.work(&work) };
}

/// The driver's function that has a stream call one of the host's.
type LaunchHostFunction = unsafe extern "C" fn(usize, HostFunction, *mut c_void) -> u32;

/// It. The driver is another library, which the program has loaded: AMD's if this one has the name of
/// AMD's.
fn launch_host_function() -> Option<LaunchHostFunction> {
    static FOUND: LazyLock<Option<LaunchHostFunction>> = LazyLock::new(|| {
        // SAFETY: the loader's own functions; the driver's is declared as in the vendors' headers,
        // and nothing where it is not found.
        unsafe {
            let mut own: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(run as *const c_void, &mut own);
            let is_amds = !own.dli_fname.is_null()
                && CStr::from_ptr(own.dli_fname)
                    .to_string_lossy()
                    .contains("librccl");
            let (library, function) = match is_amds {
                true => (c"libamdhip64.so.6", c"hipLaunchHostFunc"),
                false => (c"libcuda.so.1", c"cuLaunchHostFunc"),
            };
            let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            let function = match library.is_null() {
                true => ptr::null_mut(),
                false => libc::dlsym(library, function.as_ptr()),
            };
            std::mem::transmute::<*mut c_void, Option<LaunchHostFunction>>(function)
        }
    });
    *FOUND
}

/// Appends what is alive to the file that a variable names.
extern "C" fn at_exit() {
    let Some(file) = std::env::var_os("FAKE_GPU_COUNTS") else {
        return;
    };
    let alive = locked(&COMMUNICATORS).len();
    let launches = COLLECTIVES.load(SeqCst);
    let line = format!("{{\"communicators\":{alive},\"launches\":{launches}}}\n");
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).append(true).open(file);
    let write = |mut file| std::io::Write::write_all(&mut file, line.as_bytes());
    if let Err(error) = opened.and_then(write) {
        eprintln!("fake-gpu: FAKE_GPU_COUNTS: {error}");
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: null or a place for it, as the vendor's documentation asks.
    code(unsafe { put(version, VERSION) })
}

/// # Safety
/// Null, or a place for it.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), u32> {
    // SAFETY: asked of the caller.
    unsafe { crate::cuda::put(place, value) }.map_err(|_| INVALID_ARGUMENT)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetUniqueId(place: *mut Id) -> u32 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos());
    let (process, number) = (std::process::id(), DRAWN.fetch_add(1, SeqCst));
    let name = format!("fake-nccl-{process}-{number}-{now:x}");
    if meeting::open(name.as_bytes()).is_err() {
        return SYSTEM_ERROR;
    }
    let mut id = Id([0; ID_BYTES]);
    id.0[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: a place for it, as the vendor's documentation asks.
    code(unsafe { put(place, id) })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: u32) -> *const c_char {
    match code {
        SUCCESS => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(handle: usize) -> *const c_char {
    match communicator(handle) {
        Ok(_) => c"",
        Err(_) => c"no such communicator",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommInitRankConfig(
    place: *mut usize,
    ranks: c_int,
    id: Id,
    rank: c_int,
    config: *const Config,
) -> u32 {
    static HANDLES: AtomicUsize = AtomicUsize::new(0x2000);
    static AT_EXIT: Once = Once::new();
    // SAFETY: takes nothing, and the library stays loaded.
    AT_EXIT.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
    // SAFETY: null or a configuration, as the vendor's documentation asks.
    let is_taken = unsafe { config.as_ref() }.is_some_and(|config| {
        config.size >= size_of::<Config>() && config.mark == 0xcafe_beef && config.is_blocking == 0
    });
    if !is_taken || ranks < 1 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let communicator = Arc::new(Communicator {
        id,
        rank: rank.unsigned_abs(),
        ranks: ranks.unsigned_abs(),
        code: AtomicU32::new(IN_PROGRESS),
        stream: Mutex::default(),
        is_aborted: Mutex::default(),
        aborted: Condvar::new(),
        collectives: AtomicU64::new(0),
    });
    let handle = HANDLES.fetch_add(0x10, SeqCst);
    // SAFETY: a place for it, as the vendor's documentation asks.
    if let Err(code) = unsafe { put(place, handle) } {
        return code;
    }
    locked(&COMMUNICATORS).insert(handle, communicator.clone());
    ask(Box::new(move || {
        communicator.join();
        IN_PROGRESS
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclCommGetAsyncError(handle: usize, place: *mut u32) -> u32 {
    let told = communicator(handle).and_then(|communicator| {
        // SAFETY: a place for it, as the vendor's documentation asks.
        unsafe { put(place, communicator.code.load(SeqCst)) }
    });
    code(told)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(handle: usize) -> u32 {
    let communicator = match communicator(handle) {
        Ok(communicator) if communicator.code.load(SeqCst) == SUCCESS => communicator,
        Ok(_) => return INVALID_USAGE,
        Err(code) => return code,
    };
    ask(Box::new(move || {
        let mut stream = locked(&communicator.stream);
        let goodbye = meeting::message(Request::Goodbye, &[]);
        let told = stream
            .as_mut()
            .map(|stream| std::io::Write::write_all(stream, &goodbye));
        match told {
            Some(Ok(())) => SUCCESS,
            _ => REMOTE_ERROR,
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> u32 {
    let removed = locked(&COMMUNICATORS).remove(&handle);
    removed.map_or(INVALID_ARGUMENT, |_| SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: usize) -> u32 {
    let removed = locked(&COMMUNICATORS).remove(&handle);
    removed.map_or(INVALID_ARGUMENT, |communicator| {
        communicator.abort();
        SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> u32 {
    DEPTH.set(DEPTH.get() + 1);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> u32 {
    let Some(depth) = DEPTH.get().checked_sub(1) else {
        return INVALID_USAGE;
    };
    DEPTH.set(depth);
    if depth > 0 {
        return SUCCESS;
    }
    let asked = ASKED.take();
    let codes: Vec<u32> = asked.into_iter().map(|asked| asked()).collect();
    let failed = codes
        .iter()
        .find(|code| ![SUCCESS, IN_PROGRESS].contains(code));
    failed.or(codes.iter().max()).copied().unwrap_or(SUCCESS)
}

/// # Safety
/// So many bytes are at both places, until the stream has done it.
unsafe fn collective(
    request: Request,
    from: *const c_void,
    to: *mut c_void,
    bytes: usize,
    handle: usize,
    stream: usize,
) -> u32 {
    let communicator = match communicator(handle) {
        Ok(communicator) => communicator,
        Err(code) => return code,
    };
    let siblings = locked(&COMMUNICATORS);
    let siblings = siblings
        .values()
        .filter(|other| other.id.0 == communicator.id.0);
    let is_alone = siblings.count() == 1;
    if communicator.code.load(SeqCst) != SUCCESS || (DEPTH.get() == 0 && !is_alone) {
        return INVALID_USAGE;
    }
    let Some(launch) = launch_host_function() else {
        return CUDA_ERROR;
    };
    let work = Work {
        communicator,
        request,
        from: from as usize,
        to: to as usize,
        bytes,
    };
    ask(Box::new(move || {
        COLLECTIVES.fetch_add(1, SeqCst);
        let work = Box::into_raw(Box::new(work));
        // SAFETY: declared as in the vendors' headers; the stream calls it once.
        match unsafe { launch(stream, run, work.cast()) } {
            0 => SUCCESS,
            _ => {
                // SAFETY: it was not taken.
                drop(unsafe { Box::from_raw(work) });
                CUDA_ERROR
            }
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operation: c_int,
    communicator: usize,
    stream: usize,
) -> u32 {
    let (request, size) = match (kind, operation) {
        (FLOAT, SUM) => (Request::Sum, size_of::<f32>()),
        (U64, MAX) => (Request::Max, size_of::<u64>()),
        _ => return INVALID_ARGUMENT,
    };
    if from.is_null() || to.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as the vendor's documentation asks.
    unsafe { collective(request, from, to, count * size, communicator, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    handle: usize,
    stream: usize,
) -> u32 {
    let ranks = match communicator(handle) {
        Ok(communicator) => communicator.ranks,
        Err(code) => return code,
    };
    let root = u32::try_from(root).ok().filter(|&root| root < ranks);
    match root {
        Some(root) if kind == FLOAT && !from.is_null() && !to.is_null() => {
            // SAFETY: as the vendor's documentation asks.
            unsafe {
                let bytes = count * size_of::<f32>();
                collective(Request::From(root), from, to, bytes, handle, stream)
            }
        }
        _ => INVALID_ARGUMENT,
    }
}
