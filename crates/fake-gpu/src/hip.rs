//! `libamdhip64.so.6`, and its compiler, as far as the engine calls them ("HIP Runtime API").
//!
//! The compiler takes PTX for a source, and a source that is none for one with mistakes.

#![allow(
    non_snake_case,
    missing_docs,
    reason = "the vendor's names and documentation"
)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex};

use crate::cuda::{bus_address, explained, functions, put, put_text, words};
use crate::machine::{Answer, HostFunction, INVALID_VALUE, Machine, Started, current, enter};
use crate::ptx::{self, Grid};

static MACHINE: Started = Started::by("FAKE_HIP_DEVICES");

extern "C" fn at_exit() {
    MACHINE.write_counts();
}

#[unsafe(no_mangle)]
extern "C" fn hipInit(flags: c_uint) -> u32 {
    if flags != 0 {
        return INVALID_VALUE;
    }
    let started = MACHINE.start(at_exit);
    // A thread has a device from the beginning.
    enter(current().or(Some(0)));
    started.err().unwrap_or(0)
}

/// A device's number for everybody: text, as AMD's are.
fn uuid(device: c_int) -> [u8; 16] {
    let mut uuid = *b"5e3bb2a7c14d1f00";
    uuid[15] += device as u8;
    uuid
}

/// The device of a thread that never chose one is the first.
fn chosen(machine: &Machine) -> Answer<usize> {
    let index = current().unwrap_or(0);
    machine.device(index as c_int)?;
    enter(Some(index));
    Ok(index)
}

functions! {
    hipGetDeviceCount(count: *mut c_int) machine => put(count, machine.devices.len() as c_int);
    hipDeviceGet(device: *mut c_int, index: c_int) machine => {
        machine.device(index)?;
        put(device, index)
    };
    hipDeviceGetName(name: *mut c_char, room: c_int, device: c_int) machine => {
        put_text(name, room, &machine.device(device)?.described.name)
    };
    hipDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) machine => {
        let described = &machine.device(device)?.described;
        match attribute {
            63 => put(value, described.units as c_int),
            _ => Err(INVALID_VALUE),
        }
    };
    hipDeviceTotalMem(bytes: *mut usize, device: c_int) machine => {
        put(bytes, machine.device(device)?.described.bytes as usize)
    };
    hipDeviceGetUuid(place: *mut [u8; 16], device: c_int) machine => {
        machine.device(device)?;
        put(place, uuid(device))
    };
    hipDeviceGetPCIBusId(place: *mut c_char, room: c_int, device: c_int) machine => {
        machine.device(device)?;
        put_text(place, room, &bus_address(device).to_lowercase())
    };
    hipGetDevicePropertiesR0600(place: *mut c_char, device: c_int) machine => {
        let described = &machine.device(device)?.described;
        put_text(place, 256, &described.name)?;
        put_text(place.add(1160), 256, &format!("{}:sramecc+:xnack-", described.architecture))
    };

    hipGetDevice(device: *mut c_int) machine => put(device, chosen(machine)? as c_int);
    hipSetDevice(device: c_int) machine => {
        machine.device(device)?;
        enter(Some(device as usize));
        Ok(())
    };
    hipMemGetInfo(free: *mut usize, total: *mut usize) machine => {
        chosen(machine)?;
        let memory = machine.current()?.memory();
        put(free, memory.0 as usize)?;
        put(total, memory.1 as usize)
    };
    hipMalloc(address: *mut usize, bytes: usize) machine => {
        chosen(machine)?;
        put(address, machine.allocate(bytes)? as usize)
    };
    hipFree(address: usize) machine => machine.free(address as u64);
    hipHostMalloc(address: *mut usize, bytes: usize, _flags: c_uint) machine => {
        chosen(machine)?;
        put(address, machine.allocate_host(bytes)?)
    };
    hipHostFree(address: usize) machine => machine.free_host(address);
    hipMemcpyAsync(to: usize, from: usize, bytes: usize, kind: c_uint, stream: usize) machine => {
        let checked: &[usize] = match kind {
            1 => &[to],
            2 => &[from],
            3 => &[to, from],
            _ => return Err(INVALID_VALUE),
        };
        machine.copy(to, from, bytes, checked, stream)
    };
    hipMemsetAsync(at: usize, value: c_int, bytes: usize, stream: usize) machine => {
        machine.fill(at as u64, value as u8, bytes, stream)
    };

    hipStreamCreateWithFlags(stream: *mut usize, _flags: c_uint) machine => {
        chosen(machine)?;
        put(stream, machine.new_stream()?)
    };
    hipStreamDestroy(stream: usize) machine => machine.end_stream(stream);
    hipStreamGetDevice(stream: usize, device: *mut c_int) machine => {
        put(device, machine.stream(stream)?.device_index() as c_int)
    };
    hipStreamSynchronize(stream: usize) machine => machine.stream(stream)?.wait();
    hipLaunchHostFunc(
        stream: usize,
        function: Option<HostFunction>,
        told: *mut c_void
    ) machine => machine.call(stream, function, told);
    hipStreamQuery(stream: usize) machine => machine.stream(stream)?.is_done();

    hipModuleLoadData(module: *mut usize, image: *const c_char) machine => {
        chosen(machine)?;
        let loaded = machine.load(CStr::from_ptr(image).to_bytes());
        put(module, loaded.map_err(|(code, _)| code)?)
    };
    hipModuleUnload(module: usize) machine => machine.unload(module);
    hipModuleGetFunction(kernel: *mut usize, module: usize, name: *const c_char) machine => {
        let name = CStr::from_ptr(name).to_string_lossy();
        put(kernel, machine.kernel(module, &name)?)
    };
    hipModuleLaunchKernel(
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

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(code: u32) -> *const c_char {
    // The codes are CUDA's, the names begin otherwise: the number is enough here.
    words(code)
        .map_or(c"hipErrorUnknown", |_| c"hipError")
        .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(code: u32) -> *const c_char {
    match words(code) {
        Some((_, words)) => explained(&MACHINE, code, words),
        None => c"unrecognized error code".as_ptr(),
    }
}

/// What the compiler was given.
struct Program {
    source: Vec<u8>,
    log: String,
}

static PROGRAMS: LazyLock<Mutex<HashMap<usize, Program>>> = LazyLock::new(Mutex::default);

/// `HIPRTC_ERROR_INVALID_PROGRAM`.
const INVALID_PROGRAM: u32 = 4;
/// `HIPRTC_ERROR_COMPILATION`.
const COMPILATION: u32 = 6;

fn with_program(program: usize, work: impl FnOnce(&mut Program) -> u32) -> u32 {
    let mut programs = PROGRAMS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    programs.get_mut(&program).map_or(INVALID_PROGRAM, work)
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(code: u32) -> *const c_char {
    match code {
        COMPILATION => c"HIPRTC_ERROR_COMPILATION",
        INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        _ => c"HIPRTC_ERROR",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCreateProgram(
    program: *mut usize,
    source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _sources: *const *const c_char,
    _names: *const *const c_char,
) -> u32 {
    let mut programs = PROGRAMS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let handle = (1..)
        .find(|handle| !programs.contains_key(handle))
        .unwrap_or(0);
    // SAFETY: a string, as the vendor's documentation asks.
    let source = unsafe { CStr::from_ptr(source) }.to_bytes().to_vec();
    let log = String::new();
    programs.insert(handle, Program { source, log });
    // SAFETY: a place for it.
    unsafe { put(program, handle) }.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcDestroyProgram(program: *mut usize) -> u32 {
    let mut programs = PROGRAMS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: a program's place, as the vendor's documentation asks.
    let removed = programs.remove(unsafe { &*program });
    removed.map_or(INVALID_PROGRAM, |_| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCompileProgram(
    program: usize,
    count: c_int,
    options: *const *const c_char,
) -> u32 {
    // SAFETY: so many strings, as the vendor's documentation asks.
    let option = |at: c_int| unsafe { CStr::from_ptr(*options.add(at as usize)) }.to_string_lossy();
    let target = (0..count)
        .map(option)
        .find(|option| option.starts_with("--offload-arch=gfx"));
    with_program(program, |program| {
        let parsed = std::str::from_utf8(&program.source)
            .map_err(|error| error.to_string())
            .and_then(ptx::Module::parse);
        program.log = match (parsed, target) {
            (Ok(_), Some(_)) => return 0,
            (Ok(_), None) => "no --offload-arch".into(),
            (Err(why), _) => why,
        };
        COMPILATION
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLogSize(program: usize, bytes: *mut usize) -> u32 {
    with_program(program, |program| {
        // SAFETY: a place for it.
        unsafe { put(bytes, program.log.len() + 1) }
            .err()
            .unwrap_or(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLog(program: usize, place: *mut c_char) -> u32 {
    with_program(program, |program| {
        let room = program.log.len() as c_int + 1;
        // SAFETY: a place of the size that was told.
        unsafe { put_text(place, room, &program.log) }
            .err()
            .unwrap_or(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCodeSize(program: usize, bytes: *mut usize) -> u32 {
    with_program(program, |program| {
        // SAFETY: a place for it.
        unsafe { put(bytes, program.source.len() + 1) }
            .err()
            .unwrap_or(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCode(program: usize, place: *mut u8) -> u32 {
    with_program(program, |program| {
        // SAFETY: a place of the size that was told.
        unsafe {
            place.copy_from_nonoverlapping(program.source.as_ptr(), program.source.len());
            place.add(program.source.len()).write(0);
        }
        0
    })
}
