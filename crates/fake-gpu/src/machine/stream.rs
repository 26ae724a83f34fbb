//! Streams: each a thread, and what it is sent.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use super::{Answer, Device, INVALID_HANDLE, Machine, NOT_READY, OUT_OF_RESOURCES, locked};

/// A stream: a thread that does what it is sent, in that order.
pub struct Stream {
    device: Arc<Device>,
    /// `None` ends the thread.
    sender: mpsc::Sender<Option<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    progress: Arc<(Mutex<Progress>, Condvar)>,
}

#[derive(Default)]
struct Progress {
    submitted: u64,
    done: u64,
}

type Job = Box<dyn FnOnce(&Device) + Send>;

impl Machine {
    /// A new stream of the current device.
    pub fn new_stream(&self) -> Answer<usize> {
        let device = self.current()?.clone();
        let handle = self.handle();
        let (sender, receiver) = mpsc::channel::<Option<Job>>();
        let progress = Arc::<(Mutex<Progress>, Condvar)>::default();
        let (own, done) = (device.clone(), progress.clone());
        let work = move || {
            while let Ok(Some(job)) = receiver.recv() {
                // After a fault nothing is done any more.
                if device.check().is_ok() {
                    job(&device);
                }
                locked(&done.0).done += 1;
                done.1.notify_all();
            }
        };
        let name = "fake-gpu stream".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(work);
        let stream = Stream {
            device: own,
            sender,
            thread: Mutex::new(Some(spawned.map_err(|_| OUT_OF_RESOURCES)?)),
            progress,
        };
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
        let ended = ended.ok_or(INVALID_HANDLE)?;
        // It ends before this when its device's program did.
        let _ = ended.sender.send(None);
        if let Some(thread) = locked(&ended.thread).take() {
            // Whoever counts a program's threads finds none of it left.
            let _ = thread.join();
        }
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
}

impl Stream {
    pub(super) fn submit(&self, job: impl FnOnce(&Device) + Send + 'static) {
        locked(&self.progress.0).submitted += 1;
        // The thread ends when this is gone, not before.
        let _ = self.sender.send(Some(Box::new(job)));
    }

    /// Waits for what was submitted so far.
    pub(super) fn finish(&self) {
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

    /// Whose it is.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
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
