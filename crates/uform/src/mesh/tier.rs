//! Whether the switch between the devices adds up, or the devices themselves.
//!
//! The tier that is told is that of the code that runs. Our own kernels read their peers. NCCL has
//! an algorithm that reduces in the switch, NVLS, but chooses anew for every call, by the
//! number of elements, unless `NCCL_ALGO` names no other: only then is it sure. And a device
//! that says it has multicast memory may be in a machine that is not set up for it, so binding such memory
//! is tried. All processes of a run must be able to, else none does.

use std::sync::Arc;

use crate::device::{Device, Runtime, nccl, try_multicast};
use crate::{Result, quoted};

/// How a run reduces. The numbers are part of the public contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MultimemTier {
    /// The switch between the devices, through multicast memory.
    SwitchReduced = 0,
    /// Every member reads its peers.
    PeerRead = 1,
}

impl MultimemTier {
    /// As TypeScript has it.
    pub const fn word(self) -> &'static str {
        match self {
            MultimemTier::SwitchReduced => "switch-reduced",
            MultimemTier::PeerRead => "peer-read",
        }
    }
}

/// The first version of NCCL that reduces in the switch.
const FIRST_WITH_NVLS: u32 = 21_700;

/// How many devices of a host NCCL wants for it.
const LEAST_DEVICES: usize = 3;

/// What keeps this process, one of so many, from reducing in the switch; `None`: nothing. A run is
/// [`SwitchReduced`](MultimemTier::SwitchReduced) if that is what all of its processes say.
pub fn obstacle(devices: &[Arc<Device>], processes: u32) -> Option<String> {
    if processes < 2 {
        return Some("one process adds up by kernels that read their peers".into());
    }
    if let Err(why) = try_multicast(devices) {
        return Some(format!("no multicast memory can be bound: {why}"));
    }
    if devices.len() < LEAST_DEVICES {
        return Some(format!(
            "NCCL reduces in the switch between {LEAST_DEVICES} GPUs of a process or more, and this one \
             has {}",
            devices.len()
        ));
    }
    let variable = |name| std::env::var(name).unwrap_or_default();
    unless_nvls(
        nccl::version(Runtime::Cuda),
        &variable("NCCL_ALGO"),
        &variable("NCCL_NVLS_ENABLE"),
    )
}

/// Why NCCL does not always reduce in the switch.
fn unless_nvls(version: Result<u32>, algorithms: &str, enabled: &str) -> Option<String> {
    match version {
        Err(error) => return Some(error.message().into()),
        Ok(version) if version < FIRST_WITH_NVLS => {
            let (major, minor) = (version / 10_000, version / 100 % 100);
            return Some(format!(
                "NCCL {major}.{minor} does not reduce in the switch: 2.17 is the first that does"
            ));
        }
        Ok(_) => {}
    }
    if enabled.trim() == "0" {
        return Some("NCCL_NVLS_ENABLE is 0".into());
    }
    if !is_nvls_alone(algorithms) {
        return Some(format!(
            "NCCL chooses how it reduces at every call, and NCCL_ALGO is {}: with \
             \"NVLS,NVLSTree\" it is always the switch",
            quoted::text(algorithms)
        ));
    }
    None
}

/// Whether the value of `NCCL_ALGO` leaves nothing but the switch for sums: names, separated by commas,
/// or such lists for each function, as in `allreduce:nvls;broadcast:ring`.
fn is_nvls_alone(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let lists: Vec<&str> = match value.contains(':') {
        true => value
            .split(';')
            .filter_map(|list| list.trim().strip_prefix("allreduce:"))
            .collect(),
        false => vec![&*value],
    };
    !lists.is_empty()
        && lists
            .iter()
            .flat_map(|list| list.split(','))
            .all(|name| matches!(name.trim(), "nvls" | "nvlstree"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn only_what_leaves_nvls_alone_is_the_switch() {
        for alone in [
            "NVLS",
            "nvls,NVLSTree",
            " NVLSTree ",
            "allreduce:nvls",
            "broadcast:ring;allreduce:nvls,nvlstree",
        ] {
            assert!(is_nvls_alone(alone), "{alone}");
        }
        for other in [
            "",
            "Ring",
            "NVLS,Ring",
            "^NVLS",
            "broadcast:nvls",
            "allreduce:tree;broadcast:nvls",
        ] {
            assert!(!is_nvls_alone(other), "{other}");
        }
    }

    #[test]
    fn every_obstacle_is_named() {
        let none = unless_nvls(Ok(22_104), "NVLS", "");
        assert_eq!(none, None);
        for (version, algorithms, enabled, words) in [
            (Err(Error::unsupported("no NCCL")), "NVLS", "", "no NCCL"),
            (Ok(21_602), "NVLS", "", "NCCL 2.16"),
            (Ok(22_104), "NVLS", "0", "NCCL_NVLS_ENABLE"),
            (Ok(22_104), "", "1", "NCCL_ALGO is \"\""),
        ] {
            let obstacle = unless_nvls(version, algorithms, enabled).unwrap();
            assert!(obstacle.contains(words), "{obstacle}");
        }
    }

    #[test]
    fn words_and_numbers_are_the_contracts() {
        let both = [MultimemTier::SwitchReduced, MultimemTier::PeerRead];
        assert_eq!(both.map(|tier| tier as u32), [0, 1]);
        assert_eq!(
            both.map(MultimemTier::word),
            ["switch-reduced", "peer-read"]
        );
    }
}
