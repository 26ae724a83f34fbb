//! NVIDIA's driver, `libcuda.so.1`: its table, and the trait over it.
//!
//! Names end in `_v2` where the library kept an older function under the plain name.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::ptr;

use cudarc::driver::sys::{
    CUdevice_attribute, CUfunction_attribute, CUjit_option, CUresult, CUstream_flags,
};
use libloading::Library;

use super::driver::{
    Absent, Answer, Architecture, Code, Driver, Failure, Launch, Properties, Raw, Runtime,
};
use super::multicast;
use super::symbols::{ask, open, table, text};

/// What the driver installs. `libcuda.so` is left alone: a toolkit has a stub of that name.
const NAMES: [&str; 1] = [if cfg!(windows) {
    "nvcuda.dll"
} else {
    "libcuda.so.1"
}];

/// CUDA 11.0: the first whose driver translates the version of PTX that the kernels are in.
const OLDEST: c_int = 11_000;

/// More devices than any machine has: a number above is no number of devices.
pub(super) const MOST_DEVICES: c_int = 1024;

// `cudarc` has the header's numbers. They are widened to integers here, since the functions below return and
// take integers.
const MULTIPROCESSORS: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as c_uint;
const CAPABILITY_MAJOR: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_uint;
const CAPABILITY_MINOR: c_uint =
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_uint;
const NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
const MOST_SHARED: c_uint =
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint;
const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
pub(super) const ALREADY_REACHED: u32 = CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;
pub(super) const OUT_OF_REACH: [u32; 2] = [
    CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED as u32,
    CUresult::CUDA_ERROR_TOO_MANY_PEERS as u32,
];
const ERROR_LOG: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER as c_uint;
const ERROR_LOG_BYTES: c_uint = CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_uint;

table! {
    Api {
        fn cuInit(c_uint) -> u32;
        fn cuDriverGetVersion(*mut c_int) -> u32;
        fn cuGetErrorName(u32, *mut *const c_char) -> u32;
        fn cuGetErrorString(u32, *mut *const c_char) -> u32;
        fn cuDeviceGetCount(*mut c_int) -> u32;
        fn cuDeviceGet(*mut c_int, c_int) -> u32;
        fn cuDeviceGetName(*mut c_char, c_int, c_int) -> u32;
        fn cuDeviceGetAttribute(*mut c_int, c_uint, c_int) -> u32;
        fn cuDeviceTotalMem_v2(*mut usize, c_int) -> u32;
        fn cuDevicePrimaryCtxRetain(*mut usize, c_int) -> u32;
        fn cuDevicePrimaryCtxRelease_v2(c_int) -> u32;
        fn cuCtxGetCurrent(*mut usize) -> u32;
        fn cuCtxSetCurrent(usize) -> u32;
        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> u32;
        fn cuMemAlloc_v2(*mut u64, usize) -> u32;
        fn cuMemFree_v2(u64) -> u32;
        fn cuMemAllocHost_v2(*mut usize, usize) -> u32;
        fn cuMemFreeHost(usize) -> u32;
        fn cuMemcpyHtoDAsync_v2(u64, *const u8, usize, usize) -> u32;
        fn cuMemcpyDtoHAsync_v2(*mut u8, u64, usize, usize) -> u32;
        fn cuMemcpyDtoDAsync_v2(u64, u64, usize, usize) -> u32;
        fn cuMemsetD8Async(u64, u8, usize, usize) -> u32;
        fn cuStreamCreate(*mut usize, c_uint) -> u32;
        fn cuStreamDestroy_v2(usize) -> u32;
        fn cuStreamGetCtx(usize, *mut usize) -> u32;
        fn cuStreamSynchronize(usize) -> u32;
        fn cuStreamQuery(usize) -> u32;
        fn cuModuleLoadDataEx(*mut usize, *const u8, c_uint, *mut c_uint, *mut *mut c_void) -> u32;
        fn cuModuleUnload(usize) -> u32;
        fn cuModuleGetFunction(*mut usize, usize, *const c_char) -> u32;
        fn cuFuncSetAttribute(usize, c_uint, c_int) -> u32;
        fn cuLaunchKernel(
            usize,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            usize,
            *mut *mut c_void,
            *mut *mut c_void
        ) -> u32;
    }
    optional {
        fn cuDeviceGetUuid(*mut [u8; 16], c_int) -> u32;
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> u32;
        fn cuDeviceCanAccessPeer(*mut c_int, c_int, c_int) -> u32;
        fn cuCtxEnablePeerAccess(usize, c_uint) -> u32;
    }
}

/// The driver, started.
pub(super) struct Cuda {
    api: Api,
    library: (&'static Library, &'static str),
}

impl Cuda {
    /// Finds and starts it.
    pub(super) fn load() -> Result<Cuda, Absent> {
        let library = open(&NAMES)?;
        // SAFETY: declared as in `cuda.h`; `open` never closes it.
        let api = unsafe { Api::find(library.0, library.1) }?;
        let cuda = Cuda { api, library };
        ask!(cuda.cuInit(0))?;
        let mut version = 0;
        ask!(cuda.cuDriverGetVersion(&mut version))?;
        if version < OLDEST {
            let version = version.unsigned_abs();
            return Err(Absent::TooOld {
                major: version / 1000,
                minor: version % 1000 / 10,
            });
        }
        Ok(cuda)
    }

    pub(super) fn judge(&self, function: &'static str, code: u32) -> Answer<()> {
        match code {
            0 => Ok(()),
            _ => Err(Failure {
                function,
                code,
                words: self.words(code),
            }),
        }
    }

    /// The driver's name of a code and what it says about it.
    fn words(&self, code: u32) -> String {
        let words = [self.api.cuGetErrorName, self.api.cuGetErrorString].map(|function| {
            let mut words = ptr::null();
            // SAFETY: the words are the driver's constants; null for a code it does not know.
            let known = unsafe { function(code, &mut words) } == 0 && !words.is_null();
            // SAFETY: checked, and it ends with a NUL.
            known.then(|| unsafe { CStr::from_ptr(words) }.to_string_lossy())
        });
        match words {
            [Some(name), Some(text)] => format!("{name}: {text}"),
            [Some(name), None] => name.into(),
            _ => "a code that this driver has no name for".into(),
        }
    }

    fn attribute(&self, device: c_int, attribute: c_uint) -> Answer<u32> {
        let mut value = 0;
        ask!(self.cuDeviceGetAttribute(&mut value, attribute, device))?;
        Ok(value.try_into().unwrap_or(0))
    }

    fn properties(&self, index: c_int) -> Answer<Properties> {
        let mut device = 0;
        ask!(self.cuDeviceGet(&mut device, index))?;
        let mut name = [0u8; 256];
        ask!(self.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, device))?;
        let mut memory = 0;
        ask!(self.cuDeviceTotalMem_v2(&mut memory, device))?;
        let pci_address = self.pci_address(device);
        Ok(Properties {
            runtime: Runtime::Cuda,
            index: index.unsigned_abs(),
            vendor_ordinal: pci_address
                .as_deref()
                .and_then(|own| rank(&addresses("/proc/driver/nvidia/gpus"), own))
                .unwrap_or(index.unsigned_abs()),
            architecture: Architecture::Capability(
                self.attribute(device, CAPABILITY_MAJOR)?,
                self.attribute(device, CAPABILITY_MINOR)?,
            ),
            compute_units: self.attribute(device, MULTIPROCESSORS)?,
            memory_bytes: memory as u64,
            name: text(&name),
            uuid: self.uuid(device),
            pci_address,
        })
    }

    fn uuid(&self, device: c_int) -> Option<String> {
        let mut uuid = [0; 16];
        // SAFETY: declared as in the header; the buffer has the 16 bytes it writes.
        let code = unsafe { self.api.cuDeviceGetUuid?(&mut uuid, device) };
        (code == 0).then(|| written(&uuid))
    }

    fn pci_address(&self, device: c_int) -> Option<String> {
        let mut address = [0u8; 32];
        let bytes = address.len() as c_int - 1;
        let get = self.api.cuDeviceGetPCIBusId?;
        // SAFETY: declared as in the header; the buffer's length goes with it.
        let code = unsafe { get(address.as_mut_ptr().cast(), bytes, device) };
        (code == 0).then(|| text(&address).to_lowercase())
    }
}

/// As `nvidia-smi -L` writes it.
fn written(uuid: &[u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    format!("GPU-{}", parts.join("-"))
}

/// The bus addresses of the devices that the kernel's driver serves, in ascending order, which is
/// `nvidia-smi`'s. None where there is no such folder.
fn addresses(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().to_lowercase())
        .collect();
    names.sort();
    names
}

/// The position of a device among all of them.
fn rank(addresses: &[String], own: &str) -> Option<u32> {
    let place = addresses.iter().position(|address| address == own)?;
    place.try_into().ok()
}

impl Driver for Cuda {
    fn devices(&self) -> Vec<Properties> {
        let mut count = 0;
        if ask!(self.cuDeviceGetCount(&mut count)).is_err() {
            return Vec::new();
        }
        // A device that does not answer, fallen off its bus, hides no other.
        let indexes = 0..count.min(MOST_DEVICES);
        indexes
            .filter_map(|index| self.properties(index).ok())
            .collect()
    }

    fn retain(&self, index: u32) -> Answer<Raw> {
        let mut device = 0;
        ask!(self.cuDeviceGet(&mut device, index as c_int))?;
        let mut context = 0;
        ask!(self.cuDevicePrimaryCtxRetain(&mut context, device))?;
        Ok(Raw(context))
    }

    unsafe fn release(&self, index: u32) {
        let mut device = 0;
        if ask!(self.cuDeviceGet(&mut device, index as c_int)).is_ok() {
            // Whoever gives a context back can do nothing about its faults.
            let _ = ask!(self.cuDevicePrimaryCtxRelease_v2(device));
        }
    }

    unsafe fn enter(&self, context: Raw) -> Answer<Raw> {
        let mut before = 0;
        ask!(self.cuCtxGetCurrent(&mut before))?;
        if before != context.0 {
            ask!(self.cuCtxSetCurrent(context.0))?;
        }
        Ok(Raw(before))
    }

    unsafe fn leave(&self, before: Raw) {
        // It was the thread's own a moment ago.
        let _ = ask!(self.cuCtxSetCurrent(before.0));
    }

    unsafe fn reach(&self, index: u32, peer: u32, context: Raw) -> Answer<bool> {
        let api = &self.api;
        let (Some(can), Some(enable)) = (api.cuDeviceCanAccessPeer, api.cuCtxEnablePeerAccess)
        else {
            return Ok(false);
        };
        let (mut own, mut other, mut is_possible) = (0, 0, 0);
        ask!(self.cuDeviceGet(&mut own, index as c_int))?;
        ask!(self.cuDeviceGet(&mut other, peer as c_int))?;
        // SAFETY: declared as in the header; two devices, and a place for the answer.
        let code = unsafe { can(&mut is_possible, own, other) };
        self.judge("cuDeviceCanAccessPeer", code)?;
        if is_possible == 0 {
            return Ok(false);
        }
        // SAFETY: the peer's context, which is asked of the caller.
        match unsafe { enable(context.0, 0) } {
            ALREADY_REACHED => Ok(true),
            code if OUT_OF_REACH.contains(&code) => Ok(false),
            code => self.judge("cuCtxEnablePeerAccess", code).map(|()| true),
        }
    }

    fn try_multicast(&self, devices: &[u32]) -> Result<(), String> {
        multicast::attempt(self, self.library, devices)
    }

    fn memory(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        ask!(self.cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Answer<u64> {
        let mut address = 0;
        ask!(self.cuMemAlloc_v2(&mut address, bytes))?;
        Ok(address)
    }

    unsafe fn free(&self, address: u64) -> Answer<()> {
        ask!(self.cuMemFree_v2(address))
    }

    fn allocate_host(&self, bytes: usize) -> Answer<Raw> {
        let mut address = 0;
        ask!(self.cuMemAllocHost_v2(&mut address, bytes))?;
        Ok(Raw(address))
    }

    unsafe fn free_host(&self, address: Raw) -> Answer<()> {
        ask!(self.cuMemFreeHost(address.0))
    }

    fn stream(&self) -> Answer<Raw> {
        let mut stream = 0;
        ask!(self.cuStreamCreate(&mut stream, NON_BLOCKING))?;
        Ok(Raw(stream))
    }

    unsafe fn end_stream(&self, stream: Raw) -> Answer<()> {
        ask!(self.cuStreamDestroy_v2(stream.0))
    }

    unsafe fn is_ours(&self, stream: Raw, _index: u32, context: Raw) -> Answer<bool> {
        let mut its_own = 0;
        ask!(self.cuStreamGetCtx(stream.0, &mut its_own))?;
        Ok(its_own == context.0)
    }

    unsafe fn wait(&self, stream: Raw) -> Answer<()> {
        ask!(self.cuStreamSynchronize(stream.0))
    }

    unsafe fn is_done(&self, stream: Raw) -> Answer<bool> {
        match ask!(self.cuStreamQuery(stream.0)) {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Raw) -> Answer<()> {
        ask!(self.cuMemcpyHtoDAsync_v2(to, from, bytes, stream.0))
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Raw) -> Answer<()> {
        ask!(self.cuMemcpyDtoHAsync_v2(to, from, bytes, stream.0))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Raw) -> Answer<()> {
        ask!(self.cuMemcpyDtoDAsync_v2(to, from, bytes, stream.0))
    }

    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize, stream: Raw) -> Answer<()> {
        ask!(self.cuMemsetD8Async(at, byte, bytes, stream.0))
    }

    fn load(&self, code: Code<'_>, _architecture: &Architecture) -> Answer<Raw> {
        let Code::Image(image) = code else {
            return Err(Failure {
                function: "cuModuleLoadDataEx",
                code: CUresult::CUDA_ERROR_NOT_SUPPORTED as u32,
                words: "CUDA's driver compiles no C++: a module is PTX or a cubin".into(),
            });
        };
        // PTX is text that ends with a NUL; a cubin knows its own length.
        let mut image = image.to_vec();
        image.push(0);
        let mut log = vec![0u8; 4096];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
        let mut module = 0;
        let loaded = ask!(self.cuModuleLoadDataEx(
            &mut module,
            image.as_ptr(),
            options.len() as c_uint,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        ));
        match loaded {
            Ok(()) => Ok(Raw(module)),
            Err(mut failure) => {
                let log = text(&log);
                if !log.is_empty() {
                    failure.words = format!("{}: {log}", failure.words);
                }
                Err(failure)
            }
        }
    }

    unsafe fn unload(&self, module: Raw) -> Answer<()> {
        ask!(self.cuModuleUnload(module.0))
    }

    unsafe fn kernel(&self, module: Raw, name: &CStr) -> Answer<Raw> {
        let mut kernel = 0;
        ask!(self.cuModuleGetFunction(&mut kernel, module.0, name.as_ptr()))?;
        Ok(Raw(kernel))
    }

    unsafe fn allow_shared(&self, kernel: Raw, bytes: u32) -> Answer<()> {
        ask!(self.cuFuncSetAttribute(kernel.0, MOST_SHARED, bytes as c_int))
    }

    unsafe fn launch(&self, launch: Launch<'_>) -> Answer<()> {
        let Launch { grid, block, .. } = launch;
        ask!(self.cuLaunchKernel(
            launch.kernel.0,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            launch.shared_bytes,
            launch.stream.0,
            launch.arguments.as_mut_ptr(),
            ptr::null_mut(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_vendors_tool_does() {
        let uuid = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(written(&uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn the_vendors_number_is_the_place_on_the_bus() {
        let folder = tempfile::tempdir().unwrap();
        for address in ["0000:AF:00.0", "0000:3b:00.0", "0001:01:00.0"] {
            fs::create_dir(folder.path().join(address)).unwrap();
        }
        let found = addresses(folder.path().to_str().unwrap());
        assert_eq!(rank(&found, "0000:3b:00.0"), Some(0));
        assert_eq!(rank(&found, "0000:af:00.0"), Some(1));
        assert_eq!(rank(&found, "0001:01:00.0"), Some(2));
        assert_eq!(rank(&found, "0000:00:00.0"), None);
        assert_eq!(rank(&addresses("/no/such/folder"), "0000:3b:00.0"), None);
    }
}
