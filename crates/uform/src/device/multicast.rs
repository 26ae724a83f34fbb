//! Multicast memory, tried: what the switch between NVIDIA's devices adds up. A device's attribute says
//! that there is such memory; it also says so where the machine around the device is not set up for it.
//!
//! An object is made for so many devices, each is added, and memory of each is bound to it. Nothing
//! of it is kept.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use super::cuda::Cuda;
use super::driver::Answer;
use super::table::{ask, table};

table! {
    Api {
        fn cuDeviceGet(*mut c_int, c_int) -> u32;
        fn cuMemCreate(*mut u64, usize, *const MemoryProperties, u64) -> u32;
        fn cuMemGetAllocationGranularity(*mut usize, *const MemoryProperties, c_uint) -> u32;
        fn cuMemRelease(u64) -> u32;
        fn cuMulticastCreate(*mut u64, *const ObjectProperties) -> u32;
        fn cuMulticastGetGranularity(*mut usize, *const ObjectProperties, c_uint) -> u32;
        fn cuMulticastAddDevice(u64, c_int) -> u32;
        fn cuMulticastBindMem(u64, usize, u64, usize, usize, u64) -> u32;
        fn cuMulticastUnbind(u64, c_int, usize, usize) -> u32;
    }
    optional {}
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: what NCCL asks for, too.
const FILE_DESCRIPTOR: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM` and `CU_MULTICAST_GRANULARITY_MINIMUM`.
const LEAST: c_uint = 0;

/// `CUmemAllocationProp`.
#[repr(C)]
struct MemoryProperties {
    kind: c_int,
    handle_types: c_int,
    location: c_int,
    device: c_int,
    win32: *const c_void,
    flags: [u8; 8],
}

/// `CUmulticastObjectProp`.
#[repr(C)]
struct ObjectProperties {
    devices: c_uint,
    bytes: usize,
    handle_types: u64,
    flags: u64,
}

/// Makes an object of these devices, binds memory of each, and takes everything apart again.
///
/// # Errors
/// Why that cannot be done, in the driver's words.
pub(super) fn attempt(
    cuda: &Cuda,
    (library, name): (&'static Library, &'static str),
    devices: &[u32],
) -> Result<(), String> {
    // SAFETY: declared as in `cuda.h`; the driver's library is never closed.
    let api = unsafe { Api::find(library, name) }.map_err(|absent| absent.to_string())?;
    let multicast = Multicast { api, cuda };
    let attempt = multicast.attempt(devices);
    attempt.map_err(|failure| failure.to_string())
}

struct Multicast<'a> {
    api: Api,
    cuda: &'a Cuda,
}

/// A member's part: its memory, and whether that is bound.
struct Part {
    device: c_int,
    memory: u64,
    is_bound: bool,
}

impl Multicast<'_> {
    fn judge(&self, function: &'static str, code: u32) -> Answer<()> {
        self.cuda.judge(function, code)
    }

    fn attempt(&self, devices: &[u32]) -> Answer<()> {
        let members: Answer<Vec<c_int>> = devices.iter().map(|&index| self.device(index)).collect();
        let members = members?;
        let mut properties = ObjectProperties {
            devices: devices.len() as c_uint,
            bytes: 1 << 21,
            handle_types: FILE_DESCRIPTOR as u64,
            flags: 0,
        };
        let mut bytes = 0;
        ask!(self.cuMulticastGetGranularity(&mut bytes, &properties, LEAST))?;
        for &member in &members {
            bytes = bytes.max(self.least_memory(member)?);
        }
        properties.bytes = bytes;
        let mut object = 0;
        ask!(self.cuMulticastCreate(&mut object, &properties))?;
        let mut parts = Vec::with_capacity(members.len());
        let bound = self.bind(object, &members, bytes, &mut parts);
        // Whatever happened, all of it goes, and the first failure is told.
        let apart = self.take_apart(object, bytes, &parts);
        let released = ask!(self.cuMemRelease(object));
        bound.and(apart).and(released)
    }

    fn device(&self, index: u32) -> Answer<c_int> {
        let mut device = 0;
        ask!(self.cuDeviceGet(&mut device, index as c_int)).map(|()| device)
    }

    fn least_memory(&self, member: c_int) -> Answer<usize> {
        let mut bytes = 0;
        let properties = memory_of(member);
        ask!(self.cuMemGetAllocationGranularity(&mut bytes, &properties, LEAST)).map(|()| bytes)
    }

    /// Adds all members, then binds memory of each: no earlier is any bound.
    fn bind(
        &self,
        object: u64,
        members: &[c_int],
        bytes: usize,
        parts: &mut Vec<Part>,
    ) -> Answer<()> {
        for &member in members {
            ask!(self.cuMulticastAddDevice(object, member))?;
        }
        for &device in members {
            let mut memory = 0;
            ask!(self.cuMemCreate(&mut memory, bytes, &memory_of(device), 0))?;
            let bound = ask!(self.cuMulticastBindMem(object, 0, memory, 0, bytes, 0));
            parts.push(Part {
                device,
                memory,
                is_bound: bound.is_ok(),
            });
            bound?;
        }
        Ok(())
    }

    fn take_apart(&self, object: u64, bytes: usize, parts: &[Part]) -> Answer<()> {
        let mut outcome = Ok(());
        for part in parts {
            if part.is_bound {
                let unbound = ask!(self.cuMulticastUnbind(object, part.device, 0, bytes));
                outcome = outcome.and(unbound);
            }
            outcome = outcome.and(ask!(self.cuMemRelease(part.memory)));
        }
        outcome
    }
}

fn memory_of(device: c_int) -> MemoryProperties {
    MemoryProperties {
        kind: PINNED,
        handle_types: FILE_DESCRIPTOR,
        location: ON_DEVICE,
        device,
        win32: ptr::null(),
        flags: [0; 8],
    }
}
