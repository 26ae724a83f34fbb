//! Memory of a device, and memory of the host that a device reaches.

use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use super::driver::Raw;
use super::owned::Device;
use crate::{Error, Result, Status};

/// Memory of a device. Its content is whatever was there.
pub struct Buffer {
    device: Arc<Device>,
    address: u64,
    bytes: usize,
}

impl Device {
    /// Memory of this many bytes, aligned to 256; none for 0.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Status::OutOfMemory), after which the device is as it was before;
    /// [`DeviceFault`](crate::Status::DeviceFault).
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let address = match bytes {
            0 => 0,
            _ => self.within(|driver, _| driver.allocate(bytes))?,
        };
        Ok(Buffer {
            device: self.clone(),
            address,
            bytes,
        })
    }

    /// Zeros in the host's memory, from and to which copies run beside everything else.
    ///
    /// # Errors
    /// As those of [`allocate`](Device::allocate).
    pub fn allocate_host(self: &Arc<Self>, bytes: usize) -> Result<HostBuffer> {
        // An address for no bytes, too: a slice has one.
        let address = self
            .within(|driver, _| driver.allocate_host(bytes.max(1)))
            .map_err(|error| match error.status() {
                Status::OutOfMemory => Error::new(
                    Status::OutOfMemory,
                    format!(
                        "the driver refused {bytes} bytes of pinned host memory for copies to and from \
                         {}: free memory of the host, or do less at a time",
                        self.called()
                    ),
                )
                .because(error),
                _ => error,
            })?;
        // SAFETY: just allocated, of at least this size.
        unsafe { (address.0 as *mut u8).write_bytes(0, bytes) };
        Ok(HostBuffer {
            device: self.clone(),
            address,
            bytes,
        })
    }
}

impl Buffer {
    /// Where it begins, in the device's memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose memory it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: allocated by this driver; what was submitted before ends first.
            let free = |driver: &dyn super::driver::Driver| unsafe { driver.free(self.address) };
            self.device.give_back(free);
        }
    }
}

/// Memory of the host that stays where it is. Read and written as bytes.
pub struct HostBuffer {
    device: Arc<Device>,
    address: Raw,
    bytes: usize,
}

impl Deref for HostBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: of this size, and initialized; copies into it are unsafe to submit for this reason.
        unsafe { slice::from_raw_parts(self.address.0 as *const u8, self.bytes) }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; copies from it are unsafe to submit for this reason.
        unsafe { slice::from_raw_parts_mut(self.address.0 as *mut u8, self.bytes) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated by this driver.
        let free = |driver: &dyn super::driver::Driver| unsafe { driver.free_host(self.address) };
        self.device.give_back(free);
    }
}
