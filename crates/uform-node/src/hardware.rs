//! What this binary and this machine can do.

use crate::errors::{Result, internal};
use napi::{Env, bindgen_prelude::Unknown};
use napi_derive::napi;
use uform::hardware::{capabilities, description::HardwareDescription, gpu_devices};

/// What this binary was built with: comma-separated words.
#[napi(catch_unwind)]
pub fn capabilities_compiled() -> String {
    capabilities::compiled()
}

/// What this machine offers now: comma-separated words.
#[napi(catch_unwind)]
pub fn capabilities_available() -> String {
    capabilities::available()
}

/// The machine as the package sees it.
#[napi(catch_unwind)]
pub fn hardware_describe(env: &Env) -> Result<Unknown<'_>> {
    env.to_js_value(&HardwareDescription::here())
        .map_err(internal)
}

/// Every GPU that this process can drive.
#[napi(catch_unwind)]
pub fn hardware_gpu_devices(env: &Env) -> Result<Unknown<'_>> {
    env.to_js_value(&gpu_devices()).map_err(internal)
}
