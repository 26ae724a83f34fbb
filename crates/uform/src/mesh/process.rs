//! Who a process is among the processes of all hosts, and whether it is still there.
//!
//! A number alone does not tell: it is used again after a process ended, and containers each count
//! their own. So a process is its number, its start by the clock of its own host's kernel, and where
//! that number counts: the host, its boot, and the namespace. Only a process of the same place
//! can be looked for; of any other nothing is known but what it writes.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// A process, by what no other process ever has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// The host's name, for people.
    pub host: String,
    /// The boot of the host's kernel; empty where the system does not tell.
    pub boot: String,
    /// Among which processes the number counts; empty where the system does not tell.
    pub namespace: String,
    /// The process's number.
    pub id: u32,
    /// When it started, in ticks since the boot; `None` where the system does not tell.
    pub started: Option<u64>,
}

/// What can be told of a process from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    /// It is one of another place.
    Unknown,
    /// It runs.
    Alive,
    /// It has ended.
    Ended,
}

impl Process {
    /// This one.
    pub fn this() -> Process {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let host = text("/proc/sys/kernel/hostname").trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let id = std::process::id();
        Process {
            host: if host.is_empty() {
                "unknown".to_owned()
            } else {
                host
            },
            boot: text("/proc/sys/kernel/random/boot_id").trim().to_owned(),
            namespace: namespace.to_string_lossy().into_owned(),
            id,
            started: started(id),
        }
    }

    /// Whether both run under one kernel, where a device is one and the same.
    pub(super) fn shares_host(&self, other: &Process) -> bool {
        self.host == other.host && self.boot == other.boot
    }

    /// What can be told of it by `here`, which is this process.
    pub(super) fn life(&self, here: &Process) -> Life {
        let comparable = self.shares_host(here)
            && self.namespace == here.namespace
            && !here.boot.is_empty()
            && !here.namespace.is_empty();
        match (comparable, here.started, self.started) {
            (true, Some(_), Some(start)) if started(self.id) == Some(start) => Life::Alive,
            (true, Some(_), Some(_)) => Life::Ended,
            _ => Life::Unknown,
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {:?}, process {}", self.host, self.id)
    }
}

/// When a process of this namespace started: proc(5), the 22nd field of `stat`. A process that has
/// ended and was not yet waited for counts as ended.
fn started(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold any character.
    let fields = stat.rsplit_once(')')?.1;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    match state {
        "Z" | "X" | "x" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_alive_until_it_ends_and_its_number_alone_is_not_it() {
        let here = Process::this();
        assert_eq!(here.life(&here), Life::Alive);
        let mut other = here.clone();
        other.started = other.started.map(|start| start + 1);
        assert_eq!(other.life(&here), Life::Ended);

        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let theirs = Process {
            id: child.id(),
            started: started(child.id()),
            ..here.clone()
        };
        assert_eq!(theirs.life(&here), Life::Alive);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(theirs.life(&here), Life::Ended);
    }

    #[test]
    fn of_another_place_nothing_is_known() {
        let here = Process::this();
        let elsewhere: [fn(&mut Process); 4] = [
            |process| process.host.push('x'),
            |process| process.boot.push('x'),
            |process| process.namespace.push('x'),
            |process| process.started = None,
        ];
        for change in elsewhere {
            let mut other = here.clone();
            change(&mut other);
            assert_eq!(other.life(&here), Life::Unknown, "{other:?}");
        }
    }
}
