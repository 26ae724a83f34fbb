//! What a run is, for `describe()`.

use serde::Serialize;

use super::tier::MultimemTier;
use crate::hardware::GpuClass;

/// A run, and this process's place in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshDescription {
    /// GPUs that one process drives.
    pub gpus_per_host_domain: u32,
    /// GPUs that one multicast domain spans.
    pub gpus_per_multimem_domain: u32,
    /// GPUs in the whole run.
    pub gpus_per_colocated_domain: u32,
    /// This process's index.
    pub host_domain_index: u32,
    /// The index in the whole run of this process's first GPU.
    pub first_gpu_index: u32,
    /// How the run reduces.
    #[serde(serialize_with = "code")]
    pub multimem_tier: MultimemTier,
    /// The class of all GPUs of the run; `None`: they are of several.
    pub gpu_class: Option<GpuClass>,
    /// Why the run does not reduce in the switch; `None`: it does.
    pub multimem_obstacle: Option<String>,
    /// By what the members add up; why they cannot, where they cannot.
    pub reduction: String,
    /// What lies in the job's folder of an earlier run that crashed, and how to be rid of it.
    pub leftovers: Option<String>,
}

fn code<S: serde::Serializer>(tier: &MultimemTier, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(*tier as u32)
}
