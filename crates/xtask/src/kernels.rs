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

/// The engine's: an encoder's kernels, and those that devices add up with.
const ENGINE: &str = "crates/uform/src/device/kernels/uform.cu";
const COLLECTIVES: &str = "crates/uform/src/device/kernels/collectives.cu";

/// What is made of which source: for which architecture, under which name.
const MADE: [(&str, &str, &str); 12] = [
    (ENGINE, "compute_80", "uform.ptx"),
    (ENGINE, "sm_80", "uform.sm_80.cubin"),
    (ENGINE, "sm_89", "uform.sm_89.cubin"),
    (ENGINE, "sm_90a", "uform.sm_90a.cubin"),
    (ENGINE, "sm_100f", "uform.sm_100f.cubin"),
    (ENGINE, "sm_120f", "uform.sm_120f.cubin"),
    (COLLECTIVES, "compute_80", "collectives.ptx"),
    (COLLECTIVES, "sm_80", "collectives.sm_80.cubin"),
    (COLLECTIVES, "sm_89", "collectives.sm_89.cubin"),
    (COLLECTIVES, "sm_90a", "collectives.sm_90a.cubin"),
    (COLLECTIVES, "sm_100f", "collectives.sm_100f.cubin"),
    (COLLECTIVES, "sm_120f", "collectives.sm_120f.cubin"),
];

/// The version of PTX that CUDA 11.0 brought.
const PTX_VERSION: &str = ".version 7.0";

/// Makes them.
pub fn make() -> Result {
    each(|path, made| {
        fs::write(path, made).map_err(|error| format!("cannot write {}: {error}", path.display()))
    })
}

/// Makes them, and compares: what is checked in is what the source says.
pub fn check() -> Result {
    each(|path, made| match fs::read(path) {
        Ok(found) if found == made => Ok(()),
        _ => Err(format!(
            "{} is not what its source becomes: run `cargo xtask kernels`",
            path.display()
        )),
    })
}

fn each(mut with: impl FnMut(&Path, &[u8]) -> Result) -> Result {
    let compiler = Compiler::load(&library()?)?;
    for (source, architecture, name) in MADE {
        let path = root().join(source);
        let text = fs::read(&path).map_err(|error| format!("cannot read {source}: {error}"))?;
        let text = CString::new(text).map_err(|error| format!("{source}: {error}"))?;
        eprintln!("$ nvrtc --gpu-architecture={architecture} --std=c++17 {source}");
        let mut made = compiler.compile(&text, architecture)?;
        if name.ends_with(".ptx") {
            made = lowered(&made)?;
        }
        with(&path.with_file_name(name), &made)?;
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

    fn compile(&self, source: &CStr, architecture: &str) -> Result<Vec<u8>> {
        let option = format!("--gpu-architecture={architecture}");
        let option = CString::new(option).map_err(|error| error.to_string())?;
        let options = [option.as_ptr(), c"--std=c++17".as_ptr()];
        let mut program = 0;
        // SAFETY: declared as in `nvrtc.h`; the program is destroyed below, once.
        unsafe {
            let create: Symbol<'_, Created> = self.function("nvrtcCreateProgram")?;
            let compile: Symbol<'_, Compiled> = self.function("nvrtcCompileProgram")?;
            let destroy: Symbol<'_, Destroyed> = self.function("nvrtcDestroyProgram")?;
            let (name, none) = (c"uform.cu".as_ptr(), std::ptr::null());
            if create(&mut program, source.as_ptr(), name, 0, none, none) != 0 {
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
