//! A stream: what is submitted to it happens in that order, beside what other streams do.

use std::sync::Arc;

use super::driver::{Driver, Launch, Raw};
use super::memory::Buffer;
use super::module::{Argument, Kernel, Shape};
use super::owned::Device;
use crate::{Error, Result, Status};

/// A stream of a device.
pub struct Stream {
    device: Arc<Device>,
    stream: Raw,
    is_borrowed: bool,
}

/// A stream of somebody else's, by its address, as it is passed to whoever borrows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowedStream(u64);

impl BorrowedStream {
    /// The stream at an address; none at 0.
    ///
    /// # Safety
    /// The address is that of a stream of the device's runtime, which lives longer than whatever
    /// borrows it.
    pub unsafe fn at(address: u64) -> Option<BorrowedStream> {
        (address != 0).then_some(BorrowedStream(address))
    }
}

impl Device {
    /// A stream that waits for no other.
    ///
    /// # Errors
    /// [`DeviceFault`](crate::Status::DeviceFault), [`OutOfMemory`](crate::Status::OutOfMemory).
    pub fn stream(self: &Arc<Self>) -> Result<Stream> {
        let stream = self.within(|driver, _| driver.stream())?;
        Ok(Stream {
            device: self.clone(),
            stream,
            is_borrowed: false,
        })
    }

    /// Somebody else's stream, which is never ended here.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when it is another device's.
    ///
    pub fn borrow_stream(self: &Arc<Self>, borrowed: BorrowedStream) -> Result<Stream> {
        let BorrowedStream(address) = borrowed;
        let stream = Raw(address as usize);
        let index = self.properties().index;
        // SAFETY: a stream, which was asked of whoever said where it is.
        let is_ours =
            self.within(|driver, context| unsafe { driver.is_ours(stream, index, context) });
        // The driver may know that it is none.
        let failure = match is_ours {
            Ok(true) => None,
            Ok(false) => Some(String::new()),
            Err(error) if error.status() == Status::Internal => Some(format!(": {error}")),
            Err(error) => return Err(error),
        };
        if let Some(failure) = failure {
            return Err(Error::invalid(format!(
                "stream {address:#x} is not one of {} ({} device {index}): expected a stream made \
                 in the device's primary context{failure}",
                self.properties().name,
                self.properties().runtime,
            )));
        }
        Ok(Stream {
            device: self.clone(),
            stream,
            is_borrowed: true,
        })
    }
}

impl Stream {
    /// Whose stream it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether it is somebody else's.
    pub fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    /// The vendor's own handle, by which other libraries can be lent it.
    pub fn address(&self) -> u64 {
        self.stream.0 as u64
    }

    /// Waits for everything submitted so far.
    ///
    /// # Errors
    /// [`DeviceFault`](crate::Status::DeviceFault), which may be that of something submitted long
    /// ago, on any stream of the device.
    pub fn wait(&self) -> Result<()> {
        self.device
            // SAFETY: the stream lives as long as this does.
            .waiting(|driver| unsafe { driver.wait(self.stream) })
    }

    /// Whether everything submitted so far is done.
    ///
    /// # Errors
    /// As those of [`wait`](Stream::wait).
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: as above.
        self.device
            .within(|driver, _| unsafe { driver.is_done(self.stream) })
    }

    /// Copies bytes to where the buffer has an offset, and waits.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when they do not fit;
    /// otherwise as those of [`wait`](Stream::wait).
    pub fn upload(&self, to: &mut Buffer, offset: usize, from: &[u8]) -> Result<()> {
        // SAFETY: it has been waited for before the bytes can change or go.
        unsafe { self.submit_upload(to, offset, from) }?;
        self.wait()
    }

    /// Copies bytes from where the buffer has an offset, and waits.
    ///
    /// # Errors
    /// As those of [`upload`](Stream::upload).
    pub fn download(&self, to: &mut [u8], from: &Buffer, offset: usize) -> Result<()> {
        // SAFETY: it has been waited for before the bytes can be looked at or go.
        unsafe { self.submit_download(to, from, offset) }?;
        self.wait()
    }

    /// Submits a copy of bytes to where the buffer has an offset.
    ///
    /// # Errors
    /// As those of [`upload`](Stream::upload).
    ///
    /// # Safety
    /// Until the stream has been waited for, the bytes and the buffer stay as they are.
    pub unsafe fn submit_upload(&self, to: &Buffer, offset: usize, from: &[u8]) -> Result<()> {
        let at = self.part(to, offset, from.len())?;
        // SAFETY: both are that large, and stay, which is asked of the caller.
        self.submit(|driver| unsafe { driver.upload(at, from.as_ptr(), from.len(), self.stream) })
    }

    /// Submits a copy of bytes from where the buffer has an offset.
    ///
    /// # Errors
    /// As those of [`upload`](Stream::upload).
    ///
    /// # Safety
    /// Until the stream has been waited for, nobody looks at the bytes, and both stay.
    pub unsafe fn submit_download(
        &self,
        to: &mut [u8],
        from: &Buffer,
        offset: usize,
    ) -> Result<()> {
        let at = self.part(from, offset, to.len())?;
        let (address, bytes) = (to.as_mut_ptr(), to.len());
        // SAFETY: both are that large, and stay, which is asked of the caller.
        self.submit(|driver| unsafe { driver.download(address, at, bytes, self.stream) })
    }

    /// Submits filling the whole buffer with a byte.
    ///
    /// # Errors
    /// As those of [`wait`](Stream::wait).
    pub fn fill(&self, buffer: &mut Buffer, byte: u8) -> Result<()> {
        let at = self.part(buffer, 0, buffer.bytes())?;
        // SAFETY: that large; freed only after what was submitted before.
        self.submit(|driver| unsafe { driver.fill(at, byte, buffer.bytes(), self.stream) })
    }

    /// Submits a copy of so many bytes from the beginning of one buffer to that of another.
    ///
    /// # Errors
    /// As those of [`upload`](Stream::upload).
    pub fn copy(&self, to: &mut Buffer, from: &Buffer, bytes: usize) -> Result<()> {
        let (to, from) = (self.part(to, 0, bytes)?, self.part(from, 0, bytes)?);
        // SAFETY: both that large; freed only after what was submitted before.
        self.submit(|driver| unsafe { driver.copy(to, from, bytes, self.stream) })
    }

    /// Submits a launch.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for another device's kernel; otherwise as those of
    /// [`wait`](Stream::wait). A fault of the kernel's own is seen by whoever waits.
    ///
    /// # Safety
    /// The arguments are those the kernel declares, in number and kind, and the memory
    /// that it reads and writes under them is there until the stream has been waited for. So is the kernel's module.
    pub unsafe fn launch(
        &self,
        kernel: &Kernel,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<()> {
        kernel.check_device(&self.device)?;
        // The driver copies the values before it returns.
        let mut pointers: Vec<_> = arguments.iter().map(Argument::pointer).collect();
        let launch = Launch {
            kernel: kernel.raw(),
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            stream: self.stream,
            arguments: &mut pointers,
        };
        // SAFETY: the kernel's arguments, which is asked of the caller.
        self.submit(|driver| unsafe { driver.launch(launch) })
    }

    fn submit(&self, work: impl FnOnce(&dyn Driver) -> super::driver::Answer<()>) -> Result<()> {
        self.device.within(|driver, _| work(driver))
    }

    /// Where a part of a buffer lies, if it is a part, and the buffer this device's.
    fn part(&self, buffer: &Buffer, offset: usize, bytes: usize) -> Result<u64> {
        if !Arc::ptr_eq(buffer.device(), &self.device) {
            return Err(Error::invalid(
                "the buffer is another device's than the stream",
            ));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= buffer.bytes() => Ok(buffer.address() + offset as u64),
            _ => Err(Error::invalid(format!(
                "{bytes} bytes at {offset} are not within a buffer of {} bytes",
                buffer.bytes()
            ))),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.is_borrowed {
            // SAFETY: made by this driver, and nobody else's; what was submitted still happens.
            let end = |driver: &dyn Driver| unsafe { driver.end_stream(self.stream) };
            self.device.give_back(end);
        }
    }
}
