//! The GPU kernels, out of CUDA C++, by NVIDIA's run-time compiler from PyPI: it needs neither a
//! toolkit nor a GPU, and gives the same bytes everywhere.
//!
//! PTX is what every driver from 11.0 on translates for its device, so it is given the version of that
//! time; a cubin is the machine code of one kind of device. Both lie beside the source, checked
//! in, so that building the engine needs no compiler of NVIDIA's.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};

use crate::command::{in_checkout, run};
use crate::{Result, root, target};

/// The sources: an encoder's kernels, and those that devices add up with.
const SOURCES: [&str; 2] = [
    "crates/uform/src/device/kernels/uform.cu",
    "crates/uform/src/device/kernels/collectives.cu",
];

/// What is made of each: for which architecture, and how its name ends.
const MADE: [(&str, &str); 6] = [
    ("compute_80", "ptx"),
    ("sm_80", "sm_80.cubin"),
    ("sm_89", "sm_89.cubin"),
    ("sm_90a", "sm_90a.cubin"),
    ("sm_100f", "sm_100f.cubin"),
    ("sm_120f", "sm_120f.cubin"),
];

/// The version of PTX that CUDA 11.0 brought.
const PTX_VERSION: &str = ".version 7.0";

/// Makes them.
pub fn make() -> Result {
    each(|_, path, made| {
        fs::write(path, made).map_err(|error| format!("cannot write {}: {error}", path.display()))
    })
}

/// Makes them, and compares: what is checked in is what the source says.
pub fn check() -> Result {
    each(|source, path, made| match fs::read(path) {
        Ok(found) if found == made => Ok(()),
        _ => Err(format!(
            "{} is not what {source} becomes: run `cargo xtask kernels`",
            path.display()
        )),
    })
}

/// Every source, and each thing that it becomes, with its place.
fn each(mut with: impl FnMut(&str, &Path, &[u8]) -> Result) -> Result {
    let compiler = Compiler::load(&library()?)?;
    for name in SOURCES {
        let path = root().join(name);
        let source = fs::read(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let source = CString::new(source).map_err(|error| format!("{name}: {error}"))?;
        for (architecture, extension) in MADE {
            let mut made = compiler.compile(name, &source, architecture)?;
            if extension == "ptx" {
                made = lowered(&made)?;
            }
            with(name, &path.with_extension(extension), &made)?;
        }
    }
    Ok(())
}

/// The PTX in the older version, whose instructions are all that it has, and without the NUL at its end.
fn lowered(ptx: &[u8]) -> Result<Vec<u8>> {
    let text = String::from_utf8_lossy(ptx);
    let text = text.trim_end_matches('\0');
    let line = text.lines().find(|line| line.starts_with(".version "));
    let line = line.ok_or("the PTX has no version")?;
    Ok(text.replacen(line, PTX_VERSION, 1).into())
}

/// Where the compiler's library is, downloaded once.
fn library() -> Result<PathBuf> {
    let folder = target()?.join("nvrtc");
    let library = folder.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
    if library.exists() {
        return Ok(library);
    }
    // On the same file system as its destination, so that the rename is one step.
    let work = folder.with_extension(format!("fetch-{}", std::process::id()));
    let cannot = |error| format!("cannot make {}: {error}", folder.display());
    fs::create_dir_all(&work).map_err(cannot)?;
    let outcome = download(&work).and_then(|()| fs::rename(&work, &folder).map_err(cannot));
    if work.exists() {
        fs::remove_dir_all(&work)
            .map_err(|error| format!("cannot remove {}: {error}", work.display()))?;
    }
    outcome.map(|()| library)
}

fn download(folder: &Path) -> Result {
    run(in_checkout("python3")
        .args(["-m", "pip", "download", "--no-deps", "--require-hashes"])
        .args([
            "--requirement",
            "crates/xtask/nvrtc-requirements.txt",
            "--dest",
        ])
        .arg(folder))?;
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut wheels = entries.flatten().map(|entry| entry.path());
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let wheel = wheel.ok_or("pip left no wheel")?;
    run(in_checkout("python3")
        .args(["-m", "zipfile", "--extract"])
        .arg(&wheel)
        .arg(folder))?;
    fs::remove_file(&wheel).map_err(|error| format!("cannot remove {}: {error}", wheel.display()))
}

/// `nvrtcProgram`.
type Program = usize;
type Sized = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Filled = unsafe extern "C" fn(Program, *mut u8) -> c_int;
type Created = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compiled = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Destroyed = unsafe extern "C" fn(*mut Program) -> c_int;

/// NVRTC.
struct Compiler(Library);

impl Compiler {
    fn load(path: &Path) -> Result<Compiler> {
        // SAFETY: NVIDIA's library, whose hash pip has checked.
        let library = unsafe { Library::new(path) };
        library
            .map(Compiler)
            .map_err(|error| format!("{}: {error:?}", path.display()))
    }

    /// # Safety
    /// The function of this name has this type.
    unsafe fn function<T>(&self, name: &str) -> Result<Symbol<'_, T>> {
        // SAFETY: asked of the caller.
        unsafe { self.0.get(name) }.map_err(|error| error.to_string())
    }

    fn compile(&self, name: &str, source: &CStr, architecture: &str) -> Result<Vec<u8>> {
        let option = format!("--gpu-architecture={architecture}");
        eprintln!("$ nvrtc {option} --std=c++17 {name}");
        // Without its folder, as the programs have it that are checked in.
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let option = CString::new(option).map_err(|error| error.to_string())?;
        let options = [option.as_ptr(), c"--std=c++17".as_ptr()];
        let mut program = 0;
        // SAFETY: declared as in `nvrtc.h`; the program is destroyed below, once.
        unsafe {
            let create: Symbol<'_, Created> = self.function("nvrtcCreateProgram")?;
            let compile: Symbol<'_, Compiled> = self.function("nvrtcCompileProgram")?;
            let destroy: Symbol<'_, Destroyed> = self.function("nvrtcDestroyProgram")?;
            let none = std::ptr::null();
            if create(&mut program, source.as_ptr(), name.as_ptr(), 0, none, none) != 0 {
                return Err("NVRTC makes no program".into());
            }
            let compiled = match compile(program, options.len() as c_int, options.as_ptr()) {
                0 if architecture.starts_with("compute") => self.read(program, "PTX"),
                0 => self.read(program, "CUBIN"),
                _ => Err(String::from_utf8_lossy(&self.read(program, "ProgramLog")?).into()),
            };
            destroy(&mut program);
            compiled
        }
    }

    /// # Safety
    /// The program is one.
    unsafe fn read(&self, program: Program, what: &str) -> Result<Vec<u8>> {
        // SAFETY: declared as in `nvrtc.h`; the buffer has the size that was told.
        unsafe {
            let size: Symbol<'_, Sized> = self.function(&format!("nvrtcGet{what}Size"))?;
            let get: Symbol<'_, Filled> = self.function(&format!("nvrtcGet{what}"))?;
            let mut bytes = 0;
            if size(program, &mut bytes) != 0 {
                return Err(format!("NVRTC has no {what}"));
            }
            let mut buffer = vec![0; bytes];
            match get(program, buffer.as_mut_ptr()) {
                0 => Ok(buffer),
                code => Err(format!("NVRTC gives no {what}: {code}")),
            }
        }
    }
}
