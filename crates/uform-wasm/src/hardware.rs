//! What this module and the machine under it can do.

use crate::errors::{Result, internal};
use serde::Serialize;
use serde_wasm_bindgen::Serializer;
use uform::hardware::{capabilities, description::HardwareDescription};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// What this module was built with: comma-separated words.
#[wasm_bindgen(js_name = capabilitiesCompiled)]
pub fn capabilities_compiled() -> String {
    capabilities::compiled()
}

/// What this machine offers now: comma-separated words.
#[wasm_bindgen(js_name = capabilitiesAvailable)]
pub fn capabilities_available() -> String {
    capabilities::available()
}

/// The machine as the package sees it.
#[wasm_bindgen(js_name = hardwareDescribe)]
pub fn hardware_describe() -> Result<JsValue> {
    described(&HardwareDescription::here())
}

/// A description as a plain object.
pub fn described(description: &impl Serialize) -> Result<JsValue> {
    description
        .serialize(&Serializer::json_compatible())
        .map_err(internal)
}
