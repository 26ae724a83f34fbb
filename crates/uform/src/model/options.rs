//! What a caller may ask for: options as given, where `None` means "absent".

use super::Pooling;
use crate::hardware::CpuClass;
use crate::kernels::Precision;

/// Options of loading a model. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Ids of the memory domains the weights lie in, by turns where there are several; empty:
    /// absent, those of the executor that loads, else wherever the system puts them.
    pub memory_domains: Vec<u32>,
    /// The kernels' class; absent: the executor's where it is pinned, else the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// What the encoder's dense layers multiply in; absent: [`Precision::auto`] of the class.
    pub precision: Option<Precision>,
}

/// Options of encoding text. `None` is "what the model's files say".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodeOptions {
    /// How token vectors become one vector.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length one.
    pub normalize: Option<bool>,
    /// How many leading dimensions to keep (Matryoshka), cut before normalising; absent: all.
    pub dimensions: Option<u64>,
    /// Name of a prompt in the model's files to put before each text.
    pub prompt: Option<String>,
    /// A prompt to put before each text. Not together with `prompt`.
    pub prompt_text: Option<String>,
    /// What happens to a text over the model's token limit.
    pub truncate: Truncate,
}

/// What happens to a text over the model's token limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncate {
    /// It is cut, and `truncated` says so.
    #[default]
    Cut,
    /// The call fails with [`InvalidArgument`](crate::Status::InvalidArgument).
    Refuse,
}
