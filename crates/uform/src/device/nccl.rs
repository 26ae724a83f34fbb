//! Sums over the devices of several processes: NCCL, and RCCL, which is the same for AMD's devices.
//!
//! Optional: found when several processes first want to add up, and nothing else needs it. Everything
//! is asked for without blocking, and looked at again and again: a peer that never comes, or
//! that ends, is an error here, never a wait without an end. After a failure the communicators
//! are aborted, which ends what still runs on the devices, and stay so.
//!
//! In which order the library adds up is its own affair: the same in every run on the same machines
//! with the same number of elements, and not that of [`Peers`](super::Peers).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};

use super::driver::{Absent, Runtime};
use super::memory::Buffer;
use super::owned::Device;
use super::patience::{Patience, Pauses};
use super::peers::{Share, check_devices, check_shares, check_streams, wait_all};
use super::stream::Stream;
use super::symbols::{open, table};
use crate::{Error, Result, Status};

/// What NVIDIA's packages install, and what some distributions do.
const NVIDIAS: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
const AMDS: [&str; 2] = ["librccl.so.1", "librccl.so"];

/// How many bytes an id has.
pub const ID_BYTES: usize = size_of::<ncclUniqueId>();

// What `NCCL_CONFIG_INITIALIZER` of `nccl.h` is made of. `cudarc` has no macros.
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

/// The configuration is that of NCCL 2.14. Later versions take it, and have defaults for the rest.
const CONFIG_VERSION: u32 = 21_400;
/// How many bytes of `ncclConfig_t` version 2.14 had.
const CONFIG_BYTES: usize = offset_of!(ncclConfig_t, minCTAs);

// `cudarc` has the header's numbers. They are widened to integers here, since the functions below return and
// take integers.
const SUCCESS: u32 = ncclResult_t::ncclSuccess as u32;
const SYSTEM_ERROR: u32 = ncclResult_t::ncclSystemError as u32;
const INTERNAL_ERROR: u32 = ncclResult_t::ncclInternalError as u32;
const INVALID_ARGUMENT: u32 = ncclResult_t::ncclInvalidArgument as u32;
const INVALID_USAGE: u32 = ncclResult_t::ncclInvalidUsage as u32;
const REMOTE_ERROR: u32 = ncclResult_t::ncclRemoteError as u32;
const IN_PROGRESS: u32 = ncclResult_t::ncclInProgress as u32;

const FLOAT: c_int = ncclDataType_t::ncclFloat32 as c_int;
const U64: c_int = ncclDataType_t::ncclUint64 as c_int;
const SUM: c_int = ncclRedOp_t::ncclSum as c_int;
const MAX: c_int = ncclRedOp_t::ncclMax as c_int;

/// How many numbers members compare at a time.
pub const COMPARED: usize = 2;
/// What they send for it: each number, and its complement, whose largest is that of the smallest.
type Sent = [u64; 2 * COMPARED];

/// What a caller can do about communicators that never came to be, and about those that are gone.
const JOIN_AGAIN: &str = "join again";
const FREE_AND_JOIN: &str = "the mesh is of no use any more: free it and join again";

/// How long it may take to leave.
const LEAVING: Duration = Duration::from_secs(10);

table! {
    Api {
        fn ncclGetVersion(*mut c_int) -> u32;
        fn ncclGetUniqueId(*mut ncclUniqueId) -> u32;
        fn ncclGetErrorString(u32) -> *const c_char;
        fn ncclCommInitRankConfig(
            *mut usize,
            c_int,
            ncclUniqueId,
            c_int,
            *mut ncclConfig_t
        ) -> u32;
        fn ncclCommGetAsyncError(usize, *mut u32) -> u32;
        fn ncclCommFinalize(usize) -> u32;
        fn ncclCommDestroy(usize) -> u32;
        fn ncclCommAbort(usize) -> u32;
        fn ncclGroupStart() -> u32;
        fn ncclGroupEnd() -> u32;
        fn ncclAllReduce(
            *const c_void,
            *mut c_void,
            usize,
            c_int,
            c_int,
            usize,
            usize
        ) -> u32;
        fn ncclBroadcast(
            *const c_void,
            *mut c_void,
            usize,
            c_int,
            c_int,
            usize,
            usize
        ) -> u32;
    }
    optional {
        fn ncclGetLastError(usize) -> *const c_char;
    }
}

/// By what the members of one communicator find each other. One process draws it, all are told.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId([u8; ID_BYTES]);

impl UniqueId {
    /// One that was drawn elsewhere.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) when it has another length.
    pub fn from_bytes(bytes: &[u8]) -> Result<UniqueId> {
        let id = bytes.try_into().map_err(|_| {
            Error::invalid(format!(
                "NCCL's id has {} bytes: expected {ID_BYTES}",
                bytes.len()
            ))
        })?;
        Ok(UniqueId(id))
    }

    /// What all are told.
    pub fn bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Who knows it can join.
        f.write_str("UniqueId(…)")
    }
}

/// The version of the library, as in 22104 for 2.21.4.
///
/// # Errors
/// [`Unsupported`](Status::Unsupported) naming the library when it cannot be used.
pub fn version(runtime: Runtime) -> Result<u32> {
    let nccl = Nccl::of(runtime)?;
    let mut version = 0;
    // SAFETY: declared as in `nccl.h`; a place for it.
    nccl.judge("ncclGetVersion", unsafe {
        (nccl.api.ncclGetVersion)(&mut version)
    })?;
    Ok(version.unsigned_abs())
}

/// Draws an id. The members meet through this process until all are there.
///
/// # Errors
/// [`Unsupported`](Status::Unsupported) naming the library when it cannot be used;
/// [`Io`](Status::Io) when it finds no network.
pub fn unique_id(runtime: Runtime) -> Result<UniqueId> {
    let nccl = Nccl::of(runtime)?;
    let mut id = ncclUniqueId {
        internal: [0; ID_BYTES],
    };
    // SAFETY: declared as in `nccl.h`; a place for it.
    nccl.judge("ncclGetUniqueId", unsafe {
        (nccl.api.ncclGetUniqueId)(&mut id)
    })?;
    Ok(UniqueId(id.internal.map(|byte| byte as u8)))
}

/// The library of a vendor.
struct Nccl {
    api: Api,
    name: &'static str,
}

impl Nccl {
    fn of(runtime: Runtime) -> Result<&'static Nccl> {
        static NCCL: OnceLock<std::result::Result<Nccl, Absent>> = OnceLock::new();
        static RCCL: OnceLock<std::result::Result<Nccl, Absent>> = OnceLock::new();
        let (found, names, name, package) = match runtime {
            Runtime::Cuda => (
                &NCCL,
                &NVIDIAS,
                "NCCL",
                "libnccl2, or nvidia-nccl-cu12 of PyPI",
            ),
            Runtime::Hip => (&RCCL, &AMDS, "RCCL", "rccl"),
        };
        let load = || {
            let (library, file) = open(names)?;
            // SAFETY: declared as in `nccl.h`; `open` never closes it.
            let api = unsafe { Api::find(library, file) }?;
            Ok(Nccl { api, name })
        };
        found.get_or_init(load).as_ref().map_err(|absent| {
            Error::unsupported(format!(
                "several processes add up through {name} 2.14 or newer, which is not here: {absent}: \
                 install it (package {package}) where the loader finds it, or drive all devices from \
                 one process, which needs none"
            ))
            .because(absent.clone())
        })
    }

    /// What a code that is not 0 means, but for that of what is still going on.
    fn judge(&self, function: &'static str, code: u32) -> Result<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            _ => Err(self.failed(function, code, None)),
        }
    }

    fn failed(&self, function: &'static str, code: u32, communicator: Option<usize>) -> Error {
        // SAFETY: a constant of the library's, for unknown codes too.
        let words = unsafe { said((self.api.ncclGetErrorString)(code)) };
        let details = self.api.ncclGetLastError.zip(communicator);
        // SAFETY: a communicator that is there; the words stay until its next error.
        let details = details.map(|(last, communicator)| unsafe { said(last(communicator)) });
        let details = details.filter(|details| !details.is_empty());
        let details = details.map_or(String::new(), |details| format!(" ({details})"));
        Error::new(
            status(code),
            format!(
                "{function} of {} failed with {code}, {words}{details}; with NCCL_DEBUG=WARN in the \
                 environment it says more",
                self.name
            ),
        )
    }
}

/// What a code means to a caller. An unknown one counts as a fault, as a driver's does.
fn status(code: u32) -> Status {
    match code {
        SYSTEM_ERROR | REMOTE_ERROR => Status::Io,
        // What this library should not have asked.
        INTERNAL_ERROR | INVALID_ARGUMENT | INVALID_USAGE => Status::Internal,
        _ => Status::DeviceFault,
    }
}

/// # Safety
/// Null, or a string that stays while it is read.
unsafe fn said(words: *const c_char) -> String {
    match words.is_null() {
        true => String::new(),
        // SAFETY: asked of the caller.
        false => unsafe { CStr::from_ptr(words) }.to_string_lossy().into(),
    }
}

/// This process's members of a group of devices, in which each has a number, its rank.
pub struct Communicators {
    nccl: &'static Nccl,
    devices: Vec<Arc<Device>>,
    /// The rank of the first, which the others follow.
    first: u32,
    ranks: u32,
    /// Of each device, for [`Sent`]. A barrier adds up what is there first: whatever it is.
    tokens: Vec<Buffer>,
    state: Mutex<State>,
}

enum State {
    /// One each. The library writes into these places when it has made them, which may be later.
    Live(Box<[AtomicUsize]>),
    /// Why they are gone.
    Aborted(Status, String),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Communicators {
    /// Joins with all these devices, and waits until all `ranks` are there. The first device has the
    /// rank `first`, the others follow.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) when ranks or devices do not fit;
    /// [`Unsupported`](Status::Unsupported) naming the library when it cannot be used;
    /// [`TimedOut`](Status::TimedOut), [`Aborted`](Status::Aborted) by `patience`;
    /// [`Io`](Status::Io) when a peer went, or the network; [`DeviceFault`](Status::DeviceFault).
    pub fn join(
        devices: &[Arc<Device>],
        id: &UniqueId,
        first: u32,
        ranks: u32,
        patience: &Patience<'_>,
    ) -> Result<Communicators> {
        check_devices(devices)?;
        let runtime = devices[0].properties().runtime;
        if devices
            .iter()
            .any(|device| device.properties().runtime != runtime)
        {
            return Err(Error::unsupported(
                "the devices of several processes are NVIDIA's or AMD's, not of both",
            ));
        }
        let end = first as usize + devices.len();
        if end > ranks as usize || c_int::try_from(ranks).is_err() {
            return Err(Error::invalid(format!(
                "{} devices from rank {first} on, of {ranks} ranks: expected no more",
                devices.len()
            )));
        }
        let nccl = Nccl::of(runtime)?;
        let tokens = devices
            .iter()
            .map(|device| device.allocate(size_of::<Sent>()));
        let tokens = tokens.collect::<Result<Vec<Buffer>>>()?;
        let places = devices.iter().map(|_| AtomicUsize::new(0));
        let group = Communicators {
            nccl,
            devices: devices.to_vec(),
            first,
            ranks,
            tokens,
            state: Mutex::new(State::Live(places.collect())),
        };
        group.attempt(&[], JOIN_AGAIN, |group, places| {
            group.begin(places, id)?;
            group.settle(places, patience, &group.named("joining"))
        })?;
        Ok(group)
    }

    /// How many members there are in all processes.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The rank of this process's first device.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// As [`Peers::all_reduce_sum`](super::Peers::all_reduce_sum), over all processes, all of which
    /// ask the same.
    ///
    /// # Errors
    /// As those of [`join`](Communicators::join). After any but
    /// [`InvalidArgument`](Status::InvalidArgument) the communicators are aborted, and
    /// what the buffers hold is unknown.
    pub fn all_reduce_sum(
        &self,
        shares: &[Share<'_>],
        count: usize,
        patience: &Patience<'_>,
    ) -> Result<()> {
        check_shares(&self.devices, shares, count)?;
        self.reduce(shares, count, patience, "a sum")
    }

    /// As [`Peers::broadcast`](super::Peers::broadcast), over all processes, all of which ask the
    /// same. `from` is a rank.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Communicators::all_reduce_sum).
    pub fn broadcast(
        &self,
        shares: &[Share<'_>],
        count: usize,
        from: u32,
        patience: &Patience<'_>,
    ) -> Result<()> {
        check_shares(&self.devices, shares, count)?;
        if from >= self.ranks {
            return Err(Error::invalid(format!(
                "there is no member {from} to copy from: expected 0 to {}",
                self.ranks - 1
            )));
        }
        let what = self.named("a broadcast");
        self.collective(
            shares,
            count,
            patience,
            ("ncclBroadcast", &what),
            |at, communicator| {
                let place = shares[at].address() as usize as *mut c_void;
                let (api, root) = (&self.nccl.api, from as c_int);
                let stream = shares[at].stream.address() as usize;
                // SAFETY: declared as in `nccl.h`; the buffer was checked to have as many numbers, and
                // is borrowed until the stream has been waited for.
                unsafe {
                    (api.ncclBroadcast)(place, place, count, FLOAT, root, communicator, stream)
                }
            },
        )
    }

    /// Waits until all processes have come to this, and all that was submitted to these streams is
    /// done.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Communicators::all_reduce_sum).
    pub fn barrier(&self, streams: &[&Stream], patience: &Patience<'_>) -> Result<()> {
        check_streams(&self.devices, streams)?;
        let pairs = streams.iter().zip(&self.tokens);
        let shares: Vec<Share<'_>> = pairs
            .map(|(stream, buffer)| Share {
                stream,
                buffer,
                offset: 0,
            })
            .collect();
        self.reduce(&shares, 1, patience, "a barrier")
    }

    /// Compares numbers with all other processes: the smallest and the largest of each. One stream for
    /// each of this process's devices.
    ///
    /// # Errors
    /// As those of [`all_reduce_sum`](Communicators::all_reduce_sum).
    pub fn extremes(
        &self,
        streams: &[&Stream],
        own: [u64; COMPARED],
        patience: &Patience<'_>,
    ) -> Result<[(u64, u64); COMPARED]> {
        check_streams(&self.devices, streams)?;
        let mut sent: Sent = [0; 2 * COMPARED];
        for (pair, number) in sent.as_chunks_mut().0.iter_mut().zip(own) {
            *pair = [!number, number];
        }
        let what = self.named("the comparison before a sum");
        let mut found: Sent = [0; 2 * COMPARED];
        self.attempt(streams, FREE_AND_JOIN, |group, places| {
            for (stream, token) in streams.iter().zip(&group.tokens) {
                // SAFETY: `attempt` has waited for the stream before the numbers go, whatever fails;
                // the tokens are used by one call at a time, which holds the state.
                unsafe { stream.submit_upload(token, 0, bytemuck::cast_slice(&sent)) }?;
            }
            let submit = |at: usize, communicator| {
                let place = group.tokens[at].address() as usize as *mut c_void;
                let (count, stream) = (sent.len(), streams[at].address() as usize);
                let reduce = group.nccl.api.ncclAllReduce;
                // SAFETY: declared as in `nccl.h`; the token was allocated for as many numbers, and
                // stays as long as the group.
                unsafe { reduce(place, place, count, U64, MAX, communicator, stream) }
            };
            group.submit(places, streams, patience, ("ncclAllReduce", &what), submit)?;
            // All have the same.
            streams[0].download(bytemuck::cast_slice_mut(&mut found), &group.tokens[0], 0)
        })?;
        let mut extremes = [(0, 0); COMPARED];
        for (extremes, [least, most]) in extremes.iter_mut().zip(found.as_chunks().0) {
            *extremes = (!least, *most);
        }
        Ok(extremes)
    }

    fn reduce(
        &self,
        shares: &[Share<'_>],
        count: usize,
        patience: &Patience<'_>,
        what: &str,
    ) -> Result<()> {
        let what = self.named(what);
        self.collective(
            shares,
            count,
            patience,
            ("ncclAllReduce", &what),
            |at, communicator| {
                let place = shares[at].address() as usize as *mut c_void;
                let stream = shares[at].stream.address() as usize;
                let reduce = self.nccl.api.ncclAllReduce;
                // SAFETY: as for a broadcast.
                unsafe { reduce(place, place, count, FLOAT, SUM, communicator, stream) }
            },
        )
    }

    fn named(&self, what: &str) -> String {
        format!("{what} of {} over {} members", self.nccl.name, self.ranks)
    }

    /// Begins the communicators, in a group: each waits for all others, those of this process too.
    fn begin(&self, places: &[AtomicUsize], id: &UniqueId) -> Result<()> {
        let api = &self.nccl.api;
        self.grouped("ncclCommInitRankConfig", |at, _| {
            let mut config = ncclConfig_t {
                size: CONFIG_BYTES,
                magic: CONFIG_MAGIC,
                version: CONFIG_VERSION,
                blocking: 0,
                cgaClusterSize: UNDEFINED,
                minCTAs: UNDEFINED,
                maxCTAs: UNDEFINED,
                netName: ptr::null(),
                splitShare: UNDEFINED,
            };
            let id = ncclUniqueId {
                internal: id.0.map(|byte| byte as c_char),
            };
            let (ranks, rank) = (self.ranks as c_int, (self.first as usize + at) as c_int);
            let place = places[at].as_ptr();
            // SAFETY: declared as in `nccl.h`; the place stays as long as the group, which
            // waits, or aborts, before it goes.
            unsafe { (api.ncclCommInitRankConfig)(place, ranks, id, rank, &mut config) }
        })
    }

    /// Asks something for every device, within its context, as one group.
    fn grouped(
        &self,
        function: &'static str,
        ask: impl Fn(usize, &Arc<Device>) -> u32,
    ) -> Result<()> {
        let api = &self.nccl.api;
        // SAFETY: takes nothing.
        let begun = unsafe { (api.ncclGroupStart)() };
        self.nccl.judge("ncclGroupStart", begun)?;
        let asked = self
            .devices
            .iter()
            .enumerate()
            .try_for_each(|(at, device)| {
                // A context that cannot be entered is its device's failure, which says so.
                let code = device.within(|_, _| Ok(ask(at, device)))?;
                self.nccl.judge(function, code)
            });
        // SAFETY: begun above.
        let ended = unsafe { (api.ncclGroupEnd)() };
        asked.and(self.nccl.judge("ncclGroupEnd", ended))
    }

    /// A collective: submitted for all devices, then waited for. Named are the function, and what it is.
    fn collective(
        &self,
        shares: &[Share<'_>],
        count: usize,
        patience: &Patience<'_>,
        named: (&'static str, &str),
        submit: impl Fn(usize, usize) -> u32,
    ) -> Result<()> {
        let streams: Vec<&Stream> = shares.iter().map(|share| share.stream).collect();
        self.attempt(&streams, FREE_AND_JOIN, |group, places| {
            // Numbers there are none: nobody waits for anybody.
            if count == 0 {
                return wait_all(streams.iter().copied());
            }
            group.submit(places, &streams, patience, named, submit)
        })
    }

    /// Submits something for all devices as a group, and waits until all have done it.
    fn submit(
        &self,
        places: &[AtomicUsize],
        streams: &[&Stream],
        patience: &Patience<'_>,
        (function, what): (&'static str, &str),
        submit: impl Fn(usize, usize) -> u32,
    ) -> Result<()> {
        self.grouped(function, |at, _| {
            submit(at, places[at].load(Ordering::Acquire))
        })?;
        self.settle(places, patience, what)?;
        let mut pauses = Pauses::new();
        while !all_done(streams)? {
            self.is_settled(places)?;
            patience.check(what)?;
            pauses.pause();
        }
        Ok(())
    }

    /// Does something with the communicators, which are aborted if it fails: then nothing
    /// of it runs any more in these streams. `way_out` is what a caller can do then.
    fn attempt(
        &self,
        streams: &[&Stream],
        way_out: &str,
        work: impl FnOnce(&Self, &[AtomicUsize]) -> Result<()>,
    ) -> Result<()> {
        let mut state = locked(&self.state);
        let places = match &*state {
            State::Live(places) => places,
            State::Aborted(status, message) => return Err(Error::new(*status, message.clone())),
        };
        let outcome = work(self, places).map_err(|error| advised(error, way_out));
        if let Err(error) = &outcome {
            self.abort(places);
            *state = State::Aborted(error.status(), error.message().into());
            // Nothing reaches the buffers when this returns; it was told already why.
            let _ = wait_all(streams.iter().copied());
        }
        outcome
    }

    /// Waits until no communicator has anything under way on the host.
    fn settle(&self, places: &[AtomicUsize], patience: &Patience<'_>, what: &str) -> Result<()> {
        let mut pauses = Pauses::new();
        while !self.is_settled(places)? {
            patience.check(what)?;
            pauses.pause();
        }
        Ok(())
    }

    /// # Errors
    /// What happened to a communicator meanwhile.
    fn is_settled(&self, places: &[AtomicUsize]) -> Result<bool> {
        const FUNCTION: &str = "ncclCommGetAsyncError";
        let mut are_all = true;
        for place in places {
            let communicator = place.load(Ordering::Acquire);
            if communicator == 0 {
                are_all = false;
                continue;
            }
            let mut code = SUCCESS;
            let look = self.nccl.api.ncclCommGetAsyncError;
            // SAFETY: declared as in `nccl.h`; a communicator that is there, and a place for it.
            let looked = unsafe { look(communicator, &mut code) };
            self.nccl.judge(FUNCTION, looked)?;
            match code {
                SUCCESS => {}
                IN_PROGRESS => are_all = false,
                _ => return Err(self.nccl.failed(FUNCTION, code, Some(communicator))),
            }
        }
        Ok(are_all)
    }

    fn abort(&self, places: &[AtomicUsize]) {
        self.each(places, |communicator| {
            // SAFETY: a communicator that is there; nobody asks it anything afterwards.
            unsafe { (self.nccl.api.ncclCommAbort)(communicator) }
        });
    }

    /// Asks something of every communicator that was made, for the last time: whoever gives them back can do
    /// nothing about their failures.
    fn each(&self, places: &[AtomicUsize], ask: impl Fn(usize) -> u32) {
        for (device, place) in self.devices.iter().zip(places) {
            let communicator = place.load(Ordering::Acquire);
            if communicator != 0 {
                let asked = device.inside(|_, _| Ok(ask(communicator)));
                // Where the context cannot be entered any more, it goes all the same.
                asked.unwrap_or_else(|_| ask(communicator));
            }
        }
    }

    /// Ends the communicators when all peers have what they were sent; whether that worked.
    fn leave(&self, places: &[AtomicUsize]) -> Result<()> {
        self.grouped("ncclCommFinalize", |at, _| {
            // SAFETY: a communicator that is there.
            unsafe { (self.nccl.api.ncclCommFinalize)(places[at].load(Ordering::Acquire)) }
        })?;
        let patience = Patience::until(Instant::now() + LEAVING, &|| false);
        self.settle(places, &patience, "leaving")
    }
}

fn all_done(streams: &[&Stream]) -> Result<bool> {
    let mut all = true;
    for stream in streams {
        all &= stream.is_done()?;
    }
    Ok(all)
}

/// What peers have to do with an error, and what to do about it.
fn advised(error: Error, way_out: &str) -> Error {
    let advice = match error.status() {
        Status::TimedOut => {
            ": see whether the processes of all members run and come to the same calls, or raise \
             `timeoutSeconds`"
        }
        Status::Io => ": a peer ended or failed, or the network between them",
        // The caller's own wish.
        Status::Aborted => return error,
        _ => "",
    };
    let message = format!("{}{advice}; {way_out}", error.message());
    Error::new(error.status(), message).because(error)
}

impl Drop for Communicators {
    fn drop(&mut self) {
        let state = std::mem::replace(
            self.state
                .get_mut()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
            State::Aborted(Status::Freed, String::new()),
        );
        if let State::Live(places) = state {
            match self.leave(&places) {
                // SAFETY: a communicator that is there, for the last time.
                Ok(()) => self.each(&places, |communicator| unsafe {
                    (self.nccl.api.ncclCommDestroy)(communicator)
                }),
                Err(_) => self.abort(&places),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_and_an_unknown_one_is_a_fault() {
        for (code, expected) in [
            (1, Status::DeviceFault),
            (2, Status::Io),
            (3, Status::Internal),
            (4, Status::Internal),
            (5, Status::Internal),
            (6, Status::Io),
            (8, Status::DeviceFault),
            (u32::MAX, Status::DeviceFault),
        ] {
            assert_eq!(status(code), expected, "{code}");
        }
    }

    #[test]
    fn whatever_failed_the_way_out_is_told() {
        for status in Status::ALL {
            let advised = advised(Error::new(status, "it failed"), FREE_AND_JOIN);
            assert_eq!(advised.status(), status);
            let message = advised.message();
            assert!(message.starts_with("it failed"), "{message}");
            let is_told = message.ends_with(FREE_AND_JOIN);
            assert_eq!(is_told, status != Status::Aborted, "{message}");
        }
    }

    #[test]
    fn a_configuration_is_as_long_as_that_of_nccl_2_14() {
        assert_eq!(CONFIG_BYTES, 24);
    }

    #[test]
    fn an_id_has_its_length_and_is_not_shown() {
        let id = UniqueId::from_bytes(&[7; ID_BYTES]).unwrap();
        assert_eq!(id.bytes(), &[7; ID_BYTES]);
        assert_eq!(format!("{id:?}"), "UniqueId(…)");
        let error = UniqueId::from_bytes(&[7; 3]).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("3 bytes: expected 128"), "{error}");
    }
}
