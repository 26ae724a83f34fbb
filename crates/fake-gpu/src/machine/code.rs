//! Modules, kernels and launches.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use super::{
    Answer, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE, Machine, NO_BINARY, NOT_FOUND,
    OUT_OF_RESOURCES, UNSUPPORTED_PTX_VERSION, locked,
};
use crate::ptx::{self, Grid};

/// The newest PTX that is taken, ten times: that of CUDA 12.8.
const NEWEST_PTX: u32 = 87;

#[derive(Clone)]
pub(super) struct Kernel {
    module: (usize, Arc<ptx::Module>),
    index: usize,
    shared_allowed: u32,
}

impl Machine {
    /// Loads a module; beside the code, why it is none.
    pub fn load(&self, text: &[u8]) -> Result<usize, (u32, String)> {
        let device = self.current().map_err(|code| (code, String::new()))?;
        if text.starts_with(b"\x7fELF") {
            let why = "this device interprets, and has no machine code";
            return Err((NO_BINARY, why.into()));
        }
        let text = std::str::from_utf8(text).map_err(|error| (INVALID_PTX, error.to_string()))?;
        let module = ptx::Module::parse(text).map_err(|why| (INVALID_PTX, why))?;
        if module.version > NEWEST_PTX {
            let why = format!("version {} is newer than {NEWEST_PTX}", module.version);
            return Err((UNSUPPORTED_PTX_VERSION, why));
        }
        if device
            .described
            .capability()
            .is_some_and(|own| own < module.target)
        {
            let why = format!("sm_{} is more than this device", module.target);
            return Err((NO_BINARY, why));
        }
        let handle = self.handle();
        locked(&self.modules).insert(handle, Arc::new(module));
        Ok(handle)
    }

    /// Unloads a module.
    pub fn unload(&self, handle: usize) -> Answer<()> {
        let unloaded = locked(&self.modules).remove(&handle);
        locked(&self.kernels).retain(|_, kernel| kernel.module.0 != handle);
        unloaded.map(drop).ok_or(INVALID_HANDLE)
    }

    /// A module's kernel.
    pub fn kernel(&self, handle: usize, name: &str) -> Answer<usize> {
        self.current()?;
        let module = locked(&self.modules).get(&handle).cloned();
        let module = module.ok_or(INVALID_HANDLE)?;
        let mut kernels = module.kernels.iter();
        let index = kernels.position(|kernel| kernel.name == name);
        let kernel = Kernel {
            index: index.ok_or(NOT_FOUND)?,
            module: (handle, module),
            shared_allowed: 48 << 10,
        };
        let handle = self.handle();
        locked(&self.kernels).insert(handle, kernel);
        Ok(handle)
    }

    /// Lets a kernel's blocks have so much dynamic shared memory.
    pub fn allow_shared(&self, kernel: usize, bytes: i32) -> Answer<()> {
        let device = self.current()?;
        let most = device.described.most_shared();
        let mut kernels = locked(&self.kernels);
        let kernel = kernels.get_mut(&kernel).ok_or(INVALID_HANDLE)?;
        let own = kernel.module.1.kernels[kernel.index].shared_bytes as u32;
        let bytes = u32::try_from(bytes).map_err(|_| INVALID_VALUE)?;
        if bytes + own > most {
            return Err(INVALID_VALUE);
        }
        kernel.shared_allowed = bytes + own;
        Ok(())
    }

    /// Sends a launch to a stream.
    ///
    /// # Safety
    /// The arguments are where the kernel's parameters are, one each.
    pub unsafe fn launch(
        &self,
        kernel: usize,
        grid: Grid,
        stream: usize,
        arguments: *const *const u8,
    ) -> Answer<()> {
        self.current()?;
        let stream = self.stream(stream)?;
        let found = locked(&self.kernels).get(&kernel).cloned();
        let Kernel {
            module: (_, module),
            index,
            shared_allowed,
        } = found.ok_or(INVALID_HANDLE)?;
        let kernel = &module.kernels[index];
        let threads: u64 = grid.block.map(u64::from).iter().product();
        let sizes = grid.blocks.iter().chain(&grid.block);
        if sizes.clone().any(|&size| size == 0)
            || threads > 1024
            || grid.block[2] > 64
            || grid.blocks[1..].iter().any(|&blocks| blocks > 65_535)
            || kernel.shared_bytes as u32 + grid.shared_bytes > shared_allowed
        {
            return Err(INVALID_VALUE);
        }
        if kernel
            .most_threads
            .is_some_and(|most| threads > most.into())
        {
            return Err(OUT_OF_RESOURCES);
        }
        let mut parameters = vec![0; kernel.parameter_bytes];
        for (at, parameter) in kernel.parameters.iter().enumerate() {
            let place = &mut parameters[parameter.offset..parameter.offset + parameter.bytes];
            // SAFETY: asked of the caller.
            let value = unsafe { std::slice::from_raw_parts(*arguments.add(at), place.len()) };
            place.copy_from_slice(value);
        }
        let number = self.launches.fetch_add(1, SeqCst) + 1;
        let is_fault = self.faults.illegal_address == Some(number);
        let slow = self.faults.slow.filter(|&(when, _)| when == number);
        stream.submit(move |device| {
            if let Some((_, how_long)) = slow {
                thread::sleep(how_long);
            }
            if is_fault {
                device.fail(ptx::ILLEGAL_ADDRESS, "a fault that was asked for".into());
                return;
            }
            let mut memory = device.ranges();
            memory.extend(module.memory());
            memory.sort_unstable();
            // SAFETY: memory is freed only when streams are done.
            let ran = unsafe { ptx::run(&module.kernels[index], grid, &parameters, &memory) };
            if let Err(trap) = ran {
                device.fail(trap.code, trap.words);
            }
        });
        Ok(())
    }
}
