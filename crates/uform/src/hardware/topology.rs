//! Which cores are near which memory.
//!
//! A *memory domain* (NUMA node) is memory some cores reach sooner than others do. Beside
//! the ordinary kind there are domains without cores of their own: high-bandwidth memory
//! beside a package's ordinary memory, or memory on an expansion card. hwloc says which
//! cores are nearest to those, too, so here every domain has cores unless the system tells nothing.
//!
//! [`Topology`] is read out of hwloc once a process, when somebody first asks, which takes about
//! a millisecond and leaves the affinity of the calling thread alone. It tells what the machine
//! has; what of it this process may use just now is [`UsableCores`](super::cores::UsableCores).
//! [`PciDevice`]s are read apart, because looking at the bus takes many times as long.

use std::sync::OnceLock;

use serde::{Serialize, Serializer};

/// What this machine consists of. Numbers are the system's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Ascending by id; empty when the machine could not be read.
    pub memory_domains: Vec<MemoryDomain>,
    /// Second-level caches and up, each level in the order of its cores.
    pub caches: Vec<Cache>,
    /// How many physical cores there are, whatever each counts for the scheduler.
    pub physical_cores: usize,
    /// Why the machine could not be read, or that what is here is not it; `None`: all is well.
    pub problem: Option<String>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryDomain {
    /// The system's number, as in `/sys/devices/system/node/node0`.
    pub id: u32,
    /// How much memory it has.
    #[serde(serialize_with = "number")]
    pub bytes: u64,
    /// The cores nearest to it, ascending; several domains may share them.
    pub cores: Vec<u32>,
    /// Whether this process may allocate there (its cpuset's memory nodes).
    pub allowed: bool,
}

/// A cache above the first level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cache {
    /// 2, 3 …
    pub level: u32,
    /// How much it holds.
    #[serde(serialize_with = "number")]
    pub bytes: u64,
    /// The cores that share it, ascending.
    pub cores: Vec<u32>,
}

/// A device on the PCI bus that hwloc counts as important: GPUs, network, storage.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PciDevice {
    /// Domain, bus, device and function, as in `0000:3b:00.0`.
    pub address: String,
    /// The memory domains near it, ascending.
    pub memory_domains: Vec<u32>,
}

/// As a number of JavaScript, which is a double: integers are exact up to 2^53.
pub(super) fn number<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*bytes as f64)
}

impl Topology {
    /// The machine this process runs on.
    pub fn here() -> &'static Topology {
        static HERE: OnceLock<Topology> = OnceLock::new();
        HERE.get_or_init(|| read::here().unwrap_or_else(Topology::unknown))
    }

    /// The domain of an id.
    pub fn memory_domain(&self, id: u32) -> Option<&MemoryDomain> {
        self.memory_domains.iter().find(|domain| domain.id == id)
    }

    /// The ids of the domains this process may allocate on.
    pub fn allowed_domains(&self) -> impl Iterator<Item = u32> {
        let allowed = self.memory_domains.iter().filter(|domain| domain.allowed);
        allowed.map(|domain| domain.id)
    }

    fn unknown(problem: String) -> Topology {
        Topology {
            memory_domains: Vec::new(),
            caches: Vec::new(),
            physical_cores: 0,
            problem: Some(problem),
        }
    }
}

impl PciDevice {
    /// Those of this machine, ascending by address; none where the bus cannot be read.
    pub fn here() -> &'static [PciDevice] {
        static HERE: OnceLock<Vec<PciDevice>> = OnceLock::new();
        HERE.get_or_init(read::pci_devices_here)
    }
}

/// One domain and one core: all a program without an operating system sees.
#[cfg(not(feature = "native"))]
mod read {
    use super::{MemoryDomain, PciDevice, Topology};

    pub(super) fn pci_devices_here() -> Vec<PciDevice> {
        Vec::new()
    }

    pub(super) fn here() -> Result<Topology, String> {
        Ok(Topology {
            memory_domains: vec![MemoryDomain {
                id: 0,
                bytes: 0,
                cores: vec![0],
                allowed: true,
            }],
            caches: Vec::new(),
            physical_cores: 1,
            problem: None,
        })
    }
}

/// The only place that knows hwloc.
#[cfg(feature = "native")]
mod read {
    use std::fmt::Display;

    use hwlocality::Topology as Hwloc;
    use hwlocality::bitmap::SpecializedBitmapRef;
    use hwlocality::object::TopologyObject;
    use hwlocality::object::attributes::ObjectAttributes;
    use hwlocality::object::types::ObjectType;
    use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};

    use super::{Cache, MemoryDomain, PciDevice, Topology};

    /// What hwloc's variables do, which its users may rely on: so they are heeded, and it is said.
    const TOLD: &str = "memory domains and caches are not this machine's, but those that a variable of hwloc's in \
        the environment tells (HWLOC_SYNTHETIC, HWLOC_XMLFILE or HWLOC_FSROOT): unset it, or set \
        HWLOC_THISSYSTEM=1 if it tells of this machine";

    /// This machine, or the sentence that says why not.
    pub(super) fn here() -> Result<Topology, String> {
        let machine = load(Hwloc::builder(), TypeFilter::KeepNone)?;
        Ok(Topology {
            problem: (!machine.is_this_system()).then(|| TOLD.to_owned()),
            ..of(&machine)
        })
    }

    pub(super) fn pci_devices_here() -> Vec<PciDevice> {
        pci_devices(Hwloc::builder()).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn topology(builder: TopologyBuilder) -> Result<Topology, String> {
        load(builder, TypeFilter::KeepNone).map(|machine| of(&machine))
    }

    pub(super) fn pci_devices(builder: TopologyBuilder) -> Result<Vec<PciDevice>, String> {
        let machine = load(builder, TypeFilter::KeepImportant)?;
        let mut devices: Vec<_> = machine.pci_devices().filter_map(pci_device).collect();
        devices.sort_by(|one, other| one.address.cmp(&other.address));
        Ok(devices)
    }

    /// The machine that the builder finds, reservations included: what a process may
    /// not use is told by marks rather than by absence.
    fn load(builder: TopologyBuilder, devices: TypeFilter) -> Result<Hwloc, String> {
        let builder = builder.with_flags(BuildFlags::INCLUDE_DISALLOWED);
        let builder = builder.map_err(why)?.with_io_type_filter(devices);
        builder.map_err(why)?.build().map_err(why)
    }

    fn why(error: impl Display) -> String {
        format!("hwloc could not read this machine: {error}")
    }

    fn of(machine: &Hwloc) -> Topology {
        let allowed = ids(Some(machine.allowed_nodeset()));
        let mut memory_domains: Vec<_> = machine
            .objects_with_type(ObjectType::NUMANode)
            .filter_map(|node| memory_domain(node, &allowed))
            .collect();
        memory_domains.sort_by_key(|domain| domain.id);
        let levels = [
            ObjectType::L2Cache,
            ObjectType::L3Cache,
            ObjectType::L4Cache,
        ];
        let caches = levels
            .into_iter()
            .flat_map(|level| machine.objects_with_type(level))
            .filter_map(cache)
            .collect();
        Topology {
            memory_domains,
            caches,
            physical_cores: machine.objects_with_type(ObjectType::Core).len(),
            problem: None,
        }
    }

    fn memory_domain(node: &TopologyObject, allowed: &[u32]) -> Option<MemoryDomain> {
        let id = u32::try_from(node.os_index()?).ok()?;
        Some(MemoryDomain {
            id,
            bytes: node.total_memory(),
            cores: ids(node.cpuset()),
            allowed: allowed.contains(&id),
        })
    }

    fn cache(object: &TopologyObject) -> Option<Cache> {
        let Some(ObjectAttributes::Cache(cache)) = object.attributes() else {
            return None;
        };
        Some(Cache {
            level: u32::try_from(cache.depth()).ok()?,
            bytes: cache.size().map_or(0, u64::from),
            cores: ids(object.cpuset()),
        })
    }

    fn pci_device(object: &TopologyObject) -> Option<PciDevice> {
        let Some(ObjectAttributes::PCIDevice(device)) = object.attributes() else {
            return None;
        };
        Some(PciDevice {
            address: format!(
                "{:04x}:{:02x}:{:02x}.{:x}",
                device.domain(),
                device.bus_id(),
                device.bus_device(),
                device.function()
            ),
            memory_domains: ids(object
                .first_non_io_ancestor()
                .and_then(|near| near.nodeset())),
        })
    }

    /// What a set holds; nothing for one without an end, which names nothing in particular.
    fn ids(set: Option<impl SpecializedBitmapRef>) -> Vec<u32> {
        let Some(set) = set else { return Vec::new() };
        let set = set.as_bitmap_ref();
        if set.weight().is_none() {
            return Vec::new();
        }
        let ids = set.iter_set().map(usize::from);
        ids.filter_map(|id| u32::try_from(id).ok()).collect()
    }
}

/// Machines of other shapes, for tests of what stands on a topology.
#[cfg(all(test, feature = "native"))]
pub(crate) mod machines {
    use hwlocality::Topology as Hwloc;

    use super::{PciDevice, Topology, read};

    /// Two sockets of four cores, in a container that may use cores 4 and 5 and node 1; a
    /// GPU on each socket.
    pub(crate) const CONTAINER: &str = include_str!("../../tests/fixtures/topology/container.xml");
    /// Two performance cores of two threads each, and a cluster of four efficient ones.
    pub(crate) const HYBRID: &str = include_str!("../../tests/fixtures/topology/hybrid.xml");
    /// Four cores, and a second node (numbered 2) of memory alone.
    pub(crate) const CARD: &str = include_str!("../../tests/fixtures/topology/card.xml");

    /// A regular machine, in hwloc's notation.
    pub(crate) fn synthetic(description: &str) -> Topology {
        let builder = Hwloc::builder().from_synthetic(description);
        read::topology(builder.unwrap()).unwrap()
    }

    /// A machine as hwloc exported it.
    pub(crate) fn exported(xml: &str) -> Topology {
        read::topology(Hwloc::builder().from_xml(xml).unwrap()).unwrap()
    }

    pub(crate) fn exported_devices(xml: &str) -> Vec<PciDevice> {
        read::pci_devices(Hwloc::builder().from_xml(xml).unwrap()).unwrap()
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::machines::{CARD, CONTAINER, HYBRID, exported, exported_devices, synthetic};
    use super::{PciDevice, Topology};

    const GIB: u64 = 1 << 30;

    fn range(cores: std::ops::Range<u32>) -> Vec<u32> {
        cores.collect()
    }

    /// Id, bytes and cores of every domain.
    fn domains(topology: &Topology) -> Vec<(u32, u64, Vec<u32>)> {
        let domains = topology.memory_domains.iter();
        domains
            .map(|domain| (domain.id, domain.bytes, domain.cores.clone()))
            .collect()
    }

    #[test]
    fn every_domain_has_its_memory_and_its_cores() {
        let two_sockets =
            synthetic("pack:2 [numa(memory=64GiB)] l3:1(size=32MiB) l2:4 core:1 pu:2");
        let eight_nodes = synthetic("pack:2 [numa] group:4 [numa(memory=16GiB)] core:4 pu:1");
        assert_eq!(
            domains(&two_sockets),
            [(0, 64 * GIB, range(0..8)), (1, 64 * GIB, range(8..16))]
        );
        assert_eq!(two_sockets.physical_cores, 8);
        let eight: Vec<_> = domains(&eight_nodes)
            .into_iter()
            .filter(|(_, _, cores)| cores.len() == 4)
            .collect();
        assert_eq!(eight.len(), 8);
        for (at, (_, bytes, cores)) in (0..).zip(eight) {
            assert_eq!((bytes, cores), (16 * GIB, range(4 * at..4 * at + 4)));
        }
        assert_eq!(
            domains(&exported(CARD)),
            [(0, 32 * GIB, range(0..4)), (2, 128 * GIB, range(0..4))]
        );
        assert_eq!(domains(&exported(HYBRID)), [(0, 16 * GIB, range(0..8))]);
        let numbered_by_turns = synthetic("pack:2 [numa] core:2 pu:1(indexes=0,2,1,3)");
        let cores: Vec<_> = domains(&numbered_by_turns);
        assert_eq!((&cores[0].2, &cores[1].2), (&vec![0, 2], &vec![1, 3]));
    }

    #[test]
    fn caches_tell_who_shares_them() {
        let hybrid = exported(HYBRID);
        let caches: Vec<_> = hybrid
            .caches
            .iter()
            .map(|cache| (cache.level, cache.bytes >> 10, cache.cores.clone()))
            .collect();
        assert_eq!(
            caches,
            [
                (2, 1280, range(0..2)),
                (2, 1280, range(2..4)),
                (2, 2048, range(4..8)),
                (3, 12 << 10, range(0..8)),
            ]
        );
        assert_eq!(hybrid.physical_cores, 6);
    }

    #[test]
    fn what_a_container_may_not_use_is_there_and_marked() {
        let container = exported(CONTAINER);
        assert_eq!(domains(&container).len(), 2);
        assert_eq!(container.allowed_domains().collect::<Vec<_>>(), [1]);
        let near: Vec<_> = exported_devices(CONTAINER)
            .into_iter()
            .map(
                |PciDevice {
                     address,
                     memory_domains,
                 }| (address, memory_domains),
            )
            .collect();
        assert_eq!(
            near,
            [
                ("0000:17:00.0".into(), vec![0]),
                ("0000:b1:00.0".into(), vec![1])
            ]
        );
    }

    #[test]
    fn this_machine_is_read_without_touching_the_thread_that_asks() {
        let affinity = || crate::hardware::cores::UsableCores::of_this_process().affinity;
        let before = affinity();
        let here = Topology::here();
        assert_eq!(affinity(), before);
        assert_eq!(here.problem, None);
        assert!(here.allowed_domains().count() > 0, "{here:?}");
        for domain in &here.memory_domains {
            assert!(domain.bytes > 0, "{domain:?}");
        }
        for device in PciDevice::here() {
            assert!(device.address.len() >= "0000:00:00.0".len(), "{device:?}");
        }
        assert_eq!(affinity(), before);
    }
}
