//! The Node addon: the engine's verbs as JavaScript functions over opaque handles.
//!
//! It converts and delivers, and has no rule of its own: `ts/backend/backend.ts`
//! is the interface it satisfies, the engine decides everything else. A handle is
//! a Node-API external, which structured cloning refuses, so none leaves its environment.
//!
//! | file | what it is about |
//! | --- | --- |
//! | [`environment`] | what one environment (main thread or worker) owns, and its end |
//! | [`channel`] | how a deferred call's outcome travels back to the JS thread |
//! | [`outcome`] | what a call brings back, as JavaScript values |
//! | [`arrays`] | vectors of numbers as typed arrays, copied only where that is cheaper |
//! | [`errors`] | the engine's errors as JavaScript errors |
//! | [`call`], [`executor`], [`pool`], [`files`], [`mesh`], [`model`], [`embeddings`], [`hardware`] | the exported functions |
//!
//! Nothing here is process-wide and mutable: an environment can come, fail, and go
//! without another one noticing.

// A test build registers no function, so nothing in it is reached; see Cargo.toml.
#![cfg_attr(test, allow(dead_code))]

mod arrays;
mod call;
mod channel;
mod embeddings;
mod environment;
mod errors;
mod executor;
mod files;
mod hardware;
mod mesh;
mod model;
mod outcome;
mod pool;
mod quantize;

use napi::{Env, bindgen_prelude::Object};
use napi_derive::napi;

/// Runs once for every environment that loads the addon.
#[napi(module_exports)]
pub fn register(_exports: Object, env: Env) -> napi::Result<()> {
    // A caught panic becomes an error with its text, and nothing is printed. The hook is
    // that of the standard library linked into this addon: no other code has it.
    std::panic::set_hook(Box::new(|_| {}));
    environment::Environment::open(env)
}
