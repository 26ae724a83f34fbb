//! What a model says of itself.

use std::collections::BTreeMap;

use super::Model;
use super::Residency;
use crate::hardware::{CpuClass, GpuClass};
use crate::kernels::Precision;
use crate::model::architecture::bert;
use crate::model::checkpoint::fingerprint::Fingerprint;
use crate::model::settings::pooling_mode::Pooling;

/// What a loaded model is, and how it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The kind of encoder, as `model_type` in `config.json` names it.
    pub architecture: &'static str,
    /// Weights in the files that take part, each counted once.
    pub parameters: u64,
    /// Length of a full vector.
    pub dimensions: usize,
    /// The most tokens of a text that are embedded, special ones included.
    pub token_limit: usize,
    /// How token vectors become one; `None`: the files do not say, and a call has to.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length one unless a call says otherwise.
    pub normalize: bool,
    /// The model's prompts by their names.
    pub prompts: BTreeMap<String, String>,
    /// The name of the prompt that is used unless a call says otherwise.
    pub default_prompt: Option<String>,
    /// What dense layers compute in.
    pub precision: Precision,
    /// Where its weights are.
    pub residency: Residency,
    /// The class that picks the kernels of a model in host memory.
    pub cpu_class: Option<CpuClass>,
    /// The class that picks those of a model on GPUs; `None` there: the devices' own, which differ.
    pub gpu_class: Option<GpuClass>,
    /// Ordinals of the devices that have its weights.
    pub devices: Vec<u32>,
    /// Bytes of weights in memory, as they are packed for the class, on all devices together.
    pub bytes: usize,
    /// Which model this is.
    pub fingerprint: Fingerprint,
    /// What was asked of the system while loading and refused, a sentence each.
    pub refused: Vec<String>,
}

impl Model {
    /// What the model is, and how it computes.
    pub fn describe(&self) -> Description {
        let parts = &self.shared.parts;
        let settings = &parts.settings;
        Description {
            architecture: bert::ARCHITECTURE,
            parameters: parts.parameters,
            dimensions: parts.dimensions(),
            token_limit: parts.tokenizer.limit(),
            pooling: settings.pooling,
            normalize: settings.normalize,
            prompts: settings.prompts.named.clone(),
            default_prompt: settings.prompts.default.clone(),
            precision: parts.precision,
            residency: parts.residency(),
            cpu_class: self.cpu_class(),
            gpu_class: self.gpu_class(),
            devices: self.device_ordinals(),
            bytes: self.bytes(),
            fingerprint: parts.fingerprint,
            refused: parts.refused.clone(),
        }
    }
}
