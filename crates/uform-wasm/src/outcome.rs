//! What deferred calls bring back, kept until JavaScript asks for it.
//!
//! The engine tells an outcome in the middle of its own work. JavaScript is told after it, so
//! that nothing of its user's runs while the engine does.

use crate::{errors::refusal, model::CompiledModel};
use js_sys::{Array, Float32Array, Uint8Array, Uint32Array};
use std::cell::RefCell;
use std::collections::VecDeque;
use uform::model::{Embeddings, Model};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// What a call brings back.
pub enum Outcome {
    /// Nothing but that it ended.
    Done,
    /// A model that was opened.
    Model(Model),
    /// Vectors.
    Embeddings(Embeddings),
}

impl Outcome {
    fn into_value(self) -> JsValue {
        match self {
            Outcome::Done => JsValue::UNDEFINED,
            Outcome::Model(model) => CompiledModel::new(model).into(),
            Outcome::Embeddings(found) => embeddings_value(found),
        }
    }
}

thread_local! {
    /// By the numbers JavaScript gave the calls, in the order they ended.
    static KEPT: RefCell<VecDeque<(u32, uform::Result<Outcome>)>> = RefCell::default();
}

/// Keeps the outcome of a call.
pub fn keep(ticket: u32, outcome: uform::Result<Outcome>) {
    KEPT.with_borrow_mut(|kept| kept.push_back((ticket, outcome)));
}

/// The next outcome as `[ticket, failure, value]`, of which `failure` is `undefined` when there
/// is none; `undefined` when no outcome is left.
#[wasm_bindgen(js_name = outcomeNext)]
pub fn outcome_next() -> JsValue {
    let Some((ticket, outcome)) = KEPT.with_borrow_mut(VecDeque::pop_front) else {
        return JsValue::UNDEFINED;
    };
    let (failure, value) = match outcome {
        Ok(outcome) => (JsValue::UNDEFINED, outcome.into_value()),
        Err(error) => (refusal(error), JsValue::UNDEFINED),
    };
    Array::of3(&ticket.into(), &failure, &value).into()
}

/// Vectors as `[dimensions, data, tokens, truncated]`, which are copies: memory of the module moves when it
/// grows.
pub fn embeddings_value(found: Embeddings) -> JsValue {
    let parts: [JsValue; 4] = [
        (found.dimensions as f64).into(),
        Float32Array::from(&found.data[..]).into(),
        Uint32Array::from(&found.tokens[..]).into(),
        Uint8Array::from(&found.truncated[..]).into(),
    ];
    parts.iter().collect::<Array>().into()
}
