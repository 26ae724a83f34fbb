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
//! | [`failure`] | what can be told of an instance that trapped |
//! | [`call`], [`executor`], [`files`], [`model`], [`hardware`] | the exported functions |
//!
//! The modules of the package are this crate, compiled for several sets of features:
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

/// Which module this is: what `ts/backend/wasm.ts` reads before it instantiates one.
#[unsafe(link_section = "uform")]
#[used]
static MODULE: [u8; NAME.len()] = *NAME;

#[cfg(not(target_feature = "relaxed-simd"))]
const NAME: &[u8; 6] = b"wasm32";
#[cfg(target_feature = "relaxed-simd")]
const NAME: &[u8; 14] = b"wasm32-relaxed";
