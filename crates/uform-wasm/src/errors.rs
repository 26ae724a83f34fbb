//! The engine's errors as JavaScript errors: the same message, and the status's
//! code in `code`, by which the TypeScript surface picks the class.

use js_sys::{Error, Reflect};
use std::error::Error as _;
use uform::Status;
use wasm_bindgen::JsValue;

/// The result of an exported function.
pub type Result<T> = std::result::Result<T, JsValue>;

/// The engine's refusal, with what caused it as JavaScript's `cause`.
pub fn refusal(error: uform::Error) -> JsValue {
    let refusal = Error::new(error.message());
    set(&refusal, "code", &error.status().code().into());
    if let Some(source) = error.source() {
        refusal.set_cause(&cause(source));
    }
    refusal.into()
}

fn cause(error: &dyn std::error::Error) -> JsValue {
    let cause = Error::new(&error.to_string());
    if let Some(source) = error.source() {
        cause.set_cause(&self::cause(source));
    }
    cause.into()
}

/// What JavaScript threw that the engine had called: the same error, when it is one of ours.
pub fn thrown(failure: JsValue) -> uform::Error {
    let code = Reflect::get(&failure, &"code".into()).ok();
    let code = code.and_then(|code| code.as_string());
    let status = Status::ALL
        .into_iter()
        .find(|status| code.as_deref() == Some(status.code()));
    let message = String::from(Error::from(failure).message());
    uform::Error::new(status.unwrap_or(Status::Io), message)
}

/// A value that does not cross between the languages, which is a defect of ours.
pub fn internal(error: serde_wasm_bindgen::Error) -> JsValue {
    refusal(uform::Error::new(Status::Internal, error.to_string()))
}

/// Sets a property of an object of ours, which takes every property.
fn set(object: &JsValue, name: &str, value: &JsValue) {
    let taken = Reflect::set(object, &name.into(), value);
    debug_assert_eq!(taken, Ok(true));
}
