//! A device with the kernels, and how checks put things there, run them and read what they gave.

use std::sync::Arc;

use half::bf16;
use uform::Result;
use uform::device::{
    Argument, Buffer, Code, Device, Kernel, Module, Runtime, Shape, Stream, kernels,
};

/// A device with the kernels.
pub struct Gpu {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: Stream,
    module: Arc<Module>,
}

impl Gpu {
    /// NVIDIA's device of this number, with the kernels as they ship.
    ///
    /// # Errors
    /// What the driver says.
    pub fn shipped(index: u32) -> Result<Gpu> {
        Gpu::with(index, kernels::load)
    }

    /// The same with other code.
    ///
    /// # Errors
    /// As above.
    pub fn with_code(index: u32, code: Code<'_>) -> Result<Gpu> {
        Gpu::with(index, |device| device.load(code))
    }

    fn with(index: u32, load: impl FnOnce(&Arc<Device>) -> Result<Arc<Module>>) -> Result<Gpu> {
        let device = Device::open(Runtime::Cuda, index)?;
        Ok(Gpu {
            stream: device.stream()?,
            module: load(&device)?,
            device,
        })
    }

    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.device.allocate(bytes.len())?;
        self.stream.upload(&mut buffer, 0, bytes)?;
        Ok(buffer)
    }

    pub(crate) fn floats(&self, values: &[f32]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    pub(crate) fn halves(&self, values: &[bf16]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    pub(crate) fn words(&self, values: &[u32]) -> Result<Buffer> {
        self.put(
            &values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    }

    /// A kernel of the module's.
    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel> {
        self.module.kernel(name)
    }

    /// Launches, with so much dynamic shared memory, and waits.
    pub(crate) fn run(
        &self,
        name: &str,
        grid: [u32; 3],
        block: u32,
        shared_bytes: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        let kernel = self.kernel(name)?;
        kernel.allow_shared(shared_bytes)?;
        let shape = Shape {
            grid,
            block: [block, 1, 1],
            shared_bytes,
        };
        // SAFETY: the kernel's own arguments; waited for here.
        unsafe { self.stream.launch(&kernel, shape, arguments) }?;
        self.stream.wait()
    }

    pub(crate) fn read(&self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut bytes = vec![0; buffer.bytes()];
        self.stream.download(&mut bytes, buffer, 0)?;
        let (values, _) = bytes.as_chunks();
        Ok(values
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect())
    }

    pub(crate) fn read_halves(&self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut bytes = vec![0; buffer.bytes()];
        self.stream.download(&mut bytes, buffer, 0)?;
        let (values, _) = bytes.as_chunks();
        Ok(values
            .iter()
            .map(|bytes| bf16::from_le_bytes(*bytes).to_f32())
            .collect())
    }
}

pub(crate) fn at(buffer: &Buffer) -> Argument {
    Argument::Address(buffer.address())
}

pub(crate) const ABSENT: Argument = Argument::Address(0);

pub(crate) fn count(value: usize) -> Argument {
    Argument::U32(value as u32)
}
