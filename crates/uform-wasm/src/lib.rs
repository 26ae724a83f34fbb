//! The WebAssembly module: the engine's verbs as JavaScript functions over opaque handles.
//!
//! It converts and delivers, and has no rule of its own: `ts/backend/backend.ts`
//! is the interface it satisfies together with `ts/backend/wasm.ts`, which turns the event
//! loop; the engine decides everything else.
//!
//! | file | what it is about |
//! | --- | --- |
//! | [`outcome`] | what a deferred call brings back, kept until JavaScript asks for it |
//! | [`errors`] | the engine's errors as JavaScript errors |
//! | `random` | seeds for the tokenizer's hashing, on wasm64 |
//! | [`failure`] | what can be told of an instance that trapped |
//! | [`call`], [`executor`], [`files`], [`model`], [`hardware`] | the exported functions |
//!
//! The three modules of the package are this crate, compiled for three sets of features:
//! `cargo xtask wasm` says which.

#![cfg(target_family = "wasm")]

mod call;
mod errors;
mod executor;
mod failure;
mod files;
mod hardware;
mod model;
mod outcome;
#[cfg(target_arch = "wasm64")]
mod random;

/// Which module this is, and of which version: what `ts/modules.ts` reads before it instantiates one.
#[unsafe(link_section = "uform")]
#[used]
static MODULE: [u8; NAME.len()] = *NAME.as_bytes().first_chunk().unwrap();

#[cfg(all(target_arch = "wasm32", not(target_feature = "relaxed-simd")))]
const NAME: &str = concat!("wasm32 ", env!("CARGO_PKG_VERSION"));
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
const NAME: &str = concat!("wasm32-relaxed ", env!("CARGO_PKG_VERSION"));
#[cfg(target_arch = "wasm64")]
const NAME: &str = concat!("wasm64 ", env!("CARGO_PKG_VERSION"));
