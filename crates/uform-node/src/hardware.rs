//! What this binary and this machine can do.

use napi_derive::napi;
use uform::hardware::capabilities;

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
