//! The engine's errors as JavaScript errors: the same message, and the status's
//! code in `code`, by which the TypeScript surface picks the class.

use std::error::Error as _;
use uform::Status;

/// The `code` of a JavaScript error.
pub struct Code(Status);

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        self.0.code()
    }
}

impl From<napi::Status> for Code {
    /// Node-API refuses only what this library should not have asked.
    fn from(_: napi::Status) -> Self {
        Code(Status::Internal)
    }
}

/// The result of an exported function.
pub type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// The engine's refusal, with what caused it as JavaScript's `cause`.
pub fn refusal(error: uform::Error) -> napi::Error<Code> {
    let mut refusal = napi::Error::new(Code(error.status()), error.message());
    if let Some(source) = error.source() {
        refusal.set_cause(cause(source));
    }
    refusal
}

fn cause(error: &dyn std::error::Error) -> napi::Error {
    let mut cause = napi::Error::from_reason(error.to_string());
    if let Some(source) = error.source() {
        cause.set_cause(self::cause(source));
    }
    cause
}

/// A failure of Node-API itself.
pub fn internal(error: napi::Error) -> napi::Error<Code> {
    napi::Error::new(Code(Status::Internal), error.reason.to_string())
}
