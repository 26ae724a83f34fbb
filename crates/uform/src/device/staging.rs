//! Copies between a host's ordinary memory and a device that do not wait for each other.
//!
//! A copy that runs beside everything else needs memory of the host that stays where it is, and as
//! it is until the copy is done. A [`Staging`] has such memory, which grows to what was copied between
//! two [waits](Staging::wait) and is used again after each.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use super::layout::View;
use super::memory::HostBuffer;
use super::stream::Stream;
use crate::{Error, Result, Status};

/// The least memory that is taken at a time.
const CHUNK: usize = 1 << 18;

/// Where each copy begins is a multiple of this.
const ALIGNMENT: usize = 64;

/// Memory to copy through, to and from the device of a stream.
pub struct Staging {
    stream: Arc<Stream>,
    chunks: Vec<HostBuffer>,
    /// Bytes of the last chunk that copies have.
    used: usize,
    /// Waits so far: what was downloaded since the one before the last is gone.
    waits: u64,
}

/// Numbers on their way from the device, which are there after the next wait and until the one after it.
pub struct Download<T> {
    chunk: usize,
    offset: usize,
    count: usize,
    wait: u64,
    kind: PhantomData<T>,
}

impl Staging {
    /// For copies in the order of what else is submitted to the stream.
    pub fn new(stream: Arc<Stream>) -> Staging {
        Staging {
            stream,
            chunks: Vec::new(),
            used: 0,
            waits: 0,
        }
    }

    /// Submits a copy of numbers to where there is room for as many.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) for memory of the host's;
    /// [`DeviceFault`](Status::DeviceFault).
    ///
    /// # Panics
    /// When there is room for another number of them.
    pub fn upload<T: Pod>(&mut self, to: View<'_, T>, values: &[T]) -> Result<()> {
        assert_eq!(to.count(), values.len(), "numbers, and room for them");
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let (chunk, offset) = self.room(bytes.len())?;
        let part = &mut self.chunks[chunk][offset..][..bytes.len()];
        part.copy_from_slice(bytes);
        // SAFETY: the part is nobody else's, and stays as it is until the stream was waited for.
        unsafe { self.stream.submit_upload(to.buffer(), to.offset(), part) }
    }

    /// Submits a copy of numbers from the device.
    ///
    /// # Errors
    /// As those of [`upload`](Self::upload).
    pub fn download<T: Pod>(&mut self, from: View<'_, T>) -> Result<Download<T>> {
        let (chunk, offset) = self.room(from.bytes())?;
        let part = &mut self.chunks[chunk][offset..][..from.bytes()];
        // SAFETY: the part is nobody else's, and is looked at only after the stream was waited for.
        unsafe {
            self.stream
                .submit_download(part, from.buffer(), from.offset())
        }?;
        Ok(Download {
            chunk,
            offset,
            count: from.count(),
            wait: self.waits,
            kind: PhantomData,
        })
    }

    /// Waits for everything that was submitted to the stream so far.
    ///
    /// # Errors
    /// [`DeviceFault`](Status::DeviceFault).
    pub fn wait(&mut self) -> Result<()> {
        self.stream.wait()?;
        self.waits += 1;
        self.used = 0;
        Ok(())
    }

    /// What was downloaded.
    ///
    /// # Errors
    /// [`Internal`](Status::Internal) before it was waited for, and after something else was copied.
    pub fn downloaded<T: Pod>(&self, download: &Download<T>) -> Result<&[T]> {
        if download.wait + 1 != self.waits || self.used > 0 {
            return Err(Error::new(
                Status::Internal,
                "a download is looked at before it has been waited for, or too late",
            ));
        }
        let bytes = download.count * size_of::<T>();
        let part = &self.chunks[download.chunk][download.offset..][..bytes];
        Ok(bytemuck::cast_slice(part))
    }

    /// Room for so many bytes that no copy has.
    fn room(&mut self, bytes: usize) -> Result<(usize, usize)> {
        // What was there for the copies that have been waited for: one chunk as large as all of them.
        if self.used == 0 && self.chunks.len() > 1 {
            let all = self.chunks.iter().map(|chunk| chunk.len()).sum();
            self.chunks = vec![self.stream.device().allocate_host(all)?];
            // No download is found there.
            self.waits += 1;
        }
        let fits = |chunk: &HostBuffer| bytes <= chunk.len() - self.used;
        if !self.chunks.last().is_some_and(fits) {
            let bytes = bytes.max(CHUNK);
            self.chunks.push(self.stream.device().allocate_host(bytes)?);
            self.used = 0;
        }
        let offset = self.used;
        let capacity = self.chunks.last().map_or(0, |chunk| chunk.len());
        self.used = (offset + bytes.max(1))
            .next_multiple_of(ALIGNMENT)
            .min(capacity);
        Ok((self.chunks.len() - 1, offset))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Copies may be under way; of their failures the device knows.
        let _ = self.stream.wait();
    }
}
