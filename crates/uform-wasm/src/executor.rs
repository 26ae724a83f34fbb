//! Executors as JavaScript sees them.

use crate::{
    errors::{Result, internal, refusal},
    hardware::described,
    outcome::{self, Outcome},
};
use serde::Deserialize;
use uform::{
    executor::{Executor, Mood},
    hardware::CpuClass,
    placement::RamOptions,
};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// An executor's handle in JavaScript.
#[wasm_bindgen]
pub struct CompiledExecutor(pub(crate) Executor);

/// Where an executor's threads go. Counts are safe integers; absent: the engine's default.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RamConfig {
    memory_domains: Option<Vec<u32>>,
    threads: Option<f64>,
    cpu_class: Option<String>,
    deferred_limit: Option<f64>,
}

/// An executor for models that reside in host memory.
#[wasm_bindgen(js_name = executorForRam)]
pub fn executor_for_ram(config: JsValue) -> Result<CompiledExecutor> {
    let config: RamConfig = serde_wasm_bindgen::from_value(config).map_err(internal)?;
    let options = RamOptions {
        memory_domains: config.memory_domains.unwrap_or_default(),
        threads: config.threads.map(|count| count as u64),
        cpu_class: class(config.cpu_class)?,
        deferred_limit: config.deferred_limit.map(|count| count as u64),
    };
    let executor = Executor::for_ram(&options).map_err(refusal)?;
    Ok(CompiledExecutor(executor))
}

/// The executor of calls that name none.
#[wasm_bindgen(js_name = executorInline)]
pub fn executor_inline() -> CompiledExecutor {
    CompiledExecutor(Executor::inline())
}

/// What the executor is and does just now.
#[wasm_bindgen(js_name = executorDescribe)]
pub fn executor_describe(executor: &CompiledExecutor) -> Result<JsValue> {
    described(&executor.0.describe())
}

/// Runs every call submitted so far, then idles in `mood`: 0 parked, 1 spinning.
#[wasm_bindgen(js_name = executorDrain)]
pub fn executor_drain(executor: &CompiledExecutor, mood: u32) -> Result<()> {
    executor.0.drain(parse_mood(mood)).map_err(refusal)
}

/// As the event loop turns: the outcome of `ticket` is there when it is so.
#[wasm_bindgen(js_name = executorDrainDeferred)]
pub fn executor_drain_deferred(executor: &CompiledExecutor, mood: u32, ticket: u32) {
    let done = move |ended: uform::Result<()>| outcome::keep(ticket, ended.map(|()| Outcome::Done));
    executor.0.drain_deferred(parse_mood(mood), done);
}

/// Runs every deferred call and releases the scratch. Again: nothing.
#[wasm_bindgen(js_name = executorFree)]
pub fn executor_free(executor: &CompiledExecutor) {
    executor.0.free();
}

/// A step of the deferred call whose turn it is; whether there was one.
#[wasm_bindgen(js_name = executorTurn)]
pub fn executor_turn(executor: &CompiledExecutor) -> bool {
    executor.0.turn()
}

fn parse_mood(mood: u32) -> Mood {
    match mood {
        1 => Mood::Spinning,
        _ => Mood::Parked,
    }
}

/// A class by its word.
pub fn class(word: Option<String>) -> Result<Option<CpuClass>> {
    word.map(|word| CpuClass::parse(&word).map_err(refusal))
        .transpose()
}
