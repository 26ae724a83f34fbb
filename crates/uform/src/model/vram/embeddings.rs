//! What `encode_text` returns of a model on GPUs.

use std::sync::Arc;

use crate::device::Buffer;
use crate::executor::{Control, Executor, ResultBuffer};
use crate::memory::zeros;
use crate::model::encode::embeddings::Embeddings;
use crate::{Error, Result, Status};

/// One vector a text, in the order of the texts, where the devices computed them.
///
/// The memory is given back when the last clone is dropped; up to a megabyte of it goes to the executor, for its
/// next call, and more waits for the device. It keeps the devices open until then, also when the
/// executor that computed it was freed before.
#[derive(Clone)]
pub struct DeviceEmbeddings(Arc<Whole>);

struct Whole {
    rows: usize,
    dimensions: usize,
    parts: Vec<Part>,
    tokens: Vec<u32>,
    truncated: Vec<u8>,
}

/// Rows on one device. Calls that were computed together share a buffer.
pub(super) struct Part {
    pub(super) device: u32,
    pub(super) buffer: Arc<ResultBuffer>,
    /// In bytes.
    pub(super) offset: usize,
    pub(super) rows: usize,
}

/// Where some rows are: `[rows][dimensions]` of f32, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePart {
    /// The device's position in [`gpu_devices`](crate::hardware::gpu_devices).
    pub device: u32,
    /// Where the first of them begins in the device's memory.
    pub address: u64,
    /// How many.
    pub rows: usize,
}

/// The memory behind a [`DevicePart`].
#[derive(Clone, Copy)]
pub struct DeviceShare<'a> {
    /// The device's position in [`gpu_devices`](crate::hardware::gpu_devices).
    pub device: u32,
    /// What the rows lie in.
    pub buffer: &'a Buffer,
    /// From how many bytes on.
    pub offset: usize,
    /// How many.
    pub rows: usize,
}

impl DeviceEmbeddings {
    pub(super) fn new(
        dimensions: usize,
        parts: Vec<Part>,
        tokens: Vec<u32>,
        truncated: Vec<u8>,
    ) -> Self {
        DeviceEmbeddings(Arc::new(Whole {
            rows: tokens.len(),
            dimensions,
            parts,
            tokens,
            truncated,
        }))
    }

    /// How many texts there were.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Length of each vector.
    pub fn dimensions(&self) -> usize {
        self.0.dimensions
    }

    /// Where the rows are: each part has the rows that follow those of the part before it. None for no
    /// texts.
    pub fn parts(&self) -> Vec<DevicePart> {
        let parts = self.0.parts.iter().map(|part| DevicePart {
            device: part.device,
            address: part.buffer.address() + part.offset as u64,
            rows: part.rows,
        });
        parts.collect()
    }

    /// The same, for who computes with them where they are.
    pub fn shares(&self) -> impl Iterator<Item = DeviceShare<'_>> {
        self.0.parts.iter().map(|part| DeviceShare {
            device: part.device,
            buffer: &part.buffer,
            offset: part.offset,
            rows: part.rows,
        })
    }

    /// `[rows]` tokens of each text before any cut, special tokens and prompt included.
    pub fn tokens(&self) -> &[u32] {
        &self.0.tokens
    }

    /// `[rows]` 1 where a text was longer than the model's token limit and was cut, else 0.
    pub fn truncated(&self) -> &[u8] {
        &self.0.truncated
    }

    /// Bytes of the vectors.
    pub fn bytes(&self) -> usize {
        self.0.rows * self.0.dimensions * size_of::<f32>()
    }

    /// Copies the vectors to host memory, and waits. It needs no executor.
    ///
    /// # Errors
    /// `OutOfMemory`; `DeviceFault` when a device has faulted since.
    pub fn to_host(&self) -> Result<Embeddings> {
        let whole = &*self.0;
        let mut data = zeros(whole.rows * whole.dimensions, "the vectors of a call")?;
        let mut rest: &mut [f32] = &mut data;
        for part in &whole.parts {
            let (own, others) = rest.split_at_mut(part.rows * whole.dimensions);
            rest = others;
            let stream = part.buffer.device().stream()?;
            stream.download(bytemuck::cast_slice_mut(own), &part.buffer, part.offset)?;
        }
        if !rest.is_empty() {
            return Err(Error::new(Status::Internal, "rows are on no device"));
        }
        Ok(Embeddings {
            rows: whole.rows,
            dimensions: whole.dimensions,
            data,
            tokens: whole.tokens.clone(),
            truncated: whole.truncated.clone(),
        })
    }

    /// [`to_host`](Self::to_host) as a deferred call on any executor: returns at once, and hands the outcome to
    /// `done`, exactly once. On one that drives the devices it comes after what was submitted there before.
    pub fn to_host_deferred(
        &self,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Embeddings>) + Send + 'static,
    ) {
        let own = self.clone();
        executor.deferred(control, move |_| own.to_host(), done);
    }
}
