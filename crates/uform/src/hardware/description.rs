//! The machine as the package sees it, to be shown to people.

use serde::Serialize;

use super::capabilities;
use super::cores::{CoreCount, UsableCores};
use super::cpu::CpuClass;
use super::gpu::{GpuDevice, gpu_devices};
use super::topology::{PciDevice, Topology};

/// What this machine is, and what of it this process may use.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareDescription {
    /// The engine's version.
    pub version: &'static str,
    /// The CPU's own class.
    pub cpu_class: &'static str,
    /// Every class that runs here.
    pub cpu_classes: Vec<&'static str>,
    /// [`capabilities::compiled`].
    pub capabilities_compiled: String,
    /// [`capabilities::available`].
    pub capabilities_available: String,
    /// The numbers of the cores this process may run on, ascending.
    pub usable_cores: Vec<u32>,
    /// How many there are, and what limits them.
    pub cores: CoreCount,
    /// Memory, caches, and the cores near each.
    #[serde(flatten)]
    pub topology: &'static Topology,
    /// Devices and the memory near each.
    pub pci_devices: &'static [PciDevice],
    /// GPUs that this process can drive.
    pub gpu_devices: &'static [GpuDevice],
}

impl HardwareDescription {
    /// This machine, for the calling thread. The first look at its devices takes some
    /// ten milliseconds.
    pub fn here() -> HardwareDescription {
        let cores = UsableCores::of_this_process();
        HardwareDescription {
            version: env!("CARGO_PKG_VERSION"),
            cpu_class: CpuClass::native().word(),
            cpu_classes: CpuClass::that_run_here().map(CpuClass::word).collect(),
            capabilities_compiled: capabilities::compiled(),
            capabilities_available: capabilities::available(),
            usable_cores: cores.cores(),
            cores: cores.counted(),
            topology: Topology::here(),
            pci_devices: PciDevice::here(),
            gpu_devices: gpu_devices(),
        }
    }
}
