//! What the processor and the operating system offer together.
//!
//! An instruction may be used only when the processor has it *and* the operating
//! system saves the registers it writes. The standard library's detection
//! checks both; what it does not cover on stable Rust is asked here in safe code
//! alone, and where there is no safe way the answer is "no": a class too low
//! computes slower, a class too high ends the process.

use std::sync::OnceLock;

/// One thing a class may need. The order is that of the bits in [`Features`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the vendors' own")]
pub enum Feature {
    /// Kernels are chosen at run time: not a build for a single target.
    Dispatch,
    /// The build is for a single target.
    SingleTarget,
    X86_64,
    Avx2,
    Fma,
    F16c,
    Bmi2,
    AvxVnni,
    Avx512F,
    Avx512Bw,
    Avx512Cd,
    Avx512Dq,
    Avx512Vl,
    Avx512Vnni,
    Avx512Vpopcntdq,
    Avx512Bf16,
    Avx512Fp16,
    AmxBf16,
    AmxInt8,
    AmxFp16,
    Avx10_2,
    Aarch64,
    Neon,
    DotProd,
    Bf16,
    Fp16,
    Sme,
    Sve2,
    I8mm,
    /// `FEAT_WFxT`, mandatory from Armv8.7 and Armv9.2 on: together with SVE2 it tells
    /// Neoverse V3 from V2.
    Wfxt,
    Fp8DotProduct,
    Riscv64,
    /// The V extension with everything else of the RVA23 profile.
    Rva23,
    Wasm32,
    Wasm64,
    Simd128,
    RelaxedSimd,
}

impl Feature {
    /// Whether the feature is a kind of build or processor rather than an extension of
    /// one: where it is missing, its extensions are not worth naming.
    pub(crate) const fn is_kind(self) -> bool {
        use Feature::*;
        matches!(
            self,
            Dispatch | SingleTarget | X86_64 | Aarch64 | Riscv64 | Wasm32 | Wasm64
        )
    }

    /// How an error message names what is missing.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Feature::Dispatch => "a build without the Cargo feature `monoversioned`",
            Feature::SingleTarget => "a build with the Cargo feature `monoversioned`",
            Feature::X86_64 => "an x86-64 processor",
            Feature::Avx2 => "AVX2",
            Feature::Fma => "FMA",
            Feature::F16c => "F16C",
            Feature::Bmi2 => "BMI2",
            Feature::AvxVnni => "AVX-VNNI",
            Feature::Avx512F => "AVX-512 F",
            Feature::Avx512Bw => "AVX-512 BW",
            Feature::Avx512Cd => "AVX-512 CD",
            Feature::Avx512Dq => "AVX-512 DQ",
            Feature::Avx512Vl => "AVX-512 VL",
            Feature::Avx512Vnni => "AVX-512 VNNI",
            Feature::Avx512Vpopcntdq => "AVX-512 VPOPCNTDQ",
            Feature::Avx512Bf16 => "AVX-512 BF16",
            Feature::Avx512Fp16 => "AVX-512 FP16",
            Feature::AmxBf16 => "AMX-BF16",
            Feature::AmxInt8 => "AMX-INT8",
            Feature::AmxFp16 => "AMX-FP16",
            Feature::Avx10_2 => "AVX10.2",
            Feature::Aarch64 => "a 64-bit Arm processor",
            Feature::Neon => "NEON",
            Feature::DotProd => "NEON dot products",
            Feature::Bf16 => "NEON bf16",
            Feature::Fp16 => "NEON f16",
            Feature::Sme => "SME",
            Feature::Sve2 => "SVE2",
            Feature::I8mm => "int8 matrix multiplication (I8MM)",
            Feature::Wfxt => "the Armv9.2 baseline (WFxT)",
            Feature::Fp8DotProduct => "FP8 dot products",
            Feature::Riscv64 => "a 64-bit RISC-V processor",
            Feature::Rva23 => "the RVA23 profile with vectors",
            Feature::Wasm32 => "a 32-bit WebAssembly build",
            Feature::Wasm64 => "a 64-bit WebAssembly build",
            Feature::Simd128 => "simd128",
            Feature::RelaxedSimd => "relaxed SIMD",
        }
    }
}

/// A set of [`Feature`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    pub(crate) const fn with(self, feature: Feature) -> Features {
        Features(self.0 | 1 << feature as u32)
    }

    /// Whether a feature is one of them.
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u32 != 0
    }

    fn add(&mut self, feature: Feature, present: bool) {
        if present {
            *self = self.with(feature);
        }
    }

    /// What this build on this machine offers, asked once a process.
    pub fn here() -> Features {
        static HERE: OnceLock<Features> = OnceLock::new();
        *HERE.get_or_init(|| {
            let mut found = Features::default();
            let monoversioned = cfg!(feature = "monoversioned");
            found.add(Feature::SingleTarget, monoversioned);
            found.add(Feature::Dispatch, !monoversioned);
            probe(&mut found);
            found
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn probe(found: &mut Features) {
    use std::arch::is_x86_feature_detected as detected;
    found.add(Feature::X86_64, true);
    found.add(Feature::Avx2, detected!("avx2"));
    found.add(Feature::Fma, detected!("fma"));
    found.add(Feature::F16c, detected!("f16c"));
    found.add(Feature::Bmi2, detected!("bmi2"));
    found.add(Feature::AvxVnni, detected!("avxvnni"));
    found.add(Feature::Avx512F, detected!("avx512f"));
    found.add(Feature::Avx512Bw, detected!("avx512bw"));
    found.add(Feature::Avx512Cd, detected!("avx512cd"));
    found.add(Feature::Avx512Dq, detected!("avx512dq"));
    found.add(Feature::Avx512Vl, detected!("avx512vl"));
    found.add(Feature::Avx512Vnni, detected!("avx512vnni"));
    found.add(Feature::Avx512Vpopcntdq, detected!("avx512vpopcntdq"));
    found.add(Feature::Avx512Bf16, detected!("avx512bf16"));
    found.add(Feature::Avx512Fp16, detected!("avx512fp16"));
    if detected!("avx512f") {
        x86_tiles_and_avx10(found);
    }
}

/// AMX and AVX10.2, whose detection the standard library keeps unstable, from
/// CPUID (Intel's Software Developer's Manual, volume 2, "CPUID"). Asked only where
/// AVX-512 was detected, which also says that the operating system uses XSAVE.
#[cfg(target_arch = "x86_64")]
fn x86_tiles_and_avx10(found: &mut Features) {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const SAVED_STATE: u32 = 0xd;
    const TILE_DATA: u32 = 18;
    const AVX10: u32 = 0x24;
    let bit = |register: u32, bit: u32| register >> bit & 1 == 1;

    let highest = __cpuid(0).eax;
    let first = __cpuid_count(7, 0);
    let second = match first.eax {
        0 => None,
        _ => Some(__cpuid_count(7, 1)),
    };
    // Whether the operating system enabled tiles is a bit of the register XCR0,
    // and reading that takes `unsafe`. CPUID tells the same: the save area's size is that of
    // the states enabled *now*, and tile data ends it. What is left is the permission.
    let area = __cpuid_count(SAVED_STATE, 0).ebx;
    let tiles = __cpuid_count(SAVED_STATE, TILE_DATA);
    let saved = tiles.eax > 0 && area >= tiles.ebx.saturating_add(tiles.eax);
    if saved && crate::amx_permission::permitted() {
        found.add(Feature::AmxBf16, bit(first.edx, 22));
        found.add(Feature::AmxInt8, bit(first.edx, 25));
        found.add(
            Feature::AmxFp16,
            second.is_some_and(|leaf| bit(leaf.eax, 21)),
        );
    }
    if highest >= AVX10 && second.is_some_and(|leaf| bit(leaf.edx, 19)) {
        let version = __cpuid(AVX10).ebx & 0xff;
        found.add(Feature::Avx10_2, version >= 2);
    }
}

#[cfg(target_arch = "aarch64")]
fn probe(found: &mut Features) {
    use std::arch::is_aarch64_feature_detected as detected;
    found.add(Feature::Aarch64, true);
    found.add(Feature::Neon, detected!("neon"));
    found.add(Feature::DotProd, detected!("dotprod"));
    found.add(Feature::Bf16, detected!("bf16"));
    found.add(Feature::Fp16, detected!("fp16"));
    found.add(Feature::Sve2, detected!("sve2"));
    found.add(Feature::I8mm, detected!("i8mm"));
    let words = linux_feature_words();
    let has = |word: &str| words.split_whitespace().any(|other| other == word);
    found.add(Feature::Wfxt, has("wfxt"));
    found.add(Feature::Sme, has("sme"));
    found.add(Feature::Fp8DotProduct, has("f8dp4"));
}

/// The kernel's own words for what it lets programs use, for the features that the
/// standard library's detection keeps unstable. Empty on other systems.
#[cfg(target_arch = "aarch64")]
fn linux_feature_words() -> String {
    if !cfg!(all(feature = "native", target_os = "linux")) {
        return String::new();
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Features"));
    line.and_then(|line| line.split_once(':'))
        .map(|(_, words)| words.to_owned())
        .unwrap_or_default()
}

/// Stable Rust cannot ask for RISC-V's vectors: such a build computes as `serial`.
#[cfg(target_arch = "riscv64")]
fn probe(found: &mut Features) {
    found.add(Feature::Riscv64, true);
}

/// A module that an engine has loaded may use what it was built with.
#[cfg(any(target_arch = "wasm32", target_arch = "wasm64"))]
fn probe(found: &mut Features) {
    found.add(Feature::Wasm32, cfg!(target_arch = "wasm32"));
    found.add(Feature::Wasm64, cfg!(target_arch = "wasm64"));
    found.add(Feature::Simd128, cfg!(target_feature = "simd128"));
    found.add(Feature::RelaxedSimd, cfg!(target_feature = "relaxed-simd"));
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "wasm32",
    target_arch = "wasm64"
)))]
fn probe(_found: &mut Features) {}

#[cfg(test)]
mod tests {
    use super::{Feature, Features};

    #[test]
    fn a_build_dispatches_or_has_a_single_target_never_both() {
        let here = Features::here();
        assert_ne!(
            here.contains(Feature::Dispatch),
            here.contains(Feature::SingleTarget)
        );
    }

    /// The kernel's list is made apart from ours. A kernel older than 5.16 lists tiles
    /// although it does not save them: there, and only there, we may find less.
    #[test]
    #[cfg(all(feature = "native", target_os = "linux", target_arch = "x86_64"))]
    fn what_is_found_is_what_linux_lists() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = text.lines().find(|line| line.starts_with("flags")).unwrap();
        for (feature, flag) in [
            (Feature::Avx2, "avx2"),
            (Feature::Fma, "fma"),
            (Feature::F16c, "f16c"),
            (Feature::Bmi2, "bmi2"),
            (Feature::AvxVnni, "avx_vnni"),
            (Feature::Avx512F, "avx512f"),
            (Feature::Avx512Bw, "avx512bw"),
            (Feature::Avx512Cd, "avx512cd"),
            (Feature::Avx512Dq, "avx512dq"),
            (Feature::Avx512Vl, "avx512vl"),
            (Feature::Avx512Vnni, "avx512_vnni"),
            (Feature::Avx512Vpopcntdq, "avx512_vpopcntdq"),
            (Feature::Avx512Bf16, "avx512_bf16"),
            (Feature::Avx512Fp16, "avx512_fp16"),
            (Feature::AmxBf16, "amx_bf16"),
            (Feature::AmxInt8, "amx_int8"),
        ] {
            let listed = flags.split_whitespace().any(|word| word == flag);
            let found = Features::here().contains(feature);
            let unsaved = flag.starts_with("amx") && !found;
            assert!(
                found == listed || unsaved,
                "{flag}: listed {listed}, found {found}"
            );
        }
    }
}
