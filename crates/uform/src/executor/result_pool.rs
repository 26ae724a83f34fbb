//! Memory of results, small buffers of which are kept for the next call.
//!
//! A driver frees memory when everything is done that the device has to do, and keeps the thread that asked
//! waiting. Results are dropped by a program's own thread, which must not wait for other calls.
//! So small ones go back to a pool. Large ones are freed at once: what they take would be missed.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Result;
use crate::device::{Buffer, Device};

/// The largest buffer that is kept: a thousand vectors of 256 numbers.
const LARGEST: usize = 1 << 20;

/// The least that is taken at a time. Sizes are powers of two of it, so that each serves many sizes.
const LEAST: usize = 1 << 12;

/// The most that is kept on a device.
const MOST: usize = 32 << 20;

/// Spare buffers of a device; `None` once the executor was freed.
type Spare = Mutex<Option<Vec<Buffer>>>;

/// See the module.
pub struct ResultPool {
    device: Arc<Device>,
    spare: Arc<Spare>,
}

/// A buffer in a device's memory, which goes back to its pool while there is one.
pub struct ResultBuffer {
    /// `None` only while it is dropped.
    buffer: Option<Buffer>,
    spare: Arc<Spare>,
}

impl ResultPool {
    /// An empty one.
    pub(super) fn new(device: Arc<Device>) -> ResultPool {
        ResultPool {
            device,
            spare: Arc::new(Mutex::new(Some(Vec::new()))),
        }
    }

    /// A buffer of at least so many bytes.
    ///
    /// # Errors
    /// Those of [`Device::allocate`].
    pub fn take(&self, bytes: usize) -> Result<ResultBuffer> {
        let bytes = match bytes {
            0..=LARGEST => bytes.next_power_of_two().max(LEAST),
            large => large,
        };
        let kept = lock(&self.spare).as_mut().and_then(|spare| {
            let place = spare.iter().position(|buffer| buffer.bytes() == bytes)?;
            Some(spare.swap_remove(place))
        });
        let buffer = match kept {
            Some(buffer) => buffer,
            None => self.device.allocate(bytes)?,
        };
        Ok(ResultBuffer {
            buffer: Some(buffer),
            spare: Arc::clone(&self.spare),
        })
    }
}

impl Drop for ResultPool {
    fn drop(&mut self) {
        // Buffers in use are freed when they are dropped.
        let spare = lock(&self.spare).take();
        drop(spare);
    }
}

impl Deref for ResultBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        match &self.buffer {
            Some(buffer) => buffer,
            None => unreachable!("it is there until the buffer is dropped"),
        }
    }
}

impl Drop for ResultBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        let mut spare = lock(&self.spare);
        if let Some(spare) = &mut *spare {
            let kept: usize = spare.iter().map(Buffer::bytes).sum();
            if buffer.bytes() <= LARGEST && kept + buffer.bytes() <= MOST {
                spare.push(buffer);
                return;
            }
        }
        // Freeing is slow: other threads must not wait for the lock meanwhile.
        drop(spare);
        drop(buffer);
    }
}

fn lock(spare: &Spare) -> MutexGuard<'_, Option<Vec<Buffer>>> {
    // A list is valid whatever a panicking thread was doing.
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}
