//! What a process has read of the others, and how late it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::member::Nonce;
use super::process::Life;
use super::record::{Record, Run, Verdict};

/// What was last read. Nothing says that all of it was there at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct View {
    /// Every other record there is or was.
    pub others: BTreeMap<Nonce, Sighting>,
    /// The verdict of the run promised.
    pub verdict: Option<Verdict>,
    /// Names of files that look like records and are not.
    pub unreadable: BTreeSet<String>,
    /// The folder, for people.
    pub folder: String,
}

/// A record as it was last read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sighting {
    pub record: Arc<Record>,
    /// What can be told of its process.
    pub life: Life,
    /// Whether it is no longer there: its process has left.
    pub gone: bool,
}

/// How late it is. Once true, each stays so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Clock {
    /// The caller gave up.
    pub cancelled: bool,
    /// The deadline has passed.
    pub expired: bool,
    /// Nobody is waited for any longer to hear of a refusal.
    pub out_of_patience: bool,
}

impl View {
    /// What lies in the folder of processes that do not answer and are not of `run`, and how to
    /// be rid of it.
    pub fn leftovers(&self, own: &Nonce, run: Option<&Run>) -> Option<String> {
        let others = self.others.iter().filter(|(nonce, other)| {
            let answers = other.life != Life::Ended && other.record.seen.contains(own);
            !other.gone && !answers && run.is_none_or(|run| !run.0.contains(nonce))
        });
        let silent = others.map(|(_, other)| {
            let life = match other.life {
                Life::Unknown => "is not known from here to run",
                Life::Alive => "runs, and does not answer",
                Life::Ended => "has ended",
            };
            format!("the record of {}, which {life}", other.record.member)
        });
        let unreadable = self.unreadable.iter();
        let unreadable =
            unreadable.map(|name| format!("{name}, which is no record of this version"));
        let all: Vec<String> = silent.chain(unreadable).collect();
        (!all.is_empty()).then(|| {
            format!(
                "left in {}, and not believed: {}; if no process of this job runs any more, remove \
                 that folder, and start again",
                self.folder,
                all.join(", ")
            )
        })
    }
}
