//! Names to tensors: the numbers of a model's files.
//!
//! [`tensors`] reads one safetensors file, [`weights`] the files of a model together. [`quantized`] is
//! our layout of 8-bit weights. `fingerprint` identifies what was read.

pub(in crate::model) mod fingerprint;
pub mod quantized;
pub mod tensors;
pub mod weights;
