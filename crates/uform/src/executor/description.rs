//! An executor, described to people.

use serde::{Serialize, Serializer};

#[cfg(feature = "native")]
use super::DeviceDescription;
use super::Mood;
use crate::hardware::cores::{CoreCount, CoreLimit};
use crate::hardware::topology::Topology;
use crate::placement::Placement;

/// Which kind of executor it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutorKind {
    /// Threads of its own, for models in host memory.
    Ram,
    /// Streams of devices, and threads of its own, for models in the devices' memory.
    Vram,
    /// Threads of a borrowed ForkUnion pool.
    Pool,
    /// The caller, or one thread for deferred calls.
    Inline,
}

impl ExecutorKind {
    /// What to call such an executor in a message.
    pub(crate) fn words(self) -> &'static str {
        match self {
            ExecutorKind::Ram => "one of host threads (Executor.forRam)",
            ExecutorKind::Vram => "one of GPUs (Executor.forVram)",
            ExecutorKind::Pool => "one on a pool of host threads (Executor.onPool)",
            ExecutorKind::Inline => "the inline one, of calls that name no executor",
        }
    }
}

/// What an executor is and does just now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Which kind of executor it is.
    pub kind: ExecutorKind,
    /// How many threads compute a call.
    pub threads: usize,
    /// Ids of the memory domains it was placed in; where it was not: all that this process
    /// may allocate on.
    pub memory_domains: Vec<u32>,
    /// Numbers of the cores its threads may run on, ascending.
    pub cores: Vec<u32>,
    /// What was counted to know how many cores this process may use.
    pub counted: CoreCount,
    /// The class of kernels it is pinned to, or the CPU's own.
    pub cpu_class: &'static str,
    /// How its threads idle: 0 parked, 1 spinning.
    #[serde(serialize_with = "code")]
    pub mood: Mood,
    /// Deferred calls queued or running.
    pub outstanding: usize,
    /// The most of those.
    pub deferred_limit: u64,
    /// Bytes of scratch it keeps in host memory.
    #[serde(serialize_with = "number")]
    pub scratch_bytes: usize,
    /// The devices it drives, in the order they were asked for.
    #[cfg(feature = "native")]
    pub devices: Vec<DeviceDescription>,
    /// What its user may want to know about the options, a sentence each.
    pub remarks: Vec<String>,
    /// What was asked of the system and refused, a sentence each.
    pub refused: Vec<String>,
}

fn code<S: Serializer>(mood: &Mood, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(*mood as u32)
}

/// As a number of JavaScript.
pub(super) fn number<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*bytes as f64)
}

/// The same for one that may be absent.
#[cfg(feature = "native")]
pub(super) fn maybe_number<S: Serializer>(
    bytes: &Option<usize>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => number(bytes, serializer),
        None => serializer.serialize_none(),
    }
}

/// What there is to say about so many threads, busy in a call, with a placement.
pub(super) fn remarks(kind: ExecutorKind, threads: usize, placement: &Placement) -> Vec<String> {
    if kind == ExecutorKind::Pool {
        let owner = "the threads that compute are a pool's, and run where its owner put them: cores \
                     and memory domains are those of the executor's own thread and of the weights \
                     it loads";
        let at_once = placement.usable.count();
        let crowded = (threads > at_once).then(|| {
            format!(
                "a call keeps {threads} threads busy, and {at_once} can run at once: those that wait \
                 spin, and take the time of those that compute; spawn a smaller pool"
            )
        });
        return [owner.to_owned()].into_iter().chain(crowded).collect();
    }
    let far = placement.compute_domains.iter().filter(|domain| domain.far);
    let mut remarks: Vec<_> = far
        .map(|domain| {
            format!(
                "this process may use no core near memory domain {}: its threads run on any core \
                 that is usable",
                domain.memory_domain
            )
        })
        .collect();
    if !placement.memory_domains.is_empty() {
        remarks.extend(Topology::here().problem.clone());
    }
    let at_once = placement.parallelism();
    if threads > at_once {
        remarks.push(format!(
            "{threads} threads are more than can run at once: {}; a call is no faster than with \
             {at_once}",
            reason(placement)
        ));
    }
    remarks
}

/// Why no more threads than that can run at once.
fn reason(placement: &Placement) -> String {
    let (cores, counted) = (placement.cores().len(), placement.usable.counted());
    let online = counted.online;
    match (counted.quota, counted.limit) {
        (Some(quota), _) if (quota as usize) < cores => {
            format!("the control group's quota allows {quota} cores' worth of CPU time")
        }
        _ if !placement.compute_domains.is_empty() => format!(
            "memory domains {:?} carry {cores} cores that this process may use",
            placement.memory_domains
        ),
        (_, CoreLimit::Affinity) => format!("the affinity mask leaves {cores} of {online} cores"),
        (_, CoreLimit::Cpuset) => format!("the cpuset leaves {cores} of {online} cores"),
        _ => format!("this machine has {cores} cores"),
    }
}

#[cfg(test)]
mod tests {
    use super::{ExecutorKind, remarks};
    use crate::hardware::cores::UsableCores;
    use crate::placement::{ComputeDomain, Placement};

    fn placement(affinity: &[u32], cpuset: Option<&[u32]>, quota: Option<f64>) -> Placement {
        Placement::anywhere(UsableCores {
            online: (0..8).collect(),
            affinity: Some(affinity.to_vec()),
            cpuset: cpuset.map(<[u32]>::to_vec),
            quota,
        })
    }

    #[test]
    fn more_threads_than_can_run_are_explained() {
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        let near = |far| Placement {
            memory_domains: vec![1],
            compute_domains: vec![ComputeDomain {
                memory_domain: 1,
                cores: vec![4, 5],
                far,
            }],
            ..placement(&all, None, None)
        };
        for (placement, at_once, why) in [
            (placement(&all, None, None), 8, "this machine has 8 cores"),
            (
                placement(&[3], None, None),
                1,
                "the affinity mask leaves 1 of 8 cores",
            ),
            (
                placement(&[3, 4], Some(&[3, 4]), None),
                2,
                "the cpuset leaves 2 of 8 cores",
            ),
            (
                placement(&all, None, Some(2.5)),
                2,
                "quota allows 2.5 cores' worth",
            ),
            (near(false), 2, "memory domains [1] carry 2 cores"),
            (near(true), 2, "no core near memory domain 1"),
        ] {
            let said = remarks(ExecutorKind::Ram, 64, &placement).join("\n");
            assert!(said.contains(why), "{said}");
            assert!(
                said.contains(&format!("no faster than with {at_once}")),
                "{said}"
            );
            let far = placement
                .compute_domains
                .iter()
                .filter(|domain| domain.far)
                .count();
            assert_eq!(remarks(ExecutorKind::Ram, at_once, &placement).len(), far);
        }
    }
}
