//! What a process writes for the others to read: its facts, whom it has seen, and how far it is.
//!
//! Later versions of the library may add fields; those that are here keep their names and meanings, so
//! that processes of different versions can at least tell each other so.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::member::{Member, Nonce, Prepared};
use crate::{Error, Status};

/// A process's record. It is also all there is to the process's state: see
/// [`Protocol`](super::protocol::Protocol).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Of this attempt to join.
    pub nonce: Nonce,
    /// The facts.
    pub member: Member,
    /// Whose records it has read, of whatever run and age. Being in here proves to the one who is
    /// that this process was alive after it.
    pub seen: BTreeSet<Nonce>,
    /// The promise, made once and never another.
    pub agreed: Option<Agreed>,
    /// Why it leaves without having promised.
    pub refused: Option<Refusal>,
}

/// The nonce says whose facts they are.
impl Hash for Record {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.nonce, &self.seen, &self.agreed, &self.refused).hash(state);
    }
}

/// The promise of a process to be part of one run and of no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Agreed {
    /// The run.
    pub run: Run,
    /// What this process has made ready for it.
    pub prepared: Prepared,
}

/// A run: the nonces of its processes, in the order of their indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Run(pub Vec<Nonce>);

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub kind: Kind,
    /// For people; the same in every process.
    pub message: String,
}

/// Nothing depends on the message.
impl Hash for Refusal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

/// What kind of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The processes contradict each other.
    Mismatch,
    /// Somebody waited for long enough.
    TimedOut,
}

impl Refusal {
    pub fn mismatch(message: String) -> Refusal {
        let kind = Kind::Mismatch;
        Refusal { kind, message }
    }

    pub fn timed_out(message: String) -> Refusal {
        let kind = Kind::TimedOut;
        Refusal { kind, message }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let status = match refusal.kind {
            Kind::Mismatch => Status::ConfigMismatch,
            Kind::TimedOut => Status::TimedOut,
        };
        Error::new(status, refusal.message)
    }
}

/// A verdict, and of which run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Decided {
    pub run: Run,
    pub verdict: Verdict,
}

/// What was decided of a run, once and for all its processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// It is on; and, in the order of the indexes, what the processes have made ready. It is said here
    /// because who reads that the run is on need not have read everybody's promise.
    Go(Vec<Prepared>),
    /// It is not.
    Stop(Refusal),
}
