//! Files to weights, texts to vectors.
//!
//! A model's files come from a [`files::Source`]: a [`folder::Folder`] or bytes in
//! memory. `modules.json` says which steps lead from text to vector ([`modules`]),
//! `config.json` how large the encoder is ([`config`]), and a handful of small
//! files how the model wants to be used ([`settings`], [`prompts`]). The numbers
//! are in safetensors files ([`tensors`], [`weights`]), the vocabulary in
//! `tokenizer.json` ([`tokenizer_file`], [`tokenizer`]). [`parts`] reads all of it
//! in order; what is wrong with a file is said there, by name, before
//! anything is computed.

pub mod config;
pub mod document;
pub mod files;
#[cfg(feature = "native")]
pub mod folder;
pub mod modules;
pub mod nearest;
pub mod parts;
pub mod pooling_mode;
pub mod prompts;
pub mod settings;
pub mod tensors;
pub mod tokenizer;
pub mod tokenizer_file;
pub mod weights;

pub use pooling_mode::Pooling;
