//! What this binary was built with, and what this machine offers, in words.
//!
//! Neither list implies the other: a class may run here without kernels of its
//! own (dispatch then falls to the next), and kernels may be built in that do
//! not run here. A word stands for something that can be used today.

use super::cpu::CpuClass;
use super::features::{Feature, Features};
use super::gpu::{GpuVendor, gpu_devices};
use super::topology::Topology;

/// What this binary was built with, comma-separated: the words of the classes
/// with kernels of their own, then `amx` and `vnni` where some of these multiply by them, `threads` and `forkunion` where host threads can be
/// had and borrowed, `numa` where they and their memory can be placed, and `cuda` and `hip`
/// where the vendors' devices can be listed, `nccl` where those of several processes can add up, and
/// `mesh` where processes can meet; of WebAssembly what the module uses of `simd128`,
/// `relaxed-simd` and `memory64`.
pub fn compiled() -> String {
    let mut words: Vec<&str> = CpuClass::COMPILED
        .iter()
        .map(|class| class.word())
        .collect();
    let has = |class| CpuClass::COMPILED.contains(&class);
    push(&mut words, "amx", has(CpuClass::IntelSapphire));
    push(&mut words, "vnni", has(CpuClass::IntelIcelake));
    push(&mut words, "threads", cfg!(feature = "native"));
    push(&mut words, "forkunion", cfg!(feature = "native"));
    push(&mut words, "numa", CAN_PLACE);
    push(&mut words, "cuda", cfg!(feature = "native"));
    push(&mut words, "hip", cfg!(feature = "native"));
    push(&mut words, "nccl", cfg!(feature = "native"));
    push(&mut words, "mesh", cfg!(feature = "native"));
    push_module(&mut words);
    words.join(",")
}

/// What a module of WebAssembly uses, the engine that loaded it offers.
fn push_module(words: &mut Vec<&str>) {
    let has = |feature| Features::here().contains(feature);
    push(words, "simd128", has(Feature::Simd128));
    push(words, "relaxed-simd", has(Feature::RelaxedSimd));
    push(words, "memory64", has(Feature::Wasm64));
}

/// Whether this build places threads and memory: by Linux's system calls.
const CAN_PLACE: bool = cfg!(all(feature = "native", target_os = "linux"));

/// What this machine offers now, comma-separated: the words of the classes that run,
/// then `amx` (tiles multiply), `vnni` (int8 dot products on x86-64), `threads`,
/// `forkunion` (pools can be borrowed), `numa` where memory lies on more than one node,
/// whether or not this process may allocate on all of them, and `cuda` and `hip` where
/// the vendor's driver works and has a device; `nccl` where the library of that name, or AMD's, loads
/// beside one, and `mesh`. Of an engine of WebAssembly it is told
/// what the module that it loaded uses: `simd128`, `relaxed-simd`, `memory64`.
pub fn available() -> String {
    let features = Features::here();
    let has = |feature| features.contains(feature);
    let mut words: Vec<&str> = CpuClass::that_run_here().map(CpuClass::word).collect();
    let amx = has(Feature::AmxBf16) || has(Feature::AmxInt8);
    let vnni = has(Feature::AvxVnni) || has(Feature::Avx512Vnni);
    push(&mut words, "amx", amx);
    push(&mut words, "vnni", vnni);
    push(&mut words, "threads", cfg!(feature = "native"));
    push(&mut words, "forkunion", cfg!(feature = "native"));
    push(
        &mut words,
        "numa",
        Topology::here().memory_domains.len() > 1,
    );
    let is_there = |vendor| gpu_devices().iter().any(|device| device.vendor == vendor);
    push(&mut words, "cuda", is_there(GpuVendor::Nvidia));
    push(&mut words, "hip", is_there(GpuVendor::Amd));
    push(&mut words, "nccl", has_collectives());
    push(&mut words, "mesh", cfg!(feature = "native"));
    push_module(&mut words);
    words.join(",")
}

/// Whether a vendor whose devices there are has its library for several processes here.
fn has_collectives() -> bool {
    #[cfg(feature = "native")]
    {
        use crate::device::{Runtime, nccl};
        let vendors = [
            (GpuVendor::Nvidia, Runtime::Cuda),
            (GpuVendor::Amd, Runtime::Hip),
        ];
        vendors.into_iter().any(|(vendor, runtime)| {
            let mut devices = gpu_devices().iter();
            devices.any(|device| device.vendor == vendor) && nccl::version(runtime).is_ok()
        })
    }
    #[cfg(not(feature = "native"))]
    false
}

fn push<'a>(words: &mut Vec<&'a str>, word: &'a str, is_so: bool) {
    if is_so {
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_says_its_classes_and_nothing_that_is_not_there() {
        let classes = if cfg!(feature = "monoversioned") {
            "monoversioned"
        } else if cfg!(target_arch = "x86_64") {
            "serial,intel-haswell,intel-skylake,intel-icelake,intel-sapphire,amx,vnni"
        } else if cfg!(target_arch = "aarch64") {
            "serial,aws-g2,apple-m2"
        } else if !cfg!(target_feature = "simd128") {
            "serial"
        } else if cfg!(target_arch = "wasm32") {
            "serial,wasm32-v128"
        } else {
            "serial,wasm64-extended"
        };
        let threads = match (cfg!(feature = "native"), cfg!(target_os = "linux")) {
            (true, true) => ",threads,forkunion,numa,cuda,hip,nccl,mesh",
            (true, false) => ",threads,forkunion,cuda,hip,nccl,mesh",
            (false, _) => "",
        };
        let module = match (
            cfg!(target_feature = "simd128"),
            cfg!(target_feature = "relaxed-simd"),
        ) {
            (true, true) => ",simd128,relaxed-simd",
            (true, false) => ",simd128",
            (false, _) => "",
        };
        let memory = if cfg!(target_arch = "wasm64") {
            ",memory64"
        } else {
            ""
        };
        assert_eq!(compiled(), format!("{classes}{threads}{module}{memory}"));
    }

    #[test]
    fn what_is_available_agrees_with_the_pin_rule() {
        let available = available();
        let words: Vec<&str> = available.split(',').collect();
        for class in CpuClass::ALL {
            assert_eq!(words.contains(&class.word()), class.runs_here().is_ok());
        }
        for word in ["threads", "forkunion"] {
            assert_eq!(words.contains(&word), cfg!(feature = "native"));
        }
        if CpuClass::IntelSapphire.missing().is_none() {
            assert!(words.contains(&"amx") && words.contains(&"vnni"));
        }
    }
}
