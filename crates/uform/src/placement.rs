//! Where the caller wants threads and bytes: options as they were given, and the
//! [`Placement`] they come to on a machine.
//!
//! A *memory domain* is memory with a number of the system's; the cores near it that
//! this process may use are its *compute domain*. Naming memory domains says three things at
//! once: how many threads there are when nothing else says it, on which cores they run, and where
//! their memory lies. Naming none leaves all of it to the system.
//!
//! Counts are as their caller gives them, in 64 bits also where addresses have 32: one that is too large is refused as
//! what it is.

#[cfg(feature = "native")]
use crate::device::BorrowedStream;
use crate::hardware::CpuClass;
#[cfg(feature = "native")]
use crate::hardware::GpuClass;
use crate::hardware::cores::UsableCores;
use crate::hardware::topology::Topology;
use crate::{Error, Result, quoted};

/// How many deferred calls may be outstanding on an executor when nothing else was said.
pub const DEFAULT_DEFERRED_LIMIT: u64 = 1024;

/// The most host threads one executor takes.
pub const MOST_THREADS: usize = 1024;

/// Options of an executor for models that reside in host memory. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct RamOptions {
    /// Ids of the memory domains to run near and compute in; empty: absent, every one this
    /// process may allocate on, with threads and memory wherever the system puts them.
    pub memory_domains: Vec<u32>,
    /// How many threads; absent: 7/8, to the nearest whole number, of the cores that the memory domains carry and this
    /// process may use, at least one.
    pub threads: Option<u64>,
    /// The kernels' class; absent: the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// The most deferred calls outstanding; absent: [`DEFAULT_DEFERRED_LIMIT`].
    pub deferred_limit: Option<u64>,
}

/// Options of an executor on a borrowed pool. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// Ids of the memory domains for what is not the pool's: the executor's own thread, and the
    /// weights it loads. Empty: wherever the system puts them.
    pub memory_domains: Vec<u32>,
    /// The kernels' class; absent: the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// The most deferred calls outstanding; absent: [`DEFAULT_DEFERRED_LIMIT`].
    pub deferred_limit: Option<u64>,
}

/// Options of a pool to be shared. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct ThreadPoolOptions {
    /// Ids of the memory domains whose cores, together, the threads run on and whose memory they
    /// take. Empty: wherever the system puts them.
    pub memory_domains: Vec<u32>,
    /// How many threads; absent: 7/8, to the nearest whole number, of the cores those domains carry that this process may
    /// use, at least one.
    pub threads: Option<u64>,
    /// What its threads are called, 1 to 15 bytes; absent: `uform-pool`.
    pub name: Option<String>,
}

/// Options of an executor for models that reside in the memory of GPUs. `None` is "absent".
#[cfg(feature = "native")]
#[derive(Clone, Debug, Default)]
pub struct VramOptions {
    /// Ordinals of [`gpu_devices`](crate::hardware::gpu_devices). Empty: absent, one free device: one that
    /// has not faulted in this process, then one that this process does not drive yet, then the one with most
    /// free memory by the vendor's management library where there is one, then the first.
    pub devices: Vec<u32>,
    /// The class whose kernels run on all of them; absent: each device's own.
    pub gpu_class: Option<GpuClass>,
    /// Ids of the memory domains of its host threads, which tokenize; as [`RamOptions::memory_domains`].
    pub memory_domains: Vec<u32>,
    /// The class of its host threads' kernels; absent: the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// Streams to borrow, one a device in the order of `devices`; `None`: one of its own. Empty: absent, all
    /// of its own.
    pub streams: Vec<Option<BorrowedStream>>,
    /// The most bytes of scratch on each device; absent: as many as batches ask for.
    pub scratch_limit: Option<usize>,
    /// The most deferred calls outstanding; absent: [`DEFAULT_DEFERRED_LIMIT`].
    pub deferred_limit: Option<u64>,
}

/// Where an executor's threads go, and their memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The memory domains that were asked for, in that order; empty: none was.
    pub memory_domains: Vec<u32>,
    /// Their cores are shared out among the threads; empty: wherever the system puts them.
    pub compute_domains: Vec<ComputeDomain>,
    /// What this process may use, as it was when the placement was found.
    pub usable: UsableCores,
}

/// A memory domain and the cores of the threads that compute in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeDomain {
    /// The system's number.
    pub memory_domain: u32,
    /// The system's numbers, ascending; never none.
    pub cores: Vec<u32>,
    /// Whether they are merely the cores there are: none near the memory is usable.
    pub far: bool,
}

impl Placement {
    /// The placement that memory domains stand for on this machine, for the calling thread.
    ///
    /// # Errors
    /// Those of [`check_domains`].
    pub fn here(memory_domains: &[u32]) -> Result<Placement> {
        let usable = UsableCores::of_this_process();
        if memory_domains.is_empty() {
            return Ok(Placement::anywhere(usable));
        }
        Placement::on(memory_domains, Topology::here(), usable)
    }

    /// Any core that is usable, any memory.
    pub fn anywhere(usable: UsableCores) -> Placement {
        Placement {
            memory_domains: Vec::new(),
            compute_domains: Vec::new(),
            usable,
        }
    }

    /// The placement on a machine.
    ///
    /// Domains may have cores in common: memory without cores of its own shares those nearest to
    /// it. The first in the list has them, and a domain that is left without gets no
    /// threads. When none has any, be it that this process may run near none of them, their
    /// threads go wherever this process may run.
    fn on(memory_domains: &[u32], topology: &Topology, usable: UsableCores) -> Result<Placement> {
        check_domains(memory_domains, topology)?;
        let mut left = usable.cores();
        let mut compute_domains = Vec::new();
        for domain in memory_domains
            .iter()
            .filter_map(|id| topology.memory_domain(*id))
        {
            let (cores, others): (Vec<_>, Vec<_>) =
                left.iter().partition(|core| domain.cores.contains(core));
            left = others;
            if !cores.is_empty() {
                compute_domains.push(ComputeDomain {
                    memory_domain: domain.id,
                    cores,
                    far: false,
                });
            }
        }
        if compute_domains.is_empty() && !left.is_empty() {
            let far = memory_domains.iter().map(|id| ComputeDomain {
                memory_domain: *id,
                cores: left.clone(),
                far: true,
            });
            compute_domains.extend(far);
        }
        Ok(Placement {
            memory_domains: memory_domains.to_vec(),
            compute_domains,
            usable,
        })
    }

    /// The cores threads may run on, ascending.
    pub fn cores(&self) -> Vec<u32> {
        if self.compute_domains.is_empty() {
            return self.usable.cores();
        }
        let domains = self.compute_domains.iter();
        let mut cores: Vec<u32> = domains.flat_map(|domain| &domain.cores).copied().collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// How many threads can run there at once, at least one.
    pub fn parallelism(&self) -> usize {
        self.usable.within(&self.cores())
    }

    /// Where the thread of a lane goes: domains get lanes in proportion to their cores,
    /// neighbours together. `None`: wherever the system puts it.
    pub fn of_lane(&self, lane: usize, lanes: usize) -> Option<&ComputeDomain> {
        let all: usize = self
            .compute_domains
            .iter()
            .map(|domain| domain.cores.len())
            .sum();
        let mut core = lane * all / lanes.max(1);
        self.compute_domains.iter().find(|domain| {
            let here = core < domain.cores.len();
            core = core.saturating_sub(domain.cores.len());
            here
        })
    }
}

/// Whether ids are those of memory domains this process may allocate on, each named once.
///
/// # Errors
/// [`InvalidArgument`](crate::Status::InvalidArgument) naming `memoryDomains`, the id and the ids
/// that would be accepted; [`Unsupported`](crate::Status::Unsupported) where the system does not tell.
pub fn check_domains(ids: &[u32], topology: &Topology) -> Result<()> {
    if let Some(problem) = &topology.problem
        && topology.memory_domains.is_empty()
        && !ids.is_empty()
    {
        return Err(Error::unsupported(format!(
            "`memoryDomains` is {} and the memory domains of this machine are not known: \
             {problem}; leave it out",
            quoted::list(ids)
        )));
    }
    for (at, id) in ids.iter().enumerate() {
        let wrong = match topology.memory_domain(*id) {
            _ if ids[..at].contains(id) => format!("{id} is there twice"),
            None => format!("this machine has no memory domain {id}"),
            Some(domain) if !domain.allowed => {
                format!("this process may not allocate on memory domain {id}")
            }
            Some(_) => continue,
        };
        let accepted: Vec<_> = topology
            .allowed_domains()
            .map(|id| id.to_string())
            .collect();
        return Err(Error::invalid(format!(
            "`memoryDomains` is {}: {wrong}; accepted, each once: {}",
            quoted::list(ids),
            accepted.join(", ")
        )));
    }
    Ok(())
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::Placement;
    use crate::Status;
    use crate::hardware::cores::UsableCores;
    use crate::hardware::topology::Topology;
    use crate::hardware::topology::machines::{CARD, CONTAINER, HYBRID, exported, synthetic};

    fn usable(online: u32, affinity: &[u32], quota: Option<f64>) -> UsableCores {
        UsableCores {
            online: (0..online).collect(),
            affinity: Some(affinity.to_vec()),
            cpuset: None,
            quota,
        }
    }

    /// A machine, what this process may use of it, the domains asked for, how many lanes there are,
    /// and what must come of it: the cores, how many threads run at once, and each
    /// lane's domain.
    struct Case {
        name: &'static str,
        machine: Topology,
        usable: UsableCores,
        domains: &'static [u32],
        cores: &'static [u32],
        parallelism: usize,
        lanes: &'static [u32],
    }

    #[test]
    fn lanes_go_where_the_cores_are() {
        let all16: Vec<u32> = (0..16).collect();
        let two_sockets = || synthetic("pack:2 [numa] core:4 pu:2");
        // Machine-wide memory (node 4), and a pair of kinds on each package (0 and 1, 2 and 3).
        let kinds = || synthetic("[numa] pack:2 [numa] [numa] core:4 pu:1");
        let cases = [
            Case {
                name: "one socket of two",
                machine: two_sockets(),
                usable: usable(16, &all16, None),
                domains: &[1],
                cores: &[8, 9, 10, 11, 12, 13, 14, 15],
                parallelism: 8,
                lanes: &[1; 7],
            },
            Case {
                name: "both sockets, and most cores of one taken away",
                machine: two_sockets(),
                usable: usable(16, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None),
                domains: &[0, 1],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
                parallelism: 10,
                lanes: &[0, 0, 0, 0, 1],
            },
            Case {
                name: "in the order asked for",
                machine: two_sockets(),
                usable: usable(16, &all16, None),
                domains: &[1, 0],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
                parallelism: 16,
                lanes: &[1, 1, 0, 0],
            },
            Case {
                name: "a quota",
                machine: two_sockets(),
                usable: usable(16, &all16, Some(2.5)),
                domains: &[0],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7],
                parallelism: 2,
                lanes: &[0, 0],
            },
            Case {
                name: "more lanes than cores",
                machine: two_sockets(),
                usable: usable(16, &[0, 8], None),
                domains: &[0, 1],
                cores: &[0, 8],
                parallelism: 2,
                lanes: &[0, 0, 0, 1, 1],
            },
            Case {
                name: "fewer lanes than domains",
                machine: synthetic("node:8 core:2 pu:1"),
                usable: usable(16, &all16, None),
                domains: &[0, 1, 2, 3, 4, 5, 6, 7],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
                parallelism: 16,
                lanes: &[0, 4],
            },
            Case {
                name: "memory beside a package's own, alone: the package's cores",
                machine: kinds(),
                usable: usable(8, &all16, None),
                domains: &[3],
                cores: &[4, 5, 6, 7],
                parallelism: 4,
                lanes: &[3, 3, 3],
            },
            Case {
                name: "memory beside a package's own, after it: no threads",
                machine: kinds(),
                usable: usable(8, &all16, None),
                domains: &[0, 1],
                cores: &[0, 1, 2, 3],
                parallelism: 4,
                lanes: &[0, 0],
            },
            Case {
                name: "memory of the whole machine gets the cores that are left",
                machine: kinds(),
                usable: usable(8, &all16, None),
                domains: &[2, 4],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7],
                parallelism: 8,
                lanes: &[2, 2, 4, 4],
            },
            Case {
                name: "a memory card",
                machine: exported(CARD),
                usable: usable(4, &all16, None),
                domains: &[2],
                cores: &[0, 1, 2, 3],
                parallelism: 4,
                lanes: &[2, 2, 2],
            },
            Case {
                name: "no core near it is usable",
                machine: two_sockets(),
                usable: usable(16, &[1, 2], None),
                domains: &[1],
                cores: &[1, 2],
                parallelism: 2,
                lanes: &[1],
            },
            Case {
                name: "hybrid cores count alike",
                machine: exported(HYBRID),
                usable: usable(8, &all16, None),
                domains: &[0],
                cores: &[0, 1, 2, 3, 4, 5, 6, 7],
                parallelism: 8,
                lanes: &[0; 7],
            },
            Case {
                name: "a container",
                machine: exported(CONTAINER),
                usable: usable(8, &[4, 5], None),
                domains: &[1],
                cores: &[4, 5],
                parallelism: 2,
                lanes: &[1],
            },
            Case {
                name: "a container that says nothing",
                machine: exported(CONTAINER),
                usable: usable(8, &[4, 5], None),
                domains: &[],
                cores: &[4, 5],
                parallelism: 2,
                lanes: &[],
            },
        ];
        for case in cases {
            let name = case.name;
            let placement = Placement::on(case.domains, &case.machine, case.usable).unwrap();
            assert_eq!(placement.cores(), case.cores, "{name}");
            assert_eq!(placement.parallelism(), case.parallelism, "{name}");
            let count = case.lanes.len();
            let lanes: Vec<_> = (0..count)
                .filter_map(|lane| placement.of_lane(lane, count))
                .map(|domain| domain.memory_domain)
                .collect();
            assert_eq!(lanes, case.lanes, "{name}");
            assert_eq!(
                placement.compute_domains.iter().any(|domain| domain.far),
                name == "no core near it is usable"
            );
        }
    }

    #[test]
    fn ids_that_are_not_there_are_named_with_those_that_are() {
        let machines = [
            (synthetic("pack:2 [numa] core:1 pu:1"), "0, 1"),
            (exported(CARD), "0, 2"),
            (exported(CONTAINER), "1"),
        ];
        for (machine, accepted) in machines {
            for (ids, wrong) in [
                (&[7][..], "no memory domain 7"),
                (&[u32::MAX], "no memory domain 4294967295"),
                (&[1, 1], "twice"),
                (&[2, 2], "twice"),
                (&[0, 1, 2], ""),
            ] {
                let outcome = Placement::on(ids, &machine, usable(8, &[0, 4], None));
                let error = outcome.unwrap_err();
                let message = error.message();
                assert_eq!(error.status(), Status::InvalidArgument);
                assert!(
                    message.contains(&format!("`memoryDomains` is {ids:?}")),
                    "{message}"
                );
                assert!(
                    message.ends_with(&format!("each once: {accepted}")),
                    "{message}"
                );
                // Which of several is named first differs from machine to machine.
                let named = message.contains(wrong) || message.contains("may not allocate");
                assert!(named || ids.len() == 2, "{message}");
            }
        }
        let unknown = Topology {
            memory_domains: Vec::new(),
            problem: Some("it is dark".into()),
            ..synthetic("core:1 pu:1")
        };
        let error = Placement::on(&[0], &unknown, usable(1, &[0], None)).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported);
        assert!(error.message().contains("it is dark"));
    }
}
