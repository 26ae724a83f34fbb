//! What goes wrong, read from `FAKE_NCCL_FAULT`.

use std::sync::LazyLock;

/// It. Numbers count a communicator's collectives from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Communicators are never ready.
    InitHang,
    /// A collective ends in an error, and does not end before it is aborted.
    AsyncError(u64),
    /// The process is killed in the midst of a collective.
    Killed(u64),
}

/// What goes wrong in this process.
pub fn fault() -> Option<Fault> {
    static FAULT: LazyLock<Option<Fault>> = LazyLock::new(|| {
        let value = std::env::var("FAKE_NCCL_FAULT").unwrap_or_default();
        parse(&value).unwrap_or_else(|| {
            // A test that was misspelled must not pass for one.
            eprintln!("fake-gpu: FAKE_NCCL_FAULT: {value:?} is no fault that can be had");
            std::process::abort()
        })
    });
    *FAULT
}

/// `None`: it is not understood.
fn parse(value: &str) -> Option<Option<Fault>> {
    Some(match value.split_once('@') {
        None if value.is_empty() => None,
        None if value == "init-hang" => Some(Fault::InitHang),
        Some(("async-error", when)) => Some(Fault::AsyncError(when.parse().ok()?)),
        Some(("killed", when)) => Some(Fault::Killed(when.parse().ok()?)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_anything_else_is_refused() {
        assert_eq!(parse(""), Some(None));
        assert_eq!(parse("init-hang"), Some(Some(Fault::InitHang)));
        assert_eq!(parse("async-error@2"), Some(Some(Fault::AsyncError(2))));
        assert_eq!(parse("killed@3"), Some(Some(Fault::Killed(3))));
        for wrong in ["init-hang@1", "async-error", "killed@x", "fire"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
