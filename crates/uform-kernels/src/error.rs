//! Every way a call can end.
//!
//! A [`Status`] is what a program branches on; the message is for the person
//! who reads the log, and names the thing, the value and the way out.

use std::{error, fmt};

use crate::quoted::without_middle;

/// The most bytes of a message, and a few. Whatever is quoted in it is bounded where it is quoted; this is for what
/// is not bounded there, such as a path of a megabyte.
const LONGEST_MESSAGE: usize = 2 << 10;

/// What kind of failure an [`Error`] is. The numbers are part of the public
/// contract: the bindings export them as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// An argument is of the wrong type, out of range, unknown, or does not fit another one.
    InvalidArgument = 1,
    /// An immediate call found another call holding or queued on its executor.
    Contended = 2,
    /// One more deferred call would exceed the executor's `deferredLimit`.
    DeferredLimit = 3,
    /// The request is well-formed, but this build, machine or model cannot serve it.
    Unsupported = 4,
    /// Processes of one mesh disagree on something that must match.
    ConfigMismatch = 5,
    /// A wait reached its deadline.
    TimedOut = 6,
    /// A handle was used after it was freed.
    Freed = 7,
    /// Memory, on the host or on a device, could not be had.
    OutOfMemory = 8,
    /// A device failed; its executor stays failed.
    DeviceFault = 9,
    /// A file or folder does not exist.
    NotFound = 10,
    /// A model's files contradict their format, each other, or themselves.
    CorruptModel = 11,
    /// The operating system refused to read or write.
    Io = 12,
    /// The caller gave up on the call: its signal was aborted.
    Aborted = 13,
    /// A defect of this library, caught before it could do harm.
    Internal = 14,
}

impl Status {
    /// Every status, in the order of the numbers.
    pub const ALL: [Status; 14] = [
        Status::InvalidArgument,
        Status::Contended,
        Status::DeferredLimit,
        Status::Unsupported,
        Status::ConfigMismatch,
        Status::TimedOut,
        Status::Freed,
        Status::OutOfMemory,
        Status::DeviceFault,
        Status::NotFound,
        Status::CorruptModel,
        Status::Io,
        Status::Aborted,
        Status::Internal,
    ];

    /// The code a JavaScript error carries, such as `"UFORM_CONTENDED"`.
    pub const fn code(self) -> &'static str {
        match self {
            Status::InvalidArgument => "UFORM_INVALID_ARGUMENT",
            Status::Contended => "UFORM_CONTENDED",
            Status::DeferredLimit => "UFORM_DEFERRED_LIMIT",
            Status::Unsupported => "UFORM_UNSUPPORTED",
            Status::ConfigMismatch => "UFORM_CONFIG_MISMATCH",
            Status::TimedOut => "UFORM_TIMED_OUT",
            Status::Freed => "UFORM_FREED",
            Status::OutOfMemory => "UFORM_OUT_OF_MEMORY",
            Status::DeviceFault => "UFORM_DEVICE_FAULT",
            Status::NotFound => "UFORM_NOT_FOUND",
            Status::CorruptModel => "UFORM_CORRUPT_MODEL",
            Status::Io => "UFORM_IO",
            Status::Aborted => "UFORM_ABORTED",
            Status::Internal => "UFORM_INTERNAL",
        }
    }
}

/// A failed call: its [`Status`], a message for people, and what caused it.
#[derive(Debug)]
pub struct Error {
    status: Status,
    message: String,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

/// The result of anything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the given kind. The message names the thing, the value and the way out; of one that is too
    /// long for a log's line the middle is left out.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error {
            status,
            message: without_middle(message.into(), LONGEST_MESSAGE),
            source: None,
        }
    }

    /// The same error, remembering what caused it.
    pub fn because(mut self, source: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Shorthand for [`Status::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(Status::InvalidArgument, message)
    }

    /// Shorthand for [`Status::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Error::new(Status::Unsupported, message)
    }

    /// Shorthand for [`Status::CorruptModel`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(Status::CorruptModel, message)
    }

    /// The call ended because its caller gave up on it.
    pub fn aborted() -> Self {
        Error::new(Status::Aborted, "the call was aborted by its caller")
    }

    /// What kind of failure this is.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The message, without what caused it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, LONGEST_MESSAGE, Status};

    #[test]
    fn a_message_is_bounded_and_keeps_both_its_ends() {
        let error = Error::invalid(format!("start {} end", "x".repeat(1 << 20)));
        let message = error.message();
        assert!(message.len() < LONGEST_MESSAGE + 64);
        assert!(message.starts_with("start x") && message.ends_with("x end"));
    }

    #[test]
    fn statuses_are_numbered_in_order_and_codes_are_unique() {
        let mut codes: Vec<_> = Status::ALL.iter().map(|status| status.code()).collect();
        for (place, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, place + 1);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Status::ALL.len());
    }
}
