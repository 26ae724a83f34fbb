//! NVIDIA's management library, where it is there: how much of a device's memory is free, without
//! making a context on it.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::driver::Absent;
use super::symbols::{open, table};

/// What the driver installs.
const NAMES: [&str; 1] = [if cfg!(windows) {
    "nvml.dll"
} else {
    "libnvidia-ml.so.1"
}];

table! {
    Api {
        fn nvmlInit_v2() -> u32;
        fn nvmlDeviceGetHandleByUUID(*const c_char, *mut usize) -> u32;
        fn nvmlDeviceGetMemoryInfo(usize, *mut Memory) -> u32;
    }
    optional {}
}

/// `nvmlMemory_t`, in bytes.
#[derive(Default)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// The library, started once; `None`: it is not there, or does not work.
fn library() -> Option<&'static Api> {
    static LIBRARY: OnceLock<Option<Api>> = OnceLock::new();
    let load = || -> Result<Api, Absent> {
        let (library, name) = open(&NAMES)?;
        // SAFETY: declared as in `nvml.h`; `open` never closes it.
        unsafe { Api::find(library, name) }
    };
    let started = LIBRARY.get_or_init(|| {
        let api = load().ok()?;
        // SAFETY: declared as in the header.
        (unsafe { (api.nvmlInit_v2)() } == 0).then_some(api)
    });
    started.as_ref()
}

/// Free bytes of the memory of the device with a UUID, as the vendor's tool writes it; `None`: that cannot be
/// told.
pub fn free_memory(uuid: &str) -> Option<u64> {
    let api = library()?;
    let uuid = CString::new(uuid).ok()?;
    let mut device = 0;
    // SAFETY: declared as in the header; the text ends with a NUL.
    if unsafe { (api.nvmlDeviceGetHandleByUUID)(uuid.as_ptr(), &mut device) } != 0 {
        return None;
    }
    let mut memory = Memory::default();
    // SAFETY: declared as in the header; the library gave the handle.
    let code = unsafe { (api.nvmlDeviceGetMemoryInfo)(device, &mut memory) };
    (code == 0).then_some(memory.free)
}
