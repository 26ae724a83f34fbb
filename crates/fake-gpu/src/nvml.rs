//! `libnvidia-ml.so.1`, as far as the engine calls it ("NVML API Reference"): which of the devices
//! has how much free memory, without a context.

#![allow(
    non_snake_case,
    missing_docs,
    reason = "the vendor's names and documentation"
)]

use std::ffi::{CStr, c_char, c_int};

use crate::cuda::{bus_address, functions, put, uuid};
use crate::machine::{Answer, INVALID_VALUE, Machine, NO_DEVICE, Started};

static MACHINE: Started = Started::by("FAKE_CUDA_DEVICES");

/// Nothing of it is ever left.
extern "C" fn at_exit() {}

/// `NVML_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 6;

/// `nvmlMemory_t`: bytes.
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// A device's handle is this and its index.
const DEVICE: usize = 0xd000;

/// The device of which a text is true.
fn found(machine: &Machine, is_it: impl Fn(c_int) -> bool) -> Answer<usize> {
    let mut devices = 0..machine.devices.len() as c_int;
    let index = devices.find(|&index| is_it(index));
    Ok(DEVICE + index.ok_or(NOT_FOUND)? as usize)
}

/// MiB of each device's free memory, as a variable says; absent: all there is.
fn free(index: usize, total: u64) -> u64 {
    let value = std::env::var("FAKE_NVML_FREE").unwrap_or_default();
    let mebibytes = value
        .split(',')
        .nth(index)
        .and_then(|text| text.parse::<u64>().ok());
    mebibytes.map_or(total, |mebibytes| mebibytes << 20)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> u32 {
    match MACHINE.start(at_exit) {
        // A machine without devices has a library that starts.
        Ok(()) | Err(NO_DEVICE) => 0,
        Err(code) => code,
    }
}

functions! {
    nvmlShutdown() _machine => Ok(());
    nvmlDeviceGetHandleByUUID(text: *const c_char, device: *mut usize) machine => {
        let text = CStr::from_ptr(text).to_string_lossy().replace("GPU-", "").replace('-', "");
        let written = |index| uuid(index).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        put(device, found(machine, |index| written(index) == text)?)
    };
    nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, device: *mut usize) machine => {
        let text = CStr::from_ptr(text).to_string_lossy();
        put(device, found(machine, |index| bus_address(index).eq_ignore_ascii_case(&text))?)
    };
    nvmlDeviceGetMemoryInfo(device: usize, memory: *mut Memory) machine => {
        let index = device.checked_sub(DEVICE).ok_or(INVALID_VALUE)?;
        let total = machine.devices.get(index).ok_or(INVALID_VALUE)?.described.bytes;
        let free = free(index, total).min(total);
        put(memory, Memory { total, free, used: total - free })
    };
}
