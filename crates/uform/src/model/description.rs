//! What a model says of itself.

use std::collections::BTreeMap;

use super::fingerprint::Fingerprint;
use super::pooling_mode::Pooling;
use super::{Model, config};
use crate::hardware::CpuClass;
use crate::kernels::Precision;

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
    /// The class that picks the kernels.
    pub cpu_class: CpuClass,
    /// Bytes of weights in memory, as they are packed for the class.
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
            architecture: config::ARCHITECTURE,
            parameters: parts.parameters,
            dimensions: parts.dimensions(),
            token_limit: parts.tokenizer.limit(),
            pooling: settings.pooling,
            normalize: settings.normalize,
            prompts: settings.prompts.named.clone(),
            default_prompt: settings.prompts.default.clone(),
            precision: parts.precision,
            cpu_class: parts.class,
            bytes: self.bytes(),
            fingerprint: parts.fingerprint,
            refused: parts.refused.clone(),
        }
    }
}
