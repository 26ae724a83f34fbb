//! GPUs: their vendors and classes, which are names and rules, and the list of those that this
//! process can drive, which the vendors' drivers tell.

use std::fmt;

use serde::{Serialize, Serializer};

#[cfg(feature = "native")]
use crate::device::{self, Architecture, Properties, Runtime};
use crate::error::{Error, Result};
use crate::hardware::topology::number;
use crate::quoted;

/// Who made a GPU. The numbers are part of the public contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum GpuVendor {
    /// None of the others.
    Unknown = 0,
    /// NVIDIA.
    Nvidia = 1,
    /// AMD.
    Amd = 2,
    /// Apple.
    Apple = 3,
}

impl Serialize for GpuVendor {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_u32(*self as u32)
    }
}

/// A GPU class: the devices one set of kernels runs on.
///
/// The numbers and the [`word`](GpuClass::word)s are part of the public contract. Code 0
/// stands for an absent class, `Option::None` here. A device of no class can be
/// listed and not driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum GpuClass {
    /// Compute capability 8.0 and up without a class of its own.
    NvidiaAmpere = 1,
    /// Compute capability 8.9: fp8 conversions.
    NvidiaAda = 2,
    /// Compute capability 9.0.
    NvidiaHopper = 3,
    /// Datacenter Blackwell, compute capability 10.0 and 10.3.
    NvidiaBlackwell = 4,
    /// Consumer Blackwell, compute capability 12.x.
    NvidiaBlackwellRtx = 5,
    /// Rubin, compute capability 10.7.
    NvidiaRubin = 6,
    /// gfx942, FNUZ fp8.
    AmdCdna3 = 7,
    /// gfx950, OCP fp8.
    AmdCdna4 = 8,
    /// gfx1250.
    AmdCdna5 = 9,
    /// Apple7 family and every Apple GPU without a class of its own.
    AppleMetal7 = 10,
    /// Apple9 family.
    AppleMetal9 = 11,
    /// Apple10 family.
    AppleMetal10 = 12,
}

use GpuClass::*;

impl GpuClass {
    /// Every class, in the order of the codes.
    pub const ALL: [GpuClass; 12] = [
        NvidiaAmpere,
        NvidiaAda,
        NvidiaHopper,
        NvidiaBlackwell,
        NvidiaBlackwellRtx,
        NvidiaRubin,
        AmdCdna3,
        AmdCdna4,
        AmdCdna5,
        AppleMetal7,
        AppleMetal9,
        AppleMetal10,
    ];

    /// The class's number.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The class of a number; `None` for 0 ("absent") and for numbers no class has.
    pub fn from_code(code: u32) -> Option<GpuClass> {
        GpuClass::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The class's word, as options and descriptions spell it.
    pub const fn word(self) -> &'static str {
        match self {
            NvidiaAmpere => "nvidia-ampere",
            NvidiaAda => "nvidia-ada",
            NvidiaHopper => "nvidia-hopper",
            NvidiaBlackwell => "nvidia-blackwell",
            NvidiaBlackwellRtx => "nvidia-blackwellrtx",
            NvidiaRubin => "nvidia-rubin",
            AmdCdna3 => "amd-cdna3",
            AmdCdna4 => "amd-cdna4",
            AmdCdna5 => "amd-cdna5",
            AppleMetal7 => "apple-metal7",
            AppleMetal9 => "apple-metal9",
            AppleMetal10 => "apple-metal10",
        }
    }

    /// The class of a word.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument), listing the accepted
    /// words, for any other word.
    pub fn parse(word: &str) -> Result<GpuClass> {
        let found = GpuClass::ALL.into_iter().find(|class| class.word() == word);
        found.ok_or_else(|| {
            let accepted = GpuClass::ALL.map(GpuClass::word).join(", ");
            let word = quoted::text(word);
            Error::invalid(format!("unknown gpuClass {word}; accepted: {accepted}"))
        })
    }

    /// Who makes the class's devices.
    pub const fn vendor(self) -> GpuVendor {
        match self {
            NvidiaAmpere | NvidiaAda | NvidiaHopper | NvidiaBlackwell | NvidiaBlackwellRtx
            | NvidiaRubin => GpuVendor::Nvidia,
            AmdCdna3 | AmdCdna4 | AmdCdna5 => GpuVendor::Amd,
            AppleMetal7 | AppleMetal9 | AppleMetal10 => GpuVendor::Apple,
        }
    }

    /// Whether a device of class `own` runs this class's kernels: its own, and those of NVIDIA's lowest class on
    /// any of NVIDIA's.
    pub fn runs_on(self, own: GpuClass) -> bool {
        self == own || (self == NvidiaAmpere && own.vendor() == GpuVendor::Nvidia)
    }

    /// The class of an NVIDIA device by its compute capability; `None` below 8.0.
    pub const fn of_capability(major: u32, minor: u32) -> Option<GpuClass> {
        match (major, minor) {
            (0..=7, _) => None,
            (8, 9) => Some(NvidiaAda),
            (9, 0) => Some(NvidiaHopper),
            (10, 0 | 3) => Some(NvidiaBlackwell),
            (10, 7) => Some(NvidiaRubin),
            (12, _) => Some(NvidiaBlackwellRtx),
            _ => Some(NvidiaAmpere),
        }
    }

    /// The class of an AMD device by its architecture, such as
    /// `gfx942:sramecc+:xnack-`, where the modes after the first colon do not matter;
    /// `None` for an architecture without a class.
    pub fn of_gfx(architecture: &str) -> Option<GpuClass> {
        match architecture.split(':').next() {
            Some("gfx942") => Some(AmdCdna3),
            Some("gfx950") => Some(AmdCdna4),
            Some("gfx1250") => Some(AmdCdna5),
            _ => None,
        }
    }
}

impl fmt::Display for GpuClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for GpuClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// A GPU that this process can drive. Its position in [`gpu_devices`] is the ordinal by which
/// every placement names it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuDevice {
    /// Who made it.
    pub vendor: GpuVendor,
    /// The number by which `nvidia-smi` or `rocm-smi` lists it.
    pub vendor_ordinal: u32,
    /// The class whose kernels run on it; `None`: no kernels do.
    pub gpu_class: Option<GpuClass>,
    /// Multiprocessors, or compute units.
    pub compute_units: u32,
    /// Memory in all.
    #[serde(serialize_with = "number")]
    pub memory_bytes: u64,
    /// As the driver names it, such as `NVIDIA H200`.
    pub name: String,
    /// As the vendor's tool writes it, `GPU-…`.
    pub uuid: Option<String>,
    /// Domain, bus, device and function, as in `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// The number by which the vendor's runtime has it, for
    /// [`Device::open`](crate::device::Device::open); it depends on what that runtime was told to hide.
    #[serde(skip)]
    pub runtime_index: u32,
}

/// Every GPU that this process can drive: NVIDIA's devices first, then AMD's. None without a driver,
/// or with one that does not work; why, opening a device tells.
///
/// The drivers are looked for when this is first called, and the list is the same from then on: an
/// ordinal means one device as long as the process lives. No device is made busy by it.
pub fn gpu_devices() -> &'static [GpuDevice] {
    #[cfg(feature = "native")]
    {
        static DEVICES: std::sync::OnceLock<Vec<GpuDevice>> = std::sync::OnceLock::new();
        DEVICES.get_or_init(|| {
            let listed = Runtime::ALL.into_iter().flat_map(device::devices);
            listed.map(GpuDevice::from).collect()
        })
    }
    #[cfg(not(feature = "native"))]
    &[]
}

#[cfg(feature = "native")]
impl From<Properties> for GpuDevice {
    fn from(device: Properties) -> GpuDevice {
        let gpu_class = match &device.architecture {
            Architecture::Capability(major, minor) => GpuClass::of_capability(*major, *minor),
            Architecture::Gfx(name) => GpuClass::of_gfx(name),
        };
        GpuDevice {
            vendor: match device.runtime {
                Runtime::Cuda => GpuVendor::Nvidia,
                Runtime::Hip => GpuVendor::Amd,
            },
            vendor_ordinal: device.vendor_ordinal,
            gpu_class,
            compute_units: device.compute_units,
            memory_bytes: device.memory_bytes,
            name: device.name,
            uuid: device.uuid,
            pci_address: device.pci_address,
            runtime_index: device.index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    #[test]
    fn codes_and_words_are_the_contracts() {
        let contract = [
            (1, "nvidia-ampere"),
            (2, "nvidia-ada"),
            (3, "nvidia-hopper"),
            (4, "nvidia-blackwell"),
            (5, "nvidia-blackwellrtx"),
            (6, "nvidia-rubin"),
            (7, "amd-cdna3"),
            (8, "amd-cdna4"),
            (9, "amd-cdna5"),
            (10, "apple-metal7"),
            (11, "apple-metal9"),
            (12, "apple-metal10"),
        ];
        for (class, (code, word)) in GpuClass::ALL.into_iter().zip(contract) {
            assert_eq!((class.code(), class.word()), (code, word));
            assert_eq!(GpuClass::from_code(code), Some(class));
            assert_eq!(GpuClass::parse(word).unwrap(), class);
            let maker = format!("{:?}", class.vendor()).to_lowercase();
            assert_eq!(word.split('-').next(), Some(maker.as_str()));
        }
        assert_eq!(GpuClass::from_code(0), None);
        assert_eq!(GpuClass::from_code(13), None);
        let error = GpuClass::parse("nvidia-volta").unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("\"nvidia-volta\""));
        assert!(error.message().contains("nvidia-ampere, nvidia-ada"));
    }

    #[test]
    fn every_capability_has_the_contracts_class() {
        for (capability, class) in [
            ((0, 0), None),
            ((7, 0), None),
            ((7, 5), None),
            ((7, 99), None),
            ((8, 0), Some(NvidiaAmpere)),
            ((8, 6), Some(NvidiaAmpere)),
            ((8, 7), Some(NvidiaAmpere)),
            ((8, 9), Some(NvidiaAda)),
            ((9, 0), Some(NvidiaHopper)),
            ((10, 0), Some(NvidiaBlackwell)),
            ((10, 3), Some(NvidiaBlackwell)),
            ((10, 7), Some(NvidiaRubin)),
            ((11, 0), Some(NvidiaAmpere)),
            ((12, 0), Some(NvidiaBlackwellRtx)),
            ((12, 1), Some(NvidiaBlackwellRtx)),
            ((13, 0), Some(NvidiaAmpere)),
        ] {
            let (major, minor) = capability;
            assert_eq!(
                GpuClass::of_capability(major, minor),
                class,
                "{capability:?}"
            );
        }
    }

    #[test]
    fn every_gfx_name_has_the_contracts_class() {
        for (name, class) in [
            ("gfx942", Some(AmdCdna3)),
            ("gfx942:sramecc+:xnack-", Some(AmdCdna3)),
            ("gfx950:sramecc+", Some(AmdCdna4)),
            ("gfx1250", Some(AmdCdna5)),
            ("gfx90a", None),
            ("gfx9420", None),
            ("gfx1100", None),
            ("", None),
        ] {
            assert_eq!(GpuClass::of_gfx(name), class, "{name:?}");
        }
    }
}
