//! What a driver does: the one trait that CUDA's and HIP's both are.
//!
//! Handles are bare numbers here, and every function that takes one is unsafe; the types that
//! own them are in this folder's other files. A function that needs a context works on the one its
//! thread has entered.

use std::ffi::c_void;
use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::CUresult;

use super::{cuda::Cuda, hip::Hip};
use crate::{Error, Status};

/// A vendor's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// NVIDIA's.
    Cuda,
    /// AMD's.
    Hip,
}

impl Runtime {
    /// Both, in the order in which devices are listed.
    pub const ALL: [Runtime; 2] = [Runtime::Cuda, Runtime::Hip];

    /// The driver, which is loaded when it is first asked for and stays loaded.
    ///
    /// # Errors
    /// Why it cannot be used, the same for as long as the process lives.
    pub(super) fn driver(self) -> Result<&'static dyn Driver, &'static Absent> {
        static CUDA: OnceLock<Result<Cuda, Absent>> = OnceLock::new();
        static HIP: OnceLock<Result<Hip, Absent>> = OnceLock::new();
        match self {
            Runtime::Cuda => match CUDA.get_or_init(Cuda::load) {
                Ok(driver) => Ok(driver),
                Err(absent) => Err(absent),
            },
            Runtime::Hip => match HIP.get_or_init(Hip::load) {
                Ok(driver) => Ok(driver),
                Err(absent) => Err(absent),
            },
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Runtime::Cuda => "CUDA",
            Runtime::Hip => "HIP",
        })
    }
}

/// Why a driver cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Absent {
    /// No library of that name loads.
    #[error("{library} does not load: {reason}")]
    Library {
        /// The name it was looked for by.
        library: &'static str,
        /// The loader's words.
        reason: String,
    },
    /// The library lacks a function that is needed.
    #[error("{library} has no {symbol}: it is too old, or not a driver")]
    Symbol {
        /// The library's name.
        library: &'static str,
        /// The function's name.
        symbol: &'static str,
    },
    /// It is older than the kernels of this build need.
    #[error("the CUDA driver is of version {major}.{minor}, and 11.0 or newer is needed")]
    TooOld {
        /// The CUDA version that it supports.
        major: u32,
        /// As above.
        minor: u32,
    },
    /// It does not start: a stub, no device, or no permission.
    #[error(transparent)]
    Refused(#[from] Failure),
}

impl From<&Absent> for Error {
    fn from(absent: &Absent) -> Error {
        Error::unsupported(format!("there is no GPU to drive: {absent}")).because(absent.clone())
    }
}

/// The machine cannot do it: its driver, its devices or its settings.
const UNSUPPORTED: [CUresult; 15] = [
    CUresult::CUDA_ERROR_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_STUB_LIBRARY,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
    CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
    CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED,
    CUresult::CUDA_ERROR_FILE_NOT_FOUND,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
];

/// What this library should not have asked.
const INTERNAL: [CUresult; 8] = [
    CUresult::CUDA_ERROR_INVALID_VALUE,
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_INVALID_IMAGE,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_INVALID_HANDLE,
    CUresult::CUDA_ERROR_NOT_FOUND,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
];

/// `hipErrorInsufficientDriver` (`hip_runtime_api.h`), which CUDA's driver has no name for.
const HIP_INSUFFICIENT_DRIVER: u32 = 35;

/// A call of the driver that did not return 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} failed with {code}, {words}")]
pub struct Failure {
    /// Which call.
    pub function: &'static str,
    /// What it returned.
    pub code: u32,
    /// The driver's own words, which may be that it has none.
    pub words: String,
}

impl Failure {
    /// What the code means to a caller. CUDA's and HIP's numbers are the same where both have one.
    /// An unknown code counts as a fault, since nothing is known of the device after it.
    pub fn status(&self) -> Status {
        let is_among = |codes: &[CUresult]| codes.iter().any(|&code| code as u32 == self.code);
        if is_among(&[CUresult::CUDA_ERROR_OUT_OF_MEMORY]) {
            Status::OutOfMemory
        } else if is_among(&UNSUPPORTED) || self.code == HIP_INSUFFICIENT_DRIVER {
            Status::Unsupported
        } else if is_among(&INTERNAL) {
            Status::Internal
        } else {
            Status::DeviceFault
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::new(failure.status(), failure.to_string()).because(failure)
    }
}

/// The result of a call of the driver.
pub(super) type Answer<T> = Result<T, Failure>;

/// What is known of a device without driving it.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// Whose it is.
    pub runtime: Runtime,
    /// The runtime's own number, by which [`Device::open`](super::Device::open) finds it. It depends on the
    /// variables that the runtime reads, such as `CUDA_VISIBLE_DEVICES`.
    pub index: u32,
    /// The number by which the vendor's management tool lists it.
    pub vendor_ordinal: u32,
    /// What kind of kernels run on it.
    pub architecture: Architecture,
    /// Multiprocessors, or compute units.
    pub compute_units: u32,
    /// Memory in all, in bytes.
    pub memory_bytes: u64,
    /// Such as `NVIDIA H200`.
    pub name: String,
    /// As the vendor's tool writes it, `GPU-…`.
    pub uuid: Option<String>,
    /// Domain, bus, device and function, as in `0000:3b:00.0`.
    pub pci_address: Option<String>,
}

/// What kind of kernels run on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// NVIDIA's compute capability, major and minor.
    Capability(u32, u32),
    /// AMD's name, with its modes, as in `gfx942:sramecc+:xnack-`; empty when it cannot be told.
    Gfx(String),
}

/// What a module is made of.
#[derive(Clone, Copy, Debug)]
pub enum Code<'a> {
    /// What the runtime loads: PTX or a cubin, an AMD code object.
    Image(&'a [u8]),
    /// CUDA C++ without headers, compiled on this machine. HIP only.
    Source(&'a str),
}

/// A launch, as the driver takes it.
pub(super) struct Launch<'a> {
    pub kernel: Raw,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Raw,
    /// Where each argument lies.
    pub arguments: &'a mut [*mut c_void],
}

/// A handle of the driver: a name, which any thread may use that has entered its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw(pub usize);

/// A driver that has started.
///
/// # Safety of what is unsafe here
/// A handle is one that this driver gave and that was not given back since; its context is the one
/// the thread has entered; memory is as large as the call says, and stays until the call's stream
/// has been waited for.
pub(super) trait Driver: Send + Sync {
    /// Every device that answers. Makes no context.
    fn devices(&self) -> Vec<Properties>;

    /// A device's context: the one that everybody in this process shares.
    fn retain(&self, index: u32) -> Answer<Raw>;
    /// Gives a device's context back.
    unsafe fn release(&self, index: u32);
    /// Makes a context the thread's own; returns what it was before.
    unsafe fn enter(&self, context: Raw) -> Answer<Raw>;
    /// Makes the thread's context what it was before.
    unsafe fn leave(&self, before: Raw);

    /// Lets the device whose context is entered reach a peer's memory, from now on: by both
    /// indexes, and the peer's context. `false`: this machine cannot.
    unsafe fn reach(&self, index: u32, peer: u32, context: Raw) -> Answer<bool>;
    /// Makes a multicast object of these devices, binds memory of each to it, and takes
    /// everything apart again.
    ///
    /// # Errors
    /// Why that cannot be done.
    fn try_multicast(&self, devices: &[u32]) -> Result<(), String>;

    /// Free and total bytes of the device's memory.
    fn memory(&self) -> Answer<(u64, u64)>;
    /// Memory of the device.
    fn allocate(&self, bytes: usize) -> Answer<u64>;
    /// Gives it back, after everything that was submitted before.
    unsafe fn free(&self, address: u64) -> Answer<()>;
    /// Memory of the host that the device reaches without a copy between.
    fn allocate_host(&self, bytes: usize) -> Answer<Raw>;
    /// Gives it back.
    unsafe fn free_host(&self, address: Raw) -> Answer<()>;

    /// A stream that waits for no other.
    fn stream(&self) -> Answer<Raw>;
    /// Ends a stream.
    unsafe fn end_stream(&self, stream: Raw) -> Answer<()>;
    /// Whether the stream is one of the device whose context is entered.
    unsafe fn is_ours(&self, stream: Raw, index: u32, context: Raw) -> Answer<bool>;
    /// Waits for everything submitted to the stream.
    unsafe fn wait(&self, stream: Raw) -> Answer<()>;
    /// Whether all of it is done.
    unsafe fn is_done(&self, stream: Raw) -> Answer<bool>;

    /// Submits a copy from the host.
    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Raw) -> Answer<()>;
    /// Submits a copy to the host.
    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Raw) -> Answer<()>;
    /// Submits a copy within the device.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Raw) -> Answer<()>;
    /// Submits filling memory with a byte.
    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize, stream: Raw) -> Answer<()>;

    /// Loads a module for a device of this architecture.
    fn load(&self, code: Code<'_>, architecture: &Architecture) -> Answer<Raw>;
    /// Unloads it.
    unsafe fn unload(&self, module: Raw) -> Answer<()>;
    /// A module's kernel.
    unsafe fn kernel(&self, module: Raw, name: &std::ffi::CStr) -> Answer<Raw>;
    /// Lets the kernel's launches ask for so much shared memory.
    unsafe fn allow_shared(&self, kernel: Raw, bytes: u32) -> Answer<()>;
    /// Submits a launch.
    unsafe fn launch(&self, launch: Launch<'_>) -> Answer<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_and_an_unknown_one_is_a_fault() {
        for (code, status) in [
            (1, Status::Internal),
            (2, Status::OutOfMemory),
            (3, Status::Unsupported),
            (34, Status::Unsupported),
            (35, Status::Unsupported),
            (46, Status::Unsupported),
            (100, Status::Unsupported),
            (222, Status::Unsupported),
            (214, Status::DeviceFault),
            (700, Status::DeviceFault),
            (701, Status::Internal),
            (719, Status::DeviceFault),
            (803, Status::Unsupported),
            (804, Status::Unsupported),
            (917, Status::DeviceFault),
            (999, Status::DeviceFault),
            (u32::MAX, Status::DeviceFault),
        ] {
            let failure = Failure {
                function: "cuLaunchKernel",
                code,
                words: "words".into(),
            };
            let error = Error::from(failure);
            assert_eq!(error.status(), status, "{code}");
            let message = format!("cuLaunchKernel failed with {code}, words");
            assert_eq!(error.message(), message);
        }
    }
}
