//! A device being driven: its context, and the fault that ends it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::driver::{Answer, Driver, Failure, Properties, Raw, Runtime};
use crate::{Error, Result, Status};

/// Devices that faulted in this process. Their contexts are the process's, and outlive what opened them.
static FAULTED: Mutex<Vec<(Runtime, u32)>> = Mutex::new(Vec::new());

/// Whether a device has faulted since the process began, also when it was closed since.
pub fn has_faulted(runtime: Runtime, index: u32) -> bool {
    let known = FAULTED.lock().unwrap_or_else(PoisonError::into_inner);
    known.contains(&(runtime, index))
}

/// A device whose context this process holds. What it hands out keeps it.
pub struct Device {
    pub(super) driver: &'static dyn Driver,
    context: Raw,
    properties: Properties,
    /// What messages call it.
    called: String,
    fault: OnceLock<Failure>,
}

impl Device {
    /// Takes the device's primary context, the one that other libraries in this process use, too.
    ///
    /// # Errors
    /// [`Unsupported`](Status::Unsupported) when there is no driver, or no such device;
    /// [`DeviceFault`](Status::DeviceFault).
    pub fn open(runtime: Runtime, index: u32) -> Result<Arc<Device>> {
        Device::open_called(runtime, index, None)
    }

    /// The same for who knows the device by another name than the runtime's, which messages then call it.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_as(runtime: Runtime, index: u32, called: String) -> Result<Arc<Device>> {
        Device::open_called(runtime, index, Some(called))
    }

    fn open_called(runtime: Runtime, index: u32, called: Option<String>) -> Result<Arc<Device>> {
        let driver = runtime.driver()?;
        let devices = driver.devices();
        let found = devices.into_iter().find(|device| device.index == index);
        let properties = found.ok_or_else(|| {
            Error::unsupported(format!(
                "{runtime} has no device {index}, or it does not answer"
            ))
        })?;
        let called =
            called.unwrap_or_else(|| format!("{runtime} device {index}, {}", properties.name));
        let context = driver.retain(index);
        let context = context.map_err(|failure| noted(&called, &properties, failure))?;
        Ok(Arc::new(Device {
            driver,
            context,
            properties,
            called,
            fault: OnceLock::new(),
        }))
    }

    /// What is known of it.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// What messages call it.
    pub fn called(&self) -> &str {
        &self.called
    }

    /// What ended it; `None`: it works.
    pub fn fault(&self) -> Option<&Failure> {
        self.fault.get()
    }

    /// Whether it works.
    ///
    /// # Errors
    /// [`DeviceFault`](Status::DeviceFault): its fault, in the words that every later call on it has.
    pub fn check(&self) -> Result<()> {
        match self.fault.get() {
            None => Ok(()),
            Some(fault) => Err(faulted(&self.called, fault.clone())),
        }
    }

    /// Free and total bytes of its memory, for all processes.
    ///
    /// # Errors
    /// [`DeviceFault`](Status::DeviceFault).
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.within(|driver, _| driver.memory())
    }

    /// Lets this device's kernels reach a peer's memory, from now on and for as long as the process
    /// lives. `false`: this machine cannot, or the peer is another vendor's.
    ///
    /// # Errors
    /// [`DeviceFault`](Status::DeviceFault).
    pub fn reach(&self, peer: &Device) -> Result<bool> {
        let (own, other) = (&self.properties, &peer.properties);
        if own.runtime != other.runtime {
            return Ok(false);
        }
        if own.index == other.index {
            return Ok(true);
        }
        // SAFETY: both contexts are held as long as their devices are there.
        let reach =
            |driver: &dyn Driver| unsafe { driver.reach(own.index, other.index, peer.context) };
        self.within(|driver, _| reach(driver))
    }

    /// Works within the device's context; the thread's own is there again afterwards.
    pub(super) fn within<T>(&self, work: impl FnOnce(&dyn Driver, Raw) -> Answer<T>) -> Result<T> {
        self.check()?;
        self.inside(work).map_err(|failure| self.told(failure))
    }

    /// The same for what waits, which is done on a device that faulted, too: after it the device reaches
    /// no memory of the host's any more. A wait that failed may have ended early, so it is done
    /// again, and its first failure is told.
    pub(super) fn waiting(&self, work: impl Fn(&dyn Driver) -> Answer<()>) -> Result<()> {
        let outcome = self.inside(|driver, _| work(driver));
        if outcome.is_err() {
            let _ = self.inside(|driver, _| work(driver));
        }
        self.check()?;
        outcome.map_err(|failure| self.told(failure))
    }

    /// A failure as an error. The first fault is kept, and stands for all that follow it.
    fn told(&self, failure: Failure) -> Error {
        match failure.status() {
            Status::DeviceFault => {
                let first = self.fault.get_or_init(|| failure).clone();
                noted(&self.called, &self.properties, first)
            }
            _ => failure.into(),
        }
    }

    /// The same for what gives things back, which is tried on a device that faulted, too, and
    /// whose failure nobody could do anything about.
    pub(super) fn give_back(&self, work: impl FnOnce(&dyn Driver) -> Answer<()>) {
        let _ = self.inside(|driver, _| work(driver));
    }

    /// The same for what has failures of its own, which are none of the device's.
    pub(super) fn inside<T>(&self, work: impl FnOnce(&dyn Driver, Raw) -> Answer<T>) -> Answer<T> {
        // SAFETY: the context is held until the device is dropped.
        let before = unsafe { self.driver.enter(self.context) }?;
        let outcome = work(self.driver, self.context);
        if before != self.context {
            // SAFETY: the thread's own, which it had when this began.
            unsafe { self.driver.leave(before) };
        }
        outcome
    }
}

/// A failure of a device as an error; that it faulted is kept, as [`has_faulted`] tells.
fn noted(called: &str, device: &Properties, failure: Failure) -> Error {
    if failure.status() != Status::DeviceFault {
        return failure.into();
    }
    let place = (device.runtime, device.index);
    let mut known = FAULTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains(&place) {
        known.push(place);
    }
    faulted(called, failure)
}

/// A fault, in words that say whose it is and the way out.
fn faulted(called: &str, fault: Failure) -> Error {
    Error::new(
        Status::DeviceFault,
        format!(
            "{called}, has faulted and works no more in this process: free what is on it and make an \
             executor on another device, or start the process again ({fault})"
        ),
    )
    .because(fault)
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: taken when the device was opened; whatever it handed out keeps it, and is gone.
        unsafe { self.driver.release(self.properties.index) };
    }
}
