//! CPU classes: what each promises, what it needs, and where dispatch goes next.

use std::fmt;

use crate::error::{Error, Result};
use crate::features::{Feature, Features};
use crate::quoted;

/// A CPU class: a bundle of instructions that kernels may be written for.
///
/// The numbers and the [`word`](CpuClass::word)s are part of the public contract. Code 0
/// stands for an absent class, `Option::None` here. Codes are not an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CpuClass {
    /// Portable floor, no SIMD assumed.
    Serial = 1,
    /// AVX2 + FMA.
    IntelHaswell = 2,
    /// AVX-VNNI without AVX-512.
    IntelSierra = 3,
    /// AVX-512 foundation tier.
    IntelSkylake = 4,
    /// AVX-512 VNNI and VPOPCNT.
    IntelIcelake = 5,
    /// Native bf16 dot products over AVX-512.
    AmdGenoa = 6,
    /// AVX-512 FP16, AMX-BF16 and AMX-INT8 tiles.
    IntelSapphire = 7,
    /// The Sapphire bundle plus AMX-FP16.
    IntelGranite = 8,
    /// The Granite bundle plus AVX10.2 FP8 conversions.
    IntelDiamond = 9,
    /// Bare NEON floor.
    AwsG2 = 10,
    /// Armv8.6+ NEON: dot products, bf16 and f16 fused multiplies.
    AppleM2 = 11,
    /// The Armv8.6 bundle plus SME outer-product tiles.
    AppleM4 = 12,
    /// Neoverse V3.
    AwsG5 = 13,
    /// Arm with FP8 dot products.
    NvidiaVera = 14,
    /// RISC-V with RVA23 vectors.
    AlibabaC930 = 15,
    /// 32-bit WebAssembly every engine loads: single-threaded, simd128.
    Wasm32V128 = 16,
    /// 64-bit addressing, relaxed SIMD, memory that may be shared.
    Wasm64Extended = 17,
    /// The one class of a build compiled for a single target (a Cargo feature).
    Monoversioned = 18,
}

use CpuClass::*;

/// A class's row: its word, the class dispatch falls to, and what it needs
/// beyond what that one needs.
struct Row {
    class: CpuClass,
    word: &'static str,
    falls_to: Option<CpuClass>,
    own: &'static [Feature],
}

const fn row(
    class: CpuClass,
    word: &'static str,
    falls_to: Option<CpuClass>,
    own: &'static [Feature],
) -> Row {
    Row {
        class,
        word,
        falls_to,
        own,
    }
}

/// One row a class, in the order of the codes. A class needs what its
/// `falls_to` needs as well, so that falling always lands on kernels that run.
#[rustfmt::skip]
static TABLE: [Row; 18] = {
    use Feature::*;
    [
        row(Serial, "serial", None, &[Dispatch]),
        row(IntelHaswell, "intel-haswell", Some(Serial), &[X86_64, Avx2, Fma, F16c, Bmi2]),
        row(IntelSierra, "intel-sierra", Some(IntelHaswell), &[AvxVnni]),
        row(IntelSkylake, "intel-skylake", Some(IntelHaswell), &[Avx512F, Avx512Bw, Avx512Cd, Avx512Dq, Avx512Vl]),
        row(IntelIcelake, "intel-icelake", Some(IntelSkylake), &[Avx512Vnni, Avx512Vpopcntdq]),
        row(AmdGenoa, "amd-genoa", Some(IntelIcelake), &[Avx512Bf16]),
        row(IntelSapphire, "intel-sapphire", Some(IntelIcelake), &[Avx512Bf16, Avx512Fp16, AmxBf16, AmxInt8]),
        row(IntelGranite, "intel-granite", Some(IntelSapphire), &[AmxFp16]),
        row(IntelDiamond, "intel-diamond", Some(IntelGranite), &[Avx10_2]),
        row(AwsG2, "aws-g2", Some(Serial), &[Aarch64, Neon]),
        row(AppleM2, "apple-m2", Some(AwsG2), &[DotProd, Bf16, Fp16, I8mm]),
        row(AppleM4, "apple-m4", Some(AppleM2), &[Sme]),
        row(AwsG5, "aws-g5", Some(AppleM2), &[Sve2, Wfxt]),
        row(NvidiaVera, "nvidia-vera", Some(AwsG5), &[Fp8DotProduct]),
        row(AlibabaC930, "alibaba-c930", Some(Serial), &[Riscv64, Rva23]),
        row(Wasm32V128, "wasm32-v128", None, &[Dispatch, Wasm32, Simd128]),
        row(Wasm64Extended, "wasm64-extended", None, &[Dispatch, Wasm64, Simd128, RelaxedSimd]),
        row(Monoversioned, "monoversioned", None, &[SingleTarget]),
    ]
};

/// The classes a CPU's own is looked for in: the first that runs wins. AVX-VNNI is
/// Sierra's mark only where AVX-512 is absent, so it comes after every AVX-512 class.
const BEST_FIRST: [CpuClass; 18] = [
    Monoversioned,
    IntelDiamond,
    IntelGranite,
    IntelSapphire,
    AmdGenoa,
    IntelIcelake,
    IntelSkylake,
    IntelSierra,
    IntelHaswell,
    NvidiaVera,
    AwsG5,
    AppleM4,
    AppleM2,
    AwsG2,
    AlibabaC930,
    Wasm64Extended,
    Wasm32V128,
    Serial,
];

impl CpuClass {
    /// Every class, in the order of the codes.
    pub const ALL: [CpuClass; 18] = [
        Serial,
        IntelHaswell,
        IntelSierra,
        IntelSkylake,
        IntelIcelake,
        AmdGenoa,
        IntelSapphire,
        IntelGranite,
        IntelDiamond,
        AwsG2,
        AppleM2,
        AppleM4,
        AwsG5,
        NvidiaVera,
        AlibabaC930,
        Wasm32V128,
        Wasm64Extended,
        Monoversioned,
    ];

    /// The classes this build carries kernels of their own for.
    pub const COMPILED: &[CpuClass] = if cfg!(feature = "monoversioned") {
        &[Monoversioned]
    } else if cfg!(target_arch = "x86_64") {
        &[
            Serial,
            IntelHaswell,
            IntelSkylake,
            IntelIcelake,
            IntelSapphire,
        ]
    } else if cfg!(target_arch = "aarch64") {
        &[Serial, AwsG2, AppleM2]
    } else if !cfg!(target_feature = "simd128") {
        &[Serial]
    } else if cfg!(target_arch = "wasm32") {
        &[Serial, Wasm32V128]
    } else {
        &[Serial, Wasm64Extended]
    };

    /// The class's number.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The class of a number; `None` for 0 ("absent") and for numbers no class has.
    pub fn from_code(code: u32) -> Option<CpuClass> {
        CpuClass::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The class's word, as options and descriptions spell it.
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// The class of a word.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument), listing the accepted
    /// words, for any other word.
    pub fn parse(word: &str) -> Result<CpuClass> {
        let found = TABLE.iter().find(|row| row.word == word);
        found.map(|row| row.class).ok_or_else(|| {
            Error::invalid(format!(
                "unknown cpuClass {}; accepted: {}",
                quoted::text(word),
                list(CpuClass::ALL)
            ))
        })
    }

    /// Where dispatch goes when this class has no kernels of its own.
    pub fn falls_to(self) -> Option<CpuClass> {
        self.row().falls_to
    }

    /// The class of this CPU: the best one it runs. Detected once a process.
    pub fn native() -> CpuClass {
        best_of(Features::here())
    }

    /// What this CPU, its operating system or this build lacks for the class to
    /// run, in words; `None` when it runs.
    pub fn missing(self) -> Option<String> {
        self.missing_from(Features::here())
    }

    /// Whether a pin to this class can be honoured here.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument), naming the class, what
    /// is missing, and the classes that would work.
    pub fn runs_here(self) -> Result<()> {
        let Some(missing) = self.missing() else {
            return Ok(());
        };
        Err(Error::invalid(format!(
            "cpuClass \"{self}\" cannot run here: it needs {missing}; classes that would work: {}",
            list(CpuClass::that_run_here())
        )))
    }

    /// The classes that run here, in the order of the codes.
    pub fn that_run_here() -> impl Iterator<Item = CpuClass> {
        CpuClass::ALL
            .into_iter()
            .filter(|class| class.missing().is_none())
    }

    /// The class to compute with: the pinned one, or the CPU's own.
    ///
    /// # Errors
    /// Those of [`runs_here`](CpuClass::runs_here), for a pinned class.
    pub fn resolve(pin: Option<CpuClass>) -> Result<CpuClass> {
        let Some(class) = pin else {
            return Ok(CpuClass::native());
        };
        class.runs_here()?;
        Ok(class)
    }

    fn row(self) -> &'static Row {
        // Codes are 1 to 18 and the table is in their order: a test holds it so.
        &TABLE[self as usize - 1]
    }

    /// The class and every class it falls to, nearest first.
    fn chain(self) -> impl Iterator<Item = CpuClass> {
        std::iter::successors(Some(self), |class| class.falls_to())
    }

    /// What the class needs, its own last.
    fn needs(self) -> Vec<Feature> {
        let chain: Vec<CpuClass> = self.chain().collect();
        let floor_first = chain.iter().rev();
        floor_first
            .flat_map(|class| class.row().own)
            .copied()
            .collect()
    }

    fn missing_from(self, features: Features) -> Option<String> {
        let mut lacking = self.needs();
        lacking.retain(|feature| !features.contains(*feature));
        if let Some(kind) = lacking.iter().find(|feature| feature.is_kind()) {
            return Some(kind.name().to_owned());
        }
        let names: Vec<&str> = lacking.iter().map(|feature| feature.name()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl fmt::Display for CpuClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The best class that runs on the given features. Every build offers one of
/// `Dispatch` and `Monoversioned`, so there always is one.
fn best_of(features: Features) -> CpuClass {
    let runs = |class: &CpuClass| class.missing_from(features).is_none();
    BEST_FIRST.into_iter().find(runs).unwrap_or(Serial)
}

/// Words of classes, for people.
fn list(classes: impl IntoIterator<Item = CpuClass>) -> String {
    let words: Vec<&str> = classes.into_iter().map(CpuClass::word).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn features(list: &[Feature]) -> Features {
        list.iter()
            .fold(Features::default(), |set, feature| set.with(*feature))
    }

    #[test]
    fn rows_are_in_the_order_of_the_codes() {
        for (place, class) in CpuClass::ALL.into_iter().enumerate() {
            assert_eq!(class.code() as usize, place + 1);
            assert_eq!(class.row().class, class);
            assert_eq!(CpuClass::from_code(class.code()), Some(class));
            assert_eq!(CpuClass::parse(class.word()).unwrap(), class);
        }
        assert_eq!(CpuClass::from_code(0), None);
        assert_eq!(CpuClass::from_code(19), None);
    }

    #[test]
    fn words_and_falls_are_the_contracts() {
        let contract = [
            ("serial", ""),
            ("intel-haswell", "serial"),
            ("intel-sierra", "intel-haswell"),
            ("intel-skylake", "intel-haswell"),
            ("intel-icelake", "intel-skylake"),
            ("amd-genoa", "intel-icelake"),
            ("intel-sapphire", "intel-icelake"),
            ("intel-granite", "intel-sapphire"),
            ("intel-diamond", "intel-granite"),
            ("aws-g2", "serial"),
            ("apple-m2", "aws-g2"),
            ("apple-m4", "apple-m2"),
            ("aws-g5", "apple-m2"),
            ("nvidia-vera", "aws-g5"),
            ("alibaba-c930", "serial"),
            ("wasm32-v128", ""),
            ("wasm64-extended", ""),
            ("monoversioned", ""),
        ];
        for (class, (word, falls_to)) in CpuClass::ALL.into_iter().zip(contract) {
            assert_eq!(class.word(), word);
            assert_eq!(class.falls_to().map_or("", CpuClass::word), falls_to);
        }
    }

    /// Nothing of the real machine takes part: what a class needs makes that class
    /// the detected one, and without any single part of it the class does not run.
    #[test]
    fn each_class_is_detected_from_exactly_what_it_needs() {
        for class in CpuClass::ALL {
            let needs = class.needs();
            assert_eq!(best_of(features(&needs)), class);
            assert_eq!(class.missing_from(features(&needs)), None);
            for absent in &needs {
                let mut rest = needs.clone();
                rest.retain(|feature| feature != absent);
                let rest = features(&rest);
                assert_eq!(class.missing_from(rest).as_deref(), Some(absent.name()));
            }
        }
    }

    #[test]
    fn real_processors_get_their_class() {
        use Feature::*;
        let skylake = IntelSkylake.needs();
        let with = |floor: &[Feature], more: &[Feature]| features(&[floor, more].concat());
        for (what, found, class) in [
            ("before AVX2", features(&[Dispatch, X86_64]), Serial),
            ("Cascade Lake", with(&skylake, &[Avx512Vnni]), IntelSkylake),
            (
                "Zen 5: AVX-VNNI beside AVX-512",
                with(&AmdGenoa.needs(), &[AvxVnni]),
                AmdGenoa,
            ),
            (
                "Sapphire Rapids, whose kernel keeps tiles off",
                with(&AmdGenoa.needs(), &[AvxVnni, Avx512Fp16]),
                AmdGenoa,
            ),
            (
                "Sapphire Rapids",
                with(&IntelSapphire.needs(), &[AvxVnni, Avx512Bf16]),
                IntelSapphire,
            ),
            (
                "AVX10.2 without AMX",
                with(&AmdGenoa.needs(), &[Avx512Fp16, Avx10_2]),
                AmdGenoa,
            ),
            ("Neoverse V2", with(&AppleM2.needs(), &[Sve2]), AppleM2),
            (
                "a single-target build on Sapphire Rapids",
                features(&[SingleTarget, X86_64, Avx2, Fma]),
                Monoversioned,
            ),
        ] {
            assert_eq!(best_of(found), class, "{what}");
        }
    }

    #[test]
    fn another_kind_of_processor_is_named_without_its_extensions() {
        let arm = features(&NvidiaVera.needs());
        let missing = IntelGranite.missing_from(arm);
        assert_eq!(missing.as_deref(), Some("an x86-64 processor"));
    }

    #[test]
    fn the_native_class_runs_and_is_what_no_pin_means() {
        let native = CpuClass::native();
        assert_eq!(native.missing(), None);
        assert_eq!(CpuClass::resolve(None).unwrap(), native);
        assert!(CpuClass::that_run_here().any(|class| class == native));
    }

    #[test]
    fn a_pin_that_runs_is_kept_and_another_is_refused_with_the_way_out() {
        for class in CpuClass::ALL {
            match class.missing() {
                None => assert_eq!(CpuClass::resolve(Some(class)).unwrap(), class),
                Some(missing) => {
                    let error = CpuClass::resolve(Some(class)).unwrap_err();
                    assert_eq!(error.status(), Status::InvalidArgument);
                    for part in [class.word(), &missing, CpuClass::native().word()] {
                        assert!(error.message().contains(part), "{error} lacks {part}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_two_kinds_of_build_run_none_of_each_others_classes() {
        let alone = Monoversioned.missing().is_none();
        assert_eq!(alone, cfg!(feature = "monoversioned"));
        if alone {
            assert!(CpuClass::that_run_here().eq([Monoversioned]));
        } else {
            assert!(CpuClass::that_run_here().any(|class| class == Serial));
        }
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_accepted_ones() {
        for word in ["", "intel", "Intel-Haswell", "intel-haswell ", "0"] {
            let error = CpuClass::parse(word).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains(&format!("{word:?}")));
            assert!(error.message().contains("intel-haswell, intel-sierra"));
        }
    }
}
