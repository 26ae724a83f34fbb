//! A deferred call's handle: how JavaScript gives up on it, and sees how far it is.

use std::sync::Arc;
use uform::executor::Control;
use wasm_bindgen::prelude::wasm_bindgen;

/// What the engine and the caller share about one deferred call.
#[wasm_bindgen]
pub struct CompiledCall(pub(crate) Arc<Control>);

/// The handle for a call about to be submitted.
#[wasm_bindgen(js_name = callCreate)]
pub fn call_create() -> CompiledCall {
    CompiledCall(Arc::new(Control::new()))
}

/// Gives up on the call: it never starts, or stops between two layers.
#[wasm_bindgen(js_name = callCancel)]
pub fn call_cancel(call: &CompiledCall) {
    call.0.cancel();
}

/// How far the call is: done and total, texts when encoding, bytes when loading.
/// The total is 0 until it is known.
#[wasm_bindgen(js_name = callProgress)]
pub fn call_progress(call: &CompiledCall) -> Vec<f64> {
    let (done, total) = call.0.progress();
    vec![done as f64, total as f64]
}
