//! Code for a device: a module, its kernels, and what a launch takes.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use super::driver::{Code, Driver, Raw};
use super::owned::Device;
use crate::{Error, Result};

/// Code that a device has loaded.
pub struct Module {
    device: Arc<Device>,
    module: Raw,
}

/// A kernel of a module, which it keeps.
#[derive(Clone)]
pub struct Kernel {
    module: Arc<Module>,
    kernel: Raw,
}

/// How many threads a launch has, and how they are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, in x, y and z.
    pub grid: [u32; 3],
    /// Threads of each block.
    pub block: [u32; 3],
    /// Dynamic shared memory of each block.
    pub shared_bytes: u32,
}

/// How many addresses a kernel takes at once: more devices than any machine has that one process drives.
pub const MOST_ADDRESSES: usize = 16;

/// A kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// A pointer into the device's memory.
    Address(u64),
    /// A structure of so many pointers, which may lie in other devices' memory that this one reaches.
    Addresses([u64; MOST_ADDRESSES]),
    /// A 32-bit integer.
    U32(u32),
    /// A 64-bit integer.
    U64(u64),
    /// A 32-bit float.
    F32(f32),
}

impl Argument {
    /// Where its value lies; it is only read.
    pub(super) fn pointer(&self) -> *mut c_void {
        let value: *const c_void = match self {
            Argument::Address(value) | Argument::U64(value) => (&raw const *value).cast(),
            Argument::Addresses(values) => (&raw const *values).cast(),
            Argument::U32(value) => (&raw const *value).cast(),
            Argument::F32(value) => (&raw const *value).cast(),
        };
        value.cast_mut()
    }
}

impl Device {
    /// Loads code.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Status::Unsupported), with the driver's or the compiler's own words, for code that
    /// this device or driver does not take.
    pub fn load(self: &Arc<Self>, code: Code<'_>) -> Result<Arc<Module>> {
        let architecture = &self.properties().architecture;
        let module = self.within(|driver, _| driver.load(code, architecture))?;
        Ok(Arc::new(Module {
            device: self.clone(),
            module,
        }))
    }
}

impl Module {
    /// The kernel of a name.
    ///
    /// # Errors
    /// [`Internal`](crate::Status::Internal) when there is none: code and caller do not match.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel> {
        let symbol = CString::new(name)
            .map_err(|_| Error::invalid(format!("a kernel's name has no NUL: {name:?}")))?;
        // SAFETY: the module is loaded as long as this lives.
        let find = |driver: &dyn Driver| unsafe { driver.kernel(self.module, &symbol) };
        Ok(Kernel {
            module: self.clone(),
            kernel: self.device.within(|driver, _| find(driver))?,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by this driver; its kernels keep it, so none is left.
        let unload = |driver: &dyn Driver| unsafe { driver.unload(self.module) };
        self.device.give_back(unload);
    }
}

impl Kernel {
    /// Lets launches ask for so much dynamic shared memory, where that is more than the 48 KiB
    /// which every device grants.
    ///
    /// # Errors
    /// [`Internal`](crate::Status::Internal) when the device has less.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        // SAFETY: the kernel keeps its module.
        let allow = |driver: &dyn Driver| unsafe { driver.allow_shared(self.kernel, bytes) };
        self.module.device.within(|driver, _| allow(driver))
    }

    pub(super) fn raw(&self) -> Raw {
        self.kernel
    }

    pub(super) fn check_device(&self, device: &Arc<Device>) -> Result<()> {
        if Arc::ptr_eq(&self.module.device, device) {
            return Ok(());
        }
        Err(Error::invalid(
            "the kernel is another device's than the stream",
        ))
    }
}
