//! A deferred call's handle: how JavaScript gives up on it, and sees how far it is.

use napi::bindgen_prelude::External;
use napi_derive::napi;
use std::sync::Arc;
use uform::executor::Control;

/// What the engine and the caller share about one deferred call.
pub type CompiledCall = External<Arc<Control>>;

/// The handle for a call about to be submitted.
#[napi(catch_unwind)]
pub fn call_create() -> CompiledCall {
    External::new(Arc::new(Control::new()))
}

/// What the engine shares of a call; without a handle it cannot be cancelled.
pub fn control(call: Option<&CompiledCall>) -> Arc<Control> {
    call.map_or_else(|| Arc::new(Control::new()), |call| Arc::clone(call))
}

/// Gives up on the call: it never starts, or stops between two layers.
#[napi(catch_unwind)]
pub fn call_cancel(call: &CompiledCall) {
    call.cancel();
}

/// How far the call is: done and total, texts when encoding, bytes when loading.
/// The total is 0 until it is known.
#[napi(catch_unwind)]
pub fn call_progress(call: &CompiledCall) -> Vec<f64> {
    let (done, total) = call.progress();
    vec![done as f64, total as f64]
}
