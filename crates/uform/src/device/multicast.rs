//! Multicast memory, tried: what the switch between NVIDIA's devices adds up. A device's attribute says
//! that there is such memory; it also says so where the machine around the device is not set up for it.
//!
//! An object is made for so many devices, each is added, and memory of each is bound to it. Nothing
//! of it is kept.

use std::ffi::{c_int, c_uint};
use std::ptr;

use cudarc::driver::sys::{
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType_enum, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmulticastGranularity_flags, CUmulticastObjectProp,
};
use libloading::Library;

use super::cuda::Cuda;
use super::driver::Answer;
use super::symbols::{ask, table};

table! {
    Api {
        fn cuDeviceGet(*mut c_int, c_int) -> u32;
        fn cuMemCreate(*mut u64, usize, *const CUmemAllocationProp, u64) -> u32;
        fn cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_uint) -> u32;
        fn cuMemRelease(u64) -> u32;
        fn cuMulticastCreate(*mut u64, *const CUmulticastObjectProp) -> u32;
        fn cuMulticastGetGranularity(*mut usize, *const CUmulticastObjectProp, c_uint) -> u32;
        fn cuMulticastAddDevice(u64, c_int) -> u32;
        fn cuMulticastBindMem(u64, usize, u64, usize, usize, u64) -> u32;
        fn cuMulticastUnbind(u64, c_int, usize, usize) -> u32;
    }
    optional {}
}

/// What NCCL asks for, too.
const FILE_DESCRIPTOR: CUmemAllocationHandleType_enum =
    CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const LEAST_MEMORY: c_uint =
    CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM as c_uint;
const LEAST_OBJECT: c_uint =
    CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM as c_uint;

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
        let mut properties = CUmulticastObjectProp {
            numDevices: devices.len() as c_uint,
            size: 1 << 21,
            handleTypes: FILE_DESCRIPTOR.0.into(),
            flags: 0,
        };
        let mut bytes = 0;
        ask!(self.cuMulticastGetGranularity(&mut bytes, &properties, LEAST_OBJECT))?;
        for &member in &members {
            bytes = bytes.max(self.least_memory(member)?);
        }
        properties.size = bytes;
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
        ask!(self.cuMemGetAllocationGranularity(&mut bytes, &properties, LEAST_MEMORY))
            .map(|()| bytes)
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

fn memory_of(device: c_int) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FILE_DESCRIPTOR,
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        },
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
