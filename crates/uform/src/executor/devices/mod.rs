//! The devices an executor drives: a stream and scratch on each, and one call at a time that uses them.
//!
//! The thread that holds the executor, the conductor for a deferred call and its caller for an immediate one,
//! submits to all of them: a host thread drives every device, and what it submitted runs there
//! beside what it does meanwhile. A call is not over before its devices are done, so that a fault is
//! that of the call which met it. It then stays: every later call and drain of the executor reports it.
//!
//! Executors that drive the same device share it, and a model loaded by one is computed by any. So
//! a device is opened once, and closed when the last of what it handed out is gone: memory of results
//! may outlive the executor that computed them.
//!
//! | what | owner |
//! | --- | --- |
//! | the device, its context | everybody's who has something of it |
//! | [`DrivenDevice`]: stream, scratch, staging | the executor's, until it is freed |
//! | weights and kernels | the model's |

mod choose;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::Serialize;

use self::choose::{choose, class_on, list};
use super::call::Control;
use super::description::ExecutorKind;
use super::result_pool::{ResultBuffer, ResultPool};
use super::{Executor, Parts, Threads, default_lanes, limit_of};
use crate::device::{Buffer, Device, Layout, Runtime, Staging, Stream, kernels::Kernels};
use crate::hardware::{GpuClass, GpuVendor, gpu_devices};
use crate::placement::{Placement, VramOptions};
use crate::{Error, Result, Status, quoted};

/// What an executor drives.
pub struct Devices {
    /// Ordinals and classes, in the order they were asked for.
    places: Vec<Driven>,
    pinned: Option<GpuClass>,
    scratch_limit: Option<usize>,
    /// Locked by the call that holds, so never waited for.
    driven: Mutex<Vec<DrivenDevice>>,
    /// None once the executor was freed.
    open: Mutex<Vec<Arc<Device>>>,
    scratch_bytes: Vec<AtomicUsize>,
}

/// Which device, and the class of its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driven {
    /// Its position in [`gpu_devices`].
    pub ordinal: u32,
    /// The class whose kernels run on it.
    pub class: GpuClass,
    /// Whether its stream is borrowed.
    pub is_borrowed: bool,
}

/// A device and what a call needs to use it.
pub struct DrivenDevice {
    /// Which it is.
    pub place: Driven,
    /// The device.
    pub device: Arc<Device>,
    /// Where everything is submitted.
    pub stream: Arc<Stream>,
    /// What the host and the device copy through, in the order of the stream.
    pub staging: Staging,
    /// What a call computes in.
    pub scratch: Scratch,
    /// What a call's results are in.
    pub results: ResultPool,
}

/// A device's memory that is kept from call to call, and grows to what was asked for.
pub struct Scratch {
    device: Arc<Device>,
    ordinal: u32,
    buffer: Option<Buffer>,
    limit: Option<usize>,
}

/// A device, as `describe()` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceDescription {
    /// Its position in [`gpu_devices`].
    pub ordinal: u32,
    /// As its driver names it.
    pub name: String,
    /// The class whose kernels run on it.
    pub gpu_class: &'static str,
    /// Whether its stream is borrowed.
    pub stream_borrowed: bool,
    /// Bytes of scratch kept on it.
    #[serde(serialize_with = "super::description::number")]
    pub scratch_bytes: usize,
    /// The most of those; `None`: as many as batches ask for.
    #[serde(serialize_with = "super::description::maybe_number")]
    pub scratch_limit: Option<usize>,
}

impl Driven {
    /// Whether the kernels of its class multiply bf16 by tensor cores.
    pub fn has_tensor_cores(&self) -> bool {
        self.class.vendor() == GpuVendor::Nvidia
    }
}

impl Executor {
    /// Drives GPUs, for models that reside in their memory: a stream on each device, host threads for
    /// the work devices cannot do, and the one of those that runs the call submits to all devices.
    /// The host threads are those of [`for_ram`](Self::for_ram), as many as it spawns by default.
    ///
    /// A device is used as the one others in this process use as well: its primary context. It stays
    /// open until everything on it is gone, models and results as well.
    ///
    /// # Errors
    /// - [`InvalidArgument`](Status::InvalidArgument) for a device that is not there or named twice, a
    ///   class that a device cannot run, streams that are not one a device or not that device's, limits of zero,
    ///   and for options of host threads that [`for_ram`](Self::for_ram) refuses too.
    /// - [`Unsupported`](Status::Unsupported), with the driver's words, where there is no GPU to drive,
    ///   and for a device of no class.
    /// - [`OutOfMemory`](Status::OutOfMemory) for a thread or a stream;
    ///   [`DeviceFault`](Status::DeviceFault).
    ///
    /// Nothing is left behind.
    pub fn for_vram(options: &VramOptions) -> Result<Executor> {
        let placement = Placement::here(&options.memory_domains)?;
        if let Some(class) = options.cpu_class {
            class.runs_here()?;
        }
        let deferred_limit = limit_of(options.deferred_limit)?;
        let lanes = default_lanes(placement.parallelism());
        let executor = Executor::new(Parts {
            kind: ExecutorKind::Vram,
            lanes,
            placement,
            cpu_class: options.cpu_class,
            deferred_limit,
            threads: Threads::new(lanes),
            devices: Some(Arc::new(Devices::open(options)?)),
        });
        executor.core().threads.start(executor.core())?;
        Ok(executor)
    }

    /// The devices it drives; `None`: it drives none.
    pub fn devices(&self) -> Option<&Arc<Devices>> {
        self.core().devices.as_ref()
    }

    /// Runs `work` with the devices while the caller waits: an [`immediate`](Self::immediate) call. It is over when
    /// all that was submitted to the devices' streams is done.
    ///
    /// # Errors
    /// Those of `work` and of [`immediate`](Self::immediate); [`DeviceFault`](Status::DeviceFault);
    /// [`InvalidArgument`](Status::InvalidArgument) for an executor that drives none.
    pub fn on_devices<R>(
        &self,
        control: &Control,
        work: impl FnOnce(&mut [DrivenDevice], &Control) -> Result<R>,
    ) -> Result<R> {
        let devices = self.driving()?;
        self.immediate(control, |hold| {
            devices.lend(|driven| work(driven, hold.control))
        })
    }

    /// The same as a [`deferred`](Self::deferred) call, in the order of submission: returns at once, and hands
    /// the outcome to `done`, exactly once.
    pub fn on_devices_deferred<R: Send + 'static>(
        &self,
        control: Arc<Control>,
        work: impl FnOnce(&mut [DrivenDevice], &Control) -> Result<R> + Send + 'static,
        done: impl FnOnce(Result<R>) + Send + 'static,
    ) {
        match self.driving().cloned() {
            Ok(devices) => self.deferred(
                control,
                move |hold| devices.lend(|driven| work(driven, hold.control)),
                done,
            ),
            Err(error) => done(Err(error)),
        }
    }

    /// The devices, of an executor that drives some.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for another one.
    pub fn driving(&self) -> Result<&Arc<Devices>> {
        self.devices().ok_or_else(|| {
            Error::invalid(format!(
                "the executor drives no device: it is {}; make one with Executor.forVram",
                self.kind().words()
            ))
        })
    }
}

impl Devices {
    fn open(options: &VramOptions) -> Result<Devices> {
        if options.scratch_limit == Some(0) {
            return Err(Error::invalid(
                "scratchLimit is 0: a call needs some scratch, or leave it out for as much as \
                 batches ask for",
            ));
        }
        let chosen = choose(options, gpu_devices())?;
        let streams = match &options.streams[..] {
            [] => vec![None; chosen.len()],
            streams if streams.len() == chosen.len() => streams.to_vec(),
            streams => {
                return Err(Error::invalid(format!(
                    "`streams` has {} of them, and there are {} devices: expected one a device in \
                     the order of `devices`, or none",
                    streams.len(),
                    chosen.len()
                )));
            }
        };
        let mut driven = Vec::with_capacity(chosen.len());
        for ((ordinal, class), borrowed) in chosen.into_iter().zip(streams) {
            let device = share(ordinal)?;
            let stream = Arc::new(match borrowed {
                None => device.stream()?,
                Some(borrowed) => {
                    let stream = device.borrow_stream(borrowed);
                    stream.map_err(|error| match error.status() {
                        Status::InvalidArgument => Error::invalid(format!(
                            "`streams`, for device {ordinal}: {}",
                            error.message()
                        )),
                        _ => error,
                    })?
                }
            });
            driven.push(DrivenDevice {
                place: Driven {
                    ordinal,
                    class,
                    is_borrowed: stream.is_borrowed(),
                },
                staging: Staging::new(stream.clone()),
                results: ResultPool::new(device.clone()),
                scratch: Scratch {
                    device: device.clone(),
                    ordinal,
                    buffer: None,
                    limit: options.scratch_limit,
                },
                stream,
                device,
            });
        }
        Ok(Devices {
            places: driven.iter().map(|driven| driven.place).collect(),
            pinned: options.gpu_class,
            scratch_limit: options.scratch_limit,
            open: Mutex::new(driven.iter().map(|driven| driven.device.clone()).collect()),
            scratch_bytes: driven.iter().map(|_| AtomicUsize::new(0)).collect(),
            driven: Mutex::new(driven),
        })
    }

    /// Which they are, in the order they were asked for.
    pub fn places(&self) -> &[Driven] {
        &self.places
    }

    /// The class it is pinned to, if it is.
    pub fn pinned(&self) -> Option<GpuClass> {
        self.pinned
    }

    /// Some of them by their ordinals, all for none, each with the class whose kernels a model computes with there:
    /// the one that was asked for, else the one it is pinned to, else the device's own.
    ///
    /// # Errors
    /// [`InvalidArgument`](Status::InvalidArgument) for ordinals that are not among them or are there twice, and for
    /// a class that a device cannot run or that is not the one it is pinned to.
    pub fn subset(&self, ordinals: &[u32], class: Option<GpuClass>) -> Result<Vec<Driven>> {
        if let (Some(asked), Some(pinned)) = (class, self.pinned)
            && asked != pinned
        {
            return Err(Error::invalid(format!(
                "`gpuClass` is {:?} and the executor is pinned to {:?}: pin both alike, or only one",
                asked.word(),
                pinned.word()
            )));
        }
        let driven: Vec<_> = self.places.iter().map(|place| place.ordinal).collect();
        let asked = match ordinals {
            [] => &driven,
            ordinals => ordinals,
        };
        let mut found = Vec::with_capacity(asked.len());
        for (at, ordinal) in asked.iter().copied().enumerate() {
            let own = self.places.iter().find(|place| place.ordinal == ordinal);
            let wrong = match own {
                _ if asked[..at].contains(&ordinal) => format!("{ordinal} is there twice"),
                None => format!("{ordinal} is not one of the executor's"),
                Some(own) => {
                    let listed = &gpu_devices()[ordinal as usize];
                    let class = class_on(listed, ordinal, class.or(self.pinned))?;
                    found.push(Driven { class, ..*own });
                    continue;
                }
            };
            return Err(Error::invalid(format!(
                "`devices` is {}: {wrong}; accepted, each once: {}",
                quoted::list(ordinals),
                list(&driven)
            )));
        }
        Ok(found)
    }

    /// For the call that holds the executor: the devices, until the work is done and they are, too.
    ///
    /// # Errors
    /// Those of `work`, and a device's fault that was met meanwhile;
    /// [`Freed`](Status::Freed) when the executor was freed.
    pub fn lend<R>(&self, work: impl FnOnce(&mut [DrivenDevice]) -> Result<R>) -> Result<R> {
        let mut driven = lock(&self.driven);
        if driven.len() < self.places.len() {
            return Err(gone());
        }
        let mut lent = Lent {
            devices: self,
            driven: &mut driven,
        };
        let found = work(lent.driven)?;
        lent.wait()?;
        Ok(found)
    }

    /// The devices themselves, for who does something together with others.
    ///
    /// # Errors
    /// [`Freed`](Status::Freed) when the executor was freed.
    pub fn opened(&self) -> Result<Vec<Arc<Device>>> {
        let open = lock(&self.open);
        match open.len() < self.places.len() {
            true => Err(gone()),
            false => Ok(open.clone()),
        }
    }

    /// The fault of a device, which ends the use of all of them.
    ///
    /// # Errors
    /// [`DeviceFault`](Status::DeviceFault).
    pub(super) fn check(&self) -> Result<()> {
        let open = lock(&self.open);
        open.iter().try_for_each(|device| device.check())
    }

    /// Gives back streams and scratch, when there will be no call. What others have of the
    /// devices keeps those open.
    pub(super) fn release(&self) {
        lock(&self.open).clear();
        lock(&self.driven).clear();
        for bytes in &self.scratch_bytes {
            bytes.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn describe(&self) -> Vec<DeviceDescription> {
        let described = self.places.iter().zip(&self.scratch_bytes);
        described
            .map(|(place, bytes)| DeviceDescription {
                ordinal: place.ordinal,
                name: gpu_devices()[place.ordinal as usize].name.clone(),
                gpu_class: place.class.word(),
                stream_borrowed: place.is_borrowed,
                scratch_bytes: bytes.load(Ordering::Relaxed),
                scratch_limit: self.scratch_limit,
            })
            .collect()
    }
}

fn gone() -> Error {
    Error::new(
        Status::Freed,
        "the executor was freed, and drives its devices no more",
    )
}

/// The devices while a call has them: waited for in the end, however it comes.
struct Lent<'a> {
    devices: &'a Devices,
    driven: &'a mut [DrivenDevice],
}

impl Lent<'_> {
    /// Waits for all of them, and returns the first failure.
    fn wait(&mut self) -> Result<()> {
        let mut all = Ok(());
        for (driven, bytes) in self.driven.iter_mut().zip(&self.devices.scratch_bytes) {
            all = all.and(driven.staging.wait());
            bytes.store(driven.scratch.bytes(), Ordering::Relaxed);
        }
        all
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // A device keeps its fault, for everybody who asks.
        let _ = self.wait();
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Scratch {
    /// A buffer as large as a layout, with whatever was there.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) when that is above the executor's limit, or the device
    /// has not so much.
    pub fn of(&mut self, layout: &Layout) -> Result<&Buffer> {
        let bytes = layout.bytes();
        if let Some(limit) = self.limit
            && bytes > limit
        {
            return Err(Error::new(
                Status::OutOfMemory,
                format!(
                    "{bytes} bytes of scratch are needed on device {} and the executor's scratchLimit \
                     is {limit}: encode shorter texts, or make an executor with a higher one",
                    self.ordinal
                ),
            ));
        }
        if self.bytes() < bytes {
            // Both at once may be more than there is.
            self.buffer = None;
        }
        match &mut self.buffer {
            Some(buffer) => Ok(buffer),
            none => {
                let allocated = self.device.allocate(bytes);
                let allocated =
                    allocated.map_err(|error| refused(self.ordinal, bytes, "scratch", error));
                Ok(none.insert(allocated?))
            }
        }
    }

    /// The most bytes a layout may have; `None`: as many as the device has.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::bytes)
    }
}

impl DrivenDevice {
    /// Memory for results of a call.
    ///
    /// # Errors
    /// Those of [`allocate`](Self::allocate).
    pub fn allocate_results(&self, bytes: usize) -> Result<ResultBuffer> {
        let taken = self.results.take(bytes);
        taken.map_err(|error| refused(self.place.ordinal, bytes, "the vectors of a call", error))
    }

    /// Memory of the device for `what`.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) naming it, the bytes and the device;
    /// [`DeviceFault`](Status::DeviceFault).
    pub fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        let allocated = self.device.allocate(bytes);
        allocated.map_err(|error| refused(self.place.ordinal, bytes, what, error))
    }
}

/// A device's answer to an allocation, in words that name what it was for.
fn refused(ordinal: u32, bytes: usize, what: &str, error: Error) -> Error {
    match error.status() {
        Status::OutOfMemory => Error::new(
            Status::OutOfMemory,
            format!(
                "device {ordinal} refused {bytes} bytes for {what}: free what is not needed on it, or \
                 do less at a time"
            ),
        )
        .because(error),
        _ => error,
    }
}

/// Devices that are open, by their ordinals.
static OPEN: Mutex<BTreeMap<u32, Weak<Device>>> = Mutex::new(BTreeMap::new());

/// The device of an ordinal, shared by all who drive it.
fn share(ordinal: u32) -> Result<Arc<Device>> {
    let mut open = lock(&OPEN);
    if let Some(device) = open.get(&ordinal).and_then(Weak::upgrade) {
        return Ok(device);
    }
    let listed = &gpu_devices()[ordinal as usize];
    let called = format!("device {ordinal}, {}", listed.name);
    let device = Device::open_as(runtime_of(listed.vendor), listed.runtime_index, called)?;
    open.insert(ordinal, Arc::downgrade(&device));
    Ok(device)
}

/// Whether this process drives a device already.
fn is_driven(ordinal: u32) -> bool {
    let open = lock(&OPEN);
    open.get(&ordinal)
        .is_some_and(|device| device.strong_count() > 0)
}

fn runtime_of(vendor: GpuVendor) -> Runtime {
    match vendor {
        GpuVendor::Amd => Runtime::Hip,
        _ => Runtime::Cuda,
    }
}

/// The kernels of a class for a device that is driven, shared by all models that compute with them: a driver may
/// have to compile them.
///
/// # Errors
/// Those of [`Kernels::load`].
pub fn load_kernels(driven: &DrivenDevice, class: GpuClass) -> Result<Arc<Kernels>> {
    static LOADED: Mutex<BTreeMap<(u32, u32), Weak<Kernels>>> = Mutex::new(BTreeMap::new());
    let ordinal = driven.place.ordinal;
    let mut loaded = lock(&LOADED);
    let place = loaded.entry((ordinal, class.code())).or_default();
    if let Some(kernels) = place.upgrade()
        && Arc::ptr_eq(kernels.device(), &driven.device)
    {
        return Ok(kernels);
    }
    let own = gpu_devices()[ordinal as usize].gpu_class;
    let kernels = Arc::new(Kernels::load(&driven.device, own != Some(class))?);
    *place = Arc::downgrade(&kernels);
    Ok(kernels)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is valid whatever a panicking thread was doing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
