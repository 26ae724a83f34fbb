//! AMD's runtime, `libamdhip64`, and its compiler, `libhiprtc`: their tables, and the trait over them.
//!
//! A context here is a device: HIP has one a device, and a thread has a current device. The
//! numbers of what is asked for, and where the architecture lies in the properties, are those of
//! ROCm 6 and 7; of the older layout the architecture's own `gfx` tells.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::cuda::{ALREADY_REACHED, MOST_DEVICES, OUT_OF_REACH};
use super::driver::{
    Absent, Answer, Architecture, Code, Driver, Failure, Launch, Properties, Raw, Runtime,
};
use super::kfd::{self, Node};
use super::symbols::{ask, open, table, text};

const NAMES: [&str; 4] = [
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
];

const COMPILERS: [&str; 4] = [
    "libhiprtc.so.7",
    "libhiprtc.so.6",
    "libhiprtc.so.5",
    "libhiprtc.so",
];

/// `hipDeviceAttributeMultiprocessorCount`.
const COMPUTE_UNITS: c_uint = 63;
/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `hipErrorNotReady`.
const NOT_READY: u32 = 600;
// `hipMemcpyKind`.
const HOST_TO_DEVICE: c_uint = 1;
const DEVICE_TO_HOST: c_uint = 2;
const WITHIN_DEVICE: c_uint = 3;

/// More than the properties of any version take.
const PROPERTIES_BYTES: usize = 8192;
/// Where the architecture lies in them.
const ARCHITECTURE: usize = 1160;
/// Where it lay before ROCm 6.
const OLD_ARCHITECTURE: usize = 396;

table! {
    Api {
        fn hipInit(c_uint) -> u32;
        fn hipGetErrorName(u32) -> *const c_char;
        fn hipGetErrorString(u32) -> *const c_char;
        fn hipGetDeviceCount(*mut c_int) -> u32;
        fn hipDeviceGet(*mut c_int, c_int) -> u32;
        fn hipDeviceGetName(*mut c_char, c_int, c_int) -> u32;
        fn hipDeviceGetAttribute(*mut c_int, c_uint, c_int) -> u32;
        fn hipDeviceTotalMem(*mut usize, c_int) -> u32;
        fn hipGetDevice(*mut c_int) -> u32;
        fn hipSetDevice(c_int) -> u32;
        fn hipMemGetInfo(*mut usize, *mut usize) -> u32;
        fn hipMalloc(*mut usize, usize) -> u32;
        fn hipFree(usize) -> u32;
        fn hipHostMalloc(*mut usize, usize, c_uint) -> u32;
        fn hipHostFree(usize) -> u32;
        fn hipMemcpyAsync(*mut c_void, *const c_void, usize, c_uint, usize) -> u32;
        fn hipMemsetAsync(usize, c_int, usize, usize) -> u32;
        fn hipStreamCreateWithFlags(*mut usize, c_uint) -> u32;
        fn hipStreamDestroy(usize) -> u32;
        fn hipStreamSynchronize(usize) -> u32;
        fn hipStreamQuery(usize) -> u32;
        fn hipModuleLoadData(*mut usize, *const u8) -> u32;
        fn hipModuleUnload(usize) -> u32;
        fn hipModuleGetFunction(*mut usize, usize, *const c_char) -> u32;
        fn hipModuleLaunchKernel(
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
        fn hipGetDevicePropertiesR0600(*mut u8, c_int) -> u32;
        fn hipGetDeviceProperties(*mut u8, c_int) -> u32;
        fn hipDeviceGetUuid(*mut [u8; 16], c_int) -> u32;
        fn hipDeviceGetPCIBusId(*mut c_char, c_int, c_int) -> u32;
        fn hipStreamGetDevice(usize, *mut c_int) -> u32;
        fn hipDeviceCanAccessPeer(*mut c_int, c_int, c_int) -> u32;
        fn hipDeviceEnablePeerAccess(c_int, c_uint) -> u32;
    }
}

table! {
    CompilerApi {
        fn hiprtcGetErrorString(u32) -> *const c_char;
        fn hiprtcCreateProgram(
            *mut usize,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char
        ) -> u32;
        fn hiprtcDestroyProgram(*mut usize) -> u32;
        fn hiprtcCompileProgram(usize, c_int, *const *const c_char) -> u32;
        fn hiprtcGetProgramLogSize(usize, *mut usize) -> u32;
        fn hiprtcGetProgramLog(usize, *mut u8) -> u32;
        fn hiprtcGetCodeSize(usize, *mut usize) -> u32;
        fn hiprtcGetCode(usize, *mut u8) -> u32;
    }
    optional {}
}

/// The runtime, started.
pub(super) struct Hip {
    api: Api,
    library: (&'static Library, &'static str),
    compiler: OnceLock<Result<Compiler, Absent>>,
}

impl Hip {
    /// Finds and starts it.
    pub(super) fn load() -> Result<Hip, Absent> {
        let library = open(&NAMES)?;
        // SAFETY: declared as in `hip_runtime_api.h`; `open` never closes it.
        let api = unsafe { Api::find(library.0, library.1) }?;
        let hip = Hip {
            api,
            library,
            compiler: OnceLock::new(),
        };
        ask!(hip.hipInit(0))?;
        Ok(hip)
    }

    fn judge(&self, function: &'static str, code: u32) -> Answer<()> {
        match code {
            0 => Ok(()),
            _ => Err(Failure {
                function,
                code,
                words: self.words(code),
            }),
        }
    }

    fn words(&self, code: u32) -> String {
        // SAFETY: constants of the runtime's, for unknown codes too, as it documents.
        let (name, words) = unsafe {
            (
                said(self.api.hipGetErrorName, code),
                said(self.api.hipGetErrorString, code),
            )
        };
        format!("{name}: {words}")
    }

    fn properties(&self, index: c_int, nodes: &[Node]) -> Answer<Properties> {
        let mut device = 0;
        ask!(self.hipDeviceGet(&mut device, index))?;
        let mut name = [0u8; 256];
        ask!(self.hipDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, device))?;
        let mut memory = 0;
        ask!(self.hipDeviceTotalMem(&mut memory, device))?;
        let mut units = 0;
        ask!(self.hipDeviceGetAttribute(&mut units, COMPUTE_UNITS, device))?;
        let pci_address = self.pci_address(device);
        let place = nodes
            .iter()
            .position(|node| Some(&node.pci_address) == pci_address.as_ref());
        let architecture = self.architecture(index);
        let listed = || place.map(|place| nodes[place].architecture.clone());
        Ok(Properties {
            runtime: Runtime::Hip,
            index: index.unsigned_abs(),
            vendor_ordinal: place.map_or(index.unsigned_abs(), |place| place as u32),
            architecture: Architecture::Gfx(architecture.or_else(listed).unwrap_or_default()),
            compute_units: units.try_into().unwrap_or(0),
            memory_bytes: memory as u64,
            name: text(&name),
            uuid: self.uuid(device),
            pci_address,
        })
    }

    /// Out of the properties, whose layout no header tells for every version: what does not begin
    /// with `gfx` is not it.
    fn architecture(&self, index: c_int) -> Option<String> {
        let layouts = [
            (self.api.hipGetDevicePropertiesR0600, ARCHITECTURE),
            (self.api.hipGetDeviceProperties, OLD_ARCHITECTURE),
            (self.api.hipGetDeviceProperties, ARCHITECTURE),
        ];
        layouts.into_iter().find_map(|(get, at)| {
            let mut properties = vec![0u8; PROPERTIES_BYTES];
            // SAFETY: declared as in the header, and the buffer is larger than any version's.
            let code = unsafe { get?(properties.as_mut_ptr(), index) };
            let found = text(&properties[at..at + 256]);
            (code == 0 && found.starts_with("gfx")).then_some(found)
        })
    }

    fn uuid(&self, device: c_int) -> Option<String> {
        let mut uuid = [0; 16];
        // SAFETY: declared as in the header; the buffer has the 16 bytes it writes.
        let code = unsafe { self.api.hipDeviceGetUuid?(&mut uuid, device) };
        (code == 0).then(|| written(&uuid))
    }

    fn pci_address(&self, device: c_int) -> Option<String> {
        let mut address = [0u8; 32];
        let bytes = address.len() as c_int - 1;
        let get = self.api.hipDeviceGetPCIBusId?;
        // SAFETY: declared as in the header; the buffer's length goes with it.
        let code = unsafe { get(address.as_mut_ptr().cast(), bytes, device) };
        (code == 0).then(|| text(&address).to_lowercase())
    }

    /// The compiler, found when it is first needed: in a library of its own, or with old versions
    /// in the runtime's.
    fn compiler(&self) -> Answer<&Compiler> {
        let find = || {
            let (library, name) = open(&COMPILERS).unwrap_or(self.library);
            // SAFETY: declared as in `hiprtc.h`; `open` never closes it.
            let api = unsafe { CompilerApi::find(library, name) }?;
            Ok(Compiler { api })
        };
        self.compiler
            .get_or_init(find)
            .as_ref()
            .map_err(|absent: &Absent| Failure {
                function: "hiprtcCreateProgram",
                code: 801,
                words: format!("there is no compiler: {absent}"),
            })
    }
}

/// A constant of the runtime's about a code.
///
/// # Safety
/// The function returns null or a string that stays.
unsafe fn said(function: unsafe extern "C" fn(u32) -> *const c_char, code: u32) -> String {
    // SAFETY: asked of the caller.
    let words = unsafe { function(code) };
    if words.is_null() {
        return "unknown".into();
    }
    // SAFETY: not null, and asked of the caller.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into()
}

/// As `ROCR_VISIBLE_DEVICES` takes it: the bytes are text already.
fn written(uuid: &[u8; 16]) -> String {
    if uuid.iter().all(u8::is_ascii_alphanumeric) {
        return format!("GPU-{}", text(uuid));
    }
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{digits}")
}

/// hiprtc.
struct Compiler {
    api: CompilerApi,
}

impl Compiler {
    fn judge(&self, function: &'static str, code: u32) -> Answer<()> {
        match code {
            0 => Ok(()),
            // Its codes are numbered by themselves: memory that is out alone means the same.
            _ => Err(Failure {
                function,
                code: if code == 1 { 2 } else { 801 },
                // SAFETY: constants of the compiler's, for unknown codes too, as it documents.
                words: format!("hiprtc: {}", unsafe {
                    said(self.api.hiprtcGetErrorString, code)
                }),
            }),
        }
    }

    /// A code object for an architecture.
    fn compile(&self, source: &CStr, architecture: &CStr) -> Answer<Vec<u8>> {
        let (mut program, none) = (0, ptr::null());
        ask!(self.hiprtcCreateProgram(
            &mut program,
            source.as_ptr(),
            c"uform.hip".as_ptr(),
            0,
            none,
            none
        ))?;
        let code = self.code(program, architecture);
        let ended = ask!(self.hiprtcDestroyProgram(&mut program));
        code.and_then(|code| ended.map(|()| code))
    }

    fn code(&self, program: usize, architecture: &CStr) -> Answer<Vec<u8>> {
        let options = [architecture.as_ptr(), c"-O3".as_ptr()];
        let count = options.len() as c_int;
        if let Err(mut failure) = ask!(self.hiprtcCompileProgram(program, count, options.as_ptr()))
        {
            let mut bytes = 0;
            ask!(self.hiprtcGetProgramLogSize(program, &mut bytes))?;
            let mut log = vec![0; bytes];
            ask!(self.hiprtcGetProgramLog(program, log.as_mut_ptr()))?;
            failure.words = format!("{}: {}", failure.words, text(&log));
            return Err(failure);
        }
        let mut bytes = 0;
        ask!(self.hiprtcGetCodeSize(program, &mut bytes))?;
        let mut code = vec![0; bytes];
        ask!(self.hiprtcGetCode(program, code.as_mut_ptr()))?;
        Ok(code)
    }
}

impl Driver for Hip {
    fn devices(&self) -> Vec<Properties> {
        let mut count = 0;
        if ask!(self.hipGetDeviceCount(&mut count)).is_err() {
            return Vec::new();
        }
        let nodes = kfd::gpus(Path::new(kfd::NODES));
        let indexes = 0..count.min(MOST_DEVICES);
        indexes
            .filter_map(|index| self.properties(index, &nodes).ok())
            .collect()
    }

    fn retain(&self, index: u32) -> Answer<Raw> {
        let mut device = 0;
        ask!(self.hipDeviceGet(&mut device, index as c_int))?;
        Ok(Raw(index as usize))
    }

    unsafe fn release(&self, _index: u32) {
        // The runtime keeps a device's context until the process ends.
    }

    unsafe fn enter(&self, context: Raw) -> Answer<Raw> {
        let mut before = 0;
        ask!(self.hipGetDevice(&mut before))?;
        if before != context.0 as c_int {
            ask!(self.hipSetDevice(context.0 as c_int))?;
        }
        Ok(Raw(before as usize))
    }

    unsafe fn leave(&self, before: Raw) {
        // It was the thread's own a moment ago.
        let _ = ask!(self.hipSetDevice(before.0 as c_int));
    }

    unsafe fn reach(&self, index: u32, peer: u32, _context: Raw) -> Answer<bool> {
        let api = &self.api;
        let (Some(can), Some(enable)) = (api.hipDeviceCanAccessPeer, api.hipDeviceEnablePeerAccess)
        else {
            return Ok(false);
        };
        let mut is_possible = 0;
        // SAFETY: declared as in the header; two devices, and a place for the answer.
        let code = unsafe { can(&mut is_possible, index as c_int, peer as c_int) };
        self.judge("hipDeviceCanAccessPeer", code)?;
        if is_possible == 0 {
            return Ok(false);
        }
        // SAFETY: declared as in the header; a device.
        match unsafe { enable(peer as c_int, 0) } {
            ALREADY_REACHED => Ok(true),
            code if OUT_OF_REACH.contains(&code) => Ok(false),
            code => self.judge("hipDeviceEnablePeerAccess", code).map(|()| true),
        }
    }

    fn try_multicast(&self, _devices: &[u32]) -> Result<(), String> {
        Err("AMD's runtime has no multicast memory".into())
    }

    fn memory(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        ask!(self.hipMemGetInfo(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Answer<u64> {
        let mut address = 0;
        ask!(self.hipMalloc(&mut address, bytes))?;
        Ok(address as u64)
    }

    unsafe fn free(&self, address: u64) -> Answer<()> {
        ask!(self.hipFree(address as usize))
    }

    fn allocate_host(&self, bytes: usize) -> Answer<Raw> {
        let mut address = 0;
        ask!(self.hipHostMalloc(&mut address, bytes, 0))?;
        Ok(Raw(address))
    }

    unsafe fn free_host(&self, address: Raw) -> Answer<()> {
        ask!(self.hipHostFree(address.0))
    }

    fn stream(&self) -> Answer<Raw> {
        let mut stream = 0;
        ask!(self.hipStreamCreateWithFlags(&mut stream, NON_BLOCKING))?;
        Ok(Raw(stream))
    }

    unsafe fn end_stream(&self, stream: Raw) -> Answer<()> {
        ask!(self.hipStreamDestroy(stream.0))
    }

    unsafe fn is_ours(&self, stream: Raw, index: u32, _context: Raw) -> Answer<bool> {
        const FUNCTION: &str = "hipStreamGetDevice";
        let Some(device_of) = self.api.hipStreamGetDevice else {
            return Err(Failure {
                function: FUNCTION,
                code: 801,
                words: "this ROCm cannot tell whose a stream is".into(),
            });
        };
        let mut its_own = -1;
        // SAFETY: declared as in the header; the stream is one, which is asked of the caller.
        self.judge(FUNCTION, unsafe { device_of(stream.0, &mut its_own) })?;
        Ok(its_own == index as c_int)
    }

    unsafe fn wait(&self, stream: Raw) -> Answer<()> {
        ask!(self.hipStreamSynchronize(stream.0))
    }

    unsafe fn is_done(&self, stream: Raw) -> Answer<bool> {
        match ask!(self.hipStreamQuery(stream.0)) {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Raw) -> Answer<()> {
        let to = to as usize as *mut c_void;
        ask!(self.hipMemcpyAsync(to, from.cast(), bytes, HOST_TO_DEVICE, stream.0))
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Raw) -> Answer<()> {
        let from = from as usize as *const c_void;
        ask!(self.hipMemcpyAsync(to.cast(), from, bytes, DEVICE_TO_HOST, stream.0))
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Raw) -> Answer<()> {
        let (to, from) = (to as usize as *mut c_void, from as usize as *const c_void);
        ask!(self.hipMemcpyAsync(to, from, bytes, WITHIN_DEVICE, stream.0))
    }

    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize, stream: Raw) -> Answer<()> {
        ask!(self.hipMemsetAsync(at as usize, byte.into(), bytes, stream.0))
    }

    fn load(&self, code: Code<'_>, architecture: &Architecture) -> Answer<Raw> {
        let compiled;
        let image = match (code, architecture) {
            (Code::Image(image), _) => image,
            (Code::Source(source), Architecture::Gfx(name)) => {
                // A NUL in either would end it early, and fail to compile.
                let source = terminated(source);
                let option = terminated(&format!("--offload-arch={name}"));
                compiled = self.compiler()?.compile(&source, &option)?;
                &compiled
            }
            (Code::Source(_), Architecture::Capability(..)) => &[],
        };
        let mut module = 0;
        ask!(self.hipModuleLoadData(&mut module, image.as_ptr()))?;
        Ok(Raw(module))
    }

    unsafe fn unload(&self, module: Raw) -> Answer<()> {
        ask!(self.hipModuleUnload(module.0))
    }

    unsafe fn kernel(&self, module: Raw, name: &CStr) -> Answer<Raw> {
        let mut kernel = 0;
        ask!(self.hipModuleGetFunction(&mut kernel, module.0, name.as_ptr()))?;
        Ok(Raw(kernel))
    }

    unsafe fn allow_shared(&self, _kernel: Raw, _bytes: u32) -> Answer<()> {
        // Every launch may ask for all that a compute unit has.
        Ok(())
    }

    unsafe fn launch(&self, launch: Launch<'_>) -> Answer<()> {
        let Launch { grid, block, .. } = launch;
        ask!(self.hipModuleLaunchKernel(
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

/// The text up to its first NUL.
fn terminated(text: &str) -> std::ffi::CString {
    let end = text.find('\0').unwrap_or(text.len());
    std::ffi::CString::new(&text[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_vendors_tools_take_it() {
        assert_eq!(written(b"5e3bb2a7c14d1f09"), "GPU-5e3bb2a7c14d1f09");
        let bytes = std::array::from_fn(|at| at as u8);
        assert_eq!(written(&bytes), "GPU-000102030405060708090a0b0c0d0e0f");
    }

    #[test]
    fn text_for_the_compiler_ends_at_its_first_nul() {
        assert_eq!(&*terminated("gfx942\0x"), c"gfx942");
        assert_eq!(&*terminated(""), c"");
    }
}
