//! What this binary and this machine can do.

use napi_derive::napi;
use uform::hardware::{CpuClass, capabilities, cores::UsableCores};

/// What this binary was built with: comma-separated words.
#[napi(catch_unwind)]
pub fn capabilities_compiled() -> String {
    capabilities::compiled()
}

/// What this machine offers now: comma-separated words.
#[napi(catch_unwind)]
pub fn capabilities_available() -> String {
    capabilities::available()
}

/// The machine as the engine sees it.
#[napi(object, object_from_js = false)]
pub struct HardwareDescription {
    /// The addon's own version.
    pub version: String,
    /// The CPU's class.
    pub cpu_class: String,
    /// Every class that runs here.
    pub cpu_classes: Vec<String>,
    pub cores: Cores,
}

/// The cores this process may use. Absent: there is no such limit.
#[napi(object, object_from_js = false)]
pub struct Cores {
    pub usable: f64,
    pub online: f64,
    pub affinity: Option<f64>,
    pub cpuset: Option<f64>,
    pub quota: Option<f64>,
    /// What `usable` is limited by: `machine`, `affinity`, `cpuset` or `quota`.
    pub limit: String,
}

/// What this machine is, for people who look after it.
#[napi(catch_unwind)]
pub fn hardware_describe() -> HardwareDescription {
    let cores = UsableCores::of_this_process();
    HardwareDescription {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cpu_class: CpuClass::native().word().to_owned(),
        cpu_classes: CpuClass::that_run_here()
            .map(|class| class.word().to_owned())
            .collect(),
        cores: Cores {
            usable: cores.count() as f64,
            online: cores.online as f64,
            affinity: cores.affinity.map(|count| count as f64),
            cpuset: cores.cpuset.map(|count| count as f64),
            quota: cores.quota,
            limit: cores.limit().word().to_owned(),
        },
    }
}
