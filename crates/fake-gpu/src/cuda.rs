//! `libcuda.so.1`, as far as the engine calls it ("CUDA Driver API").

#![allow(
    non_snake_case,
    missing_docs,
    reason = "the vendor's names and documentation"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUdevice_attribute, CUfunction_attribute, CUjit_option, CUmemAllocationProp,
    CUmemAllocationType, CUmemLocationType, CUmulticastObjectProp, CUresult,
};

use crate::machine::{
    Answer, Device, GRANULARITY, HostFunction, INVALID_CONTEXT, INVALID_VALUE, Machine, Started,
    current, enter,
};
use crate::ptx::{Grid, ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS};

static MACHINE: Started = Started::by("FAKE_CUDA_DEVICES");

extern "C" fn at_exit() {
    MACHINE.write_counts();
}

/// CUDA 12.8.
const VERSION: c_int = 12_080;

// `cudarc` has the header's numbers. The functions take integers: a program may pass numbers that
// an enum has no name for.
const MULTIPROCESSORS: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as c_uint;
const CAPABILITY_MAJOR: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_uint;
const CAPABILITY_MINOR: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_uint;
const MULTICAST: c_uint = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED as c_uint;
const MOST_SHARED: c_uint =
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint;
const ERROR_LOG: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER as c_uint;
const ERROR_LOG_BYTES: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_uint;

/// Writes a result where the caller wants it.
///
/// # Safety
/// Null, or a place for it.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Answer<()> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: asked of the caller.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a text and its NUL, as much as there is room for.
///
/// # Safety
/// Null, or a place for so many bytes.
pub(crate) unsafe fn put_text(place: *mut c_char, room: c_int, text: &str) -> Answer<()> {
    let room = usize::try_from(room).map_err(|_| INVALID_VALUE)?;
    if place.is_null() || room == 0 {
        return Err(INVALID_VALUE);
    }
    let bytes = text.as_bytes();
    let count = bytes.len().min(room - 1);
    // SAFETY: asked of the caller.
    unsafe {
        place.copy_from_nonoverlapping(bytes.as_ptr().cast(), count);
        place.add(count).write(0);
    }
    Ok(())
}

/// Sixteen bytes that are a device's alone.
pub(crate) fn uuid(device: c_int) -> [u8; 16] {
    std::array::from_fn(|at| {
        if at == 15 {
            device as u8
        } else {
            0xa0 + at as u8
        }
    })
}

/// Where a device is on a bus whose numbers run the other way than its own.
pub(crate) fn bus_address(device: c_int) -> String {
    format!("0000:{:02X}:00.0", 0xc0 - 0x10 * device)
}

/// A function of the interface: its body is run when the driver was started, and is counted.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $machine:ident => $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let answer = |$machine: &'static Machine| -> Answer<()> {
                $machine.called()?;
                // SAFETY: what a program must not do, the vendor's documentation says.
                #[allow(unused_unsafe, reason = "some bodies are safe")]
                unsafe { $body }
            };
            MACHINE.get().and_then(answer).err().unwrap_or(0)
        }
    )*};
}
pub(crate) use functions;

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> u32 {
    if flags != 0 {
        return INVALID_VALUE;
    }
    MACHINE.start(at_exit).err().unwrap_or(0)
}

/// The device of memory that is wanted: pinned, and a device's.
///
/// # Safety
/// Null, or such properties.
unsafe fn wanted(properties: *const CUmemAllocationProp) -> Answer<c_int> {
    if properties.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: asked of the caller. The enums are read as integers, since a program may have put there what
    // they have no name for.
    let (kind, location, device) = unsafe {
        (
            (&raw const (*properties).type_).cast::<u32>().read(),
            (&raw const (*properties).location.type_)
                .cast::<u32>()
                .read(),
            (*properties).location.id,
        )
    };
    let is_pinned = kind == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32;
    let is_on_device = location == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
    match is_pinned && is_on_device {
        true => Ok(device),
        false => Err(INVALID_VALUE),
    }
}

/// A context's handle is this and the device's index.
const CONTEXT: usize = 0xc000;

fn context_of(index: Option<usize>) -> usize {
    index.map_or(0, |index| CONTEXT + index)
}

fn device_of(machine: &Machine, context: usize) -> Answer<&Arc<Device>> {
    let index = context.checked_sub(CONTEXT).ok_or(INVALID_CONTEXT)?;
    machine.devices.get(index).ok_or(INVALID_CONTEXT)
}

fn attribute(machine: &Machine, attribute: c_uint, device: c_int) -> Answer<c_int> {
    let described = &machine.device(device)?.described;
    let capability = described.capability().unwrap_or(0) as c_int;
    Ok(match attribute {
        MULTIPROCESSORS => described.units as c_int,
        CAPABILITY_MAJOR => capability / 10,
        CAPABILITY_MINOR => capability % 10,
        MULTICAST => described.has_multicast().into(),
        _ => return Err(INVALID_VALUE),
    })
}

functions! {
    cuDriverGetVersion(version: *mut c_int) _machine => put(version, VERSION);
    cuDeviceGetCount(count: *mut c_int) machine => put(count, machine.devices.len() as c_int);
    cuDeviceGet(device: *mut c_int, index: c_int) machine => {
        machine.device(index)?;
        put(device, index)
    };
    cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int) machine => {
        put_text(name, room, &machine.device(device)?.described.name)
    };
    cuDeviceGetAttribute(value: *mut c_int, which: c_uint, device: c_int) machine => {
        put(value, attribute(machine, which, device)?)
    };
    cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) machine => {
        put(bytes, machine.device(device)?.described.bytes as usize)
    };
    cuDeviceGetUuid(place: *mut [u8; 16], device: c_int) machine => {
        machine.device(device)?;
        put(place, uuid(device))
    };
    cuDeviceGetPCIBusId(place: *mut c_char, room: c_int, device: c_int) machine => {
        machine.device(device)?;
        put_text(place, room, &bus_address(device))
    };

    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) machine => {
        machine.device(device)?.hold(true);
        put(context, context_of(Some(device as usize)))
    };
    cuDevicePrimaryCtxRelease_v2(device: c_int) machine => {
        machine.device(device)?.hold(false);
        Ok(())
    };
    cuCtxGetCurrent(context: *mut usize) _machine => put(context, context_of(current()));
    cuCtxSetCurrent(context: usize) machine => {
        if context != 0 {
            device_of(machine, context)?;
        }
        enter(context.checked_sub(CONTEXT));
        Ok(())
    };

    cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) machine => {
        machine.device(device)?;
        machine.device(peer)?;
        put(can, (device != peer).into())
    };
    cuCtxEnablePeerAccess(context: usize, flags: c_uint) machine => match flags {
        0 => machine.current()?.reach(device_of(machine, context)?),
        _ => Err(INVALID_VALUE),
    };
    cuCtxDisablePeerAccess(context: usize) machine => {
        machine.current()?.unreach(device_of(machine, context)?)
    };

    cuMemCreate(
        memory: *mut usize,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: u64
    ) machine => match flags {
        0 => put(memory, machine.create_memory(wanted(properties)?, bytes)?),
        _ => Err(INVALID_VALUE),
    };
    cuMemGetAllocationGranularity(
        bytes: *mut usize,
        properties: *const CUmemAllocationProp,
        _which: c_uint
    ) machine => {
        machine.device(wanted(properties)?)?;
        put(bytes, GRANULARITY)
    };
    cuMemRelease(handle: usize) machine => machine.release(handle);
    cuMulticastCreate(object: *mut usize, properties: *const CUmulticastObjectProp) machine => {
        let wanted = properties.as_ref().ok_or(INVALID_VALUE)?;
        put(object, machine.create_multicast(wanted.numDevices, wanted.size)?)
    };
    cuMulticastGetGranularity(
        bytes: *mut usize,
        _properties: *const CUmulticastObjectProp,
        _which: c_uint
    ) _machine => put(bytes, GRANULARITY);
    cuMulticastAddDevice(object: usize, device: c_int) machine => {
        machine.add_member(object, device)
    };
    cuMulticastBindMem(
        object: usize,
        at: usize,
        memory: usize,
        memory_at: usize,
        bytes: usize,
        flags: u64
    ) machine => match (memory_at, flags) {
        (0, 0) => machine.bind(object, at, memory, bytes),
        _ => Err(INVALID_VALUE),
    };
    cuMulticastUnbind(object: usize, device: c_int, at: usize, bytes: usize) machine => {
        machine.unbind(object, device, at, bytes)
    };

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) machine => {
        let memory = machine.current()?.memory();
        put(free, memory.0 as usize)?;
        put(total, memory.1 as usize)
    };
    cuMemAlloc_v2(address: *mut u64, bytes: usize) machine => put(address, machine.allocate(bytes)?);
    cuMemFree_v2(address: u64) machine => machine.free(address);
    cuMemAllocHost_v2(address: *mut usize, bytes: usize) machine => {
        put(address, machine.allocate_host(bytes)?)
    };
    cuMemFreeHost(address: usize) machine => machine.free_host(address);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: usize) machine => {
        machine.copy(to as usize, from as usize, bytes, &[to as usize], stream)
    };
    cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: usize) machine => {
        machine.copy(to as usize, from as usize, bytes, &[from as usize], stream)
    };
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) machine => {
        let both = [to as usize, from as usize];
        machine.copy(both[0], both[1], bytes, &both, stream)
    };
    cuMemsetD8Async(at: u64, byte: u8, bytes: usize, stream: usize) machine => {
        machine.fill(at, byte, bytes, stream)
    };

    cuStreamCreate(stream: *mut usize, _flags: c_uint) machine => put(stream, machine.new_stream()?);
    cuStreamDestroy_v2(stream: usize) machine => machine.end_stream(stream);
    cuStreamGetCtx(stream: usize, context: *mut usize) machine => {
        put(context, context_of(Some(machine.stream(stream)?.device_index())))
    };
    cuStreamSynchronize(stream: usize) machine => machine.stream(stream)?.wait();
    cuStreamQuery(stream: usize) machine => machine.stream(stream)?.is_done();
    cuLaunchHostFunc(
        stream: usize,
        function: Option<HostFunction>,
        told: *mut c_void
    ) machine => machine.call(stream, function, told);

    cuModuleLoadDataEx(
        module: *mut usize,
        image: *const c_char,
        options: c_uint,
        names: *const c_uint,
        values: *const *mut c_void
    ) machine => {
        match machine.load(CStr::from_ptr(image).to_bytes()) {
            Ok(loaded) => put(module, loaded),
            Err((code, why)) => {
                let option = |name| {
                    let mut found = (0..options as usize).filter(|&at| *names.add(at) == name);
                    found.next().map(|at| *values.add(at))
                };
                if let (Some(place), Some(room)) = (option(ERROR_LOG), option(ERROR_LOG_BYTES)) {
                    put_text(place.cast(), room as c_int, &why)?;
                }
                Err(code)
            }
        }
    };
    cuModuleUnload(module: usize) machine => machine.unload(module);
    cuModuleGetFunction(kernel: *mut usize, module: usize, name: *const c_char) machine => {
        let name = CStr::from_ptr(name).to_string_lossy();
        put(kernel, machine.kernel(module, &name)?)
    };
    cuFuncSetAttribute(kernel: usize, attribute: c_uint, value: c_int) machine => match attribute {
        MOST_SHARED => machine.allow_shared(kernel, value),
        _ => Err(INVALID_VALUE),
    };
    cuLaunchKernel(
        kernel: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared_bytes: c_uint,
        stream: usize,
        arguments: *const *const u8,
        extra: *const *const c_void
    ) machine => {
        if !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        let grid = Grid {
            blocks: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared_bytes,
        };
        machine.launch(kernel, grid, stream, arguments)
    };
}

macro_rules! words {
    ($($name:ident: $words:literal,)*) => {
        &[$((
            CUresult::$name,
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL"),
            },
            $words,
        )),*]
    };
}

/// The codes that are returned here, with their names and what the driver says about them.
const WORDS: &[(CUresult, &CStr, &CStr)] = words! {
    CUDA_ERROR_INVALID_VALUE: c"invalid argument",
    CUDA_ERROR_OUT_OF_MEMORY: c"out of memory",
    CUDA_ERROR_NOT_INITIALIZED: c"initialization error",
    CUDA_ERROR_STUB_LIBRARY: c"CUDA driver is a stub library",
    CUDA_ERROR_NO_DEVICE: c"no CUDA-capable device is detected",
    CUDA_ERROR_INVALID_DEVICE: c"invalid device ordinal",
    CUDA_ERROR_INVALID_CONTEXT: c"invalid device context",
    CUDA_ERROR_NO_BINARY_FOR_GPU: c"no kernel image is available for execution on the device",
    CUDA_ERROR_INVALID_PTX: c"a PTX JIT compilation failed",
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION: c"the provided PTX was compiled with an unsupported toolchain.",
    CUDA_ERROR_INVALID_HANDLE: c"invalid resource handle",
    CUDA_ERROR_NOT_FOUND: c"named symbol not found",
    CUDA_ERROR_NOT_READY: c"device not ready",
    CUDA_ERROR_ILLEGAL_ADDRESS: c"an illegal memory access was encountered",
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: c"too many resources requested for launch",
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: c"peer access is already enabled",
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: c"peer access has not been enabled",
    CUDA_ERROR_MISALIGNED_ADDRESS: c"misaligned address",
    CUDA_ERROR_LAUNCH_FAILED: c"unspecified launch failure",
    CUDA_ERROR_NOT_SUPPORTED: c"operation not supported",
    CUDA_ERROR_SYSTEM_NOT_READY: c"system not yet initialized",
};

/// Name and words of a code; `None`: this driver does not know it, as one that is newer.
pub(crate) fn words(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let mut all = WORDS.iter();
    let &(_, name, words) = all.find(|&&(known, ..)| known as u32 == code)?;
    Some((name, words))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: u32, name: *mut *const c_char) -> u32 {
    let found = words(code).map(|(name, _)| name.as_ptr());
    // SAFETY: a place for it.
    let put = unsafe { put(name, found.unwrap_or(std::ptr::null())) };
    put.and(found.map(drop).ok_or(INVALID_VALUE))
        .err()
        .unwrap_or(0)
}

/// The words, and for a kernel's fault what it was: the one thing a device would not tell.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: u32, text: *mut *const c_char) -> u32 {
    let found = words(code).map(|(_, words)| explained(&MACHINE, code, words));
    // SAFETY: a place for it.
    let put = unsafe { put(text, found.unwrap_or(std::ptr::null())) };
    put.and(found.map(drop).ok_or(INVALID_VALUE))
        .err()
        .unwrap_or(0)
}

/// A code's words, with those of the fault if it is one. What is made stays, as constants do.
pub(crate) fn explained(
    machine: &'static Started,
    code: u32,
    words: &'static CStr,
) -> *const c_char {
    let fault = machine.get().ok().and_then(Machine::fault_words);
    match (code, fault) {
        (ILLEGAL_ADDRESS | MISALIGNED_ADDRESS | LAUNCH_FAILED, Some(fault)) => {
            let text = format!("{} ({fault})", words.to_string_lossy());
            std::ffi::CString::new(text).map_or(words.as_ptr(), |text| text.into_raw().cast_const())
        }
        _ => words.as_ptr(),
    }
}
