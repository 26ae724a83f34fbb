//! How many cores this process may really use.
//!
//! A machine's core count is the wrong answer inside a container: the scheduler
//! lets a process run only on the cores of its affinity mask and its cpuset, and
//! stops it once its control group has used up a quota of CPU time. A pool sized
//! for the machine then spends its life throttled. So all of them are read, the
//! smallest counts, and [`UsableCores`] remembers which one that was.
//!
//! What the kernel documents and this file relies on:
//! - `/proc/self/cgroup` names the process's group, `hierarchy:controllers:path`;
//!   hierarchy 0 without controllers is version 2 (cgroups(7)).
//! - `/proc/self/mountinfo` says where a hierarchy is mounted, and which of its
//!   folders is the mount's root: in a container that is often not `/` (proc(5)).
//! - Version 2: `cpu.max` holds `quota period` or `max period`, in microseconds,
//!   and `cpuset.cpus.effective` a list of cores. Version 1: `cpu.cfs_quota_us`
//!   (-1: none), `cpu.cfs_period_us`, `cpuset.effective_cpus` or `cpuset.cpus`.
//! - A quota binds everything below its group, so parents are read as well.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

/// The cores this process may use, and what was read to know it. A core is what the
/// system's scheduler numbers: with hyper-threading, one hardware thread of two.
/// Lists are of the system's numbers, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct UsableCores {
    /// Cores the machine has online.
    pub online: Vec<u32>,
    /// Cores in the affinity mask of the thread that asked; `None`: not known here.
    pub affinity: Option<Vec<u32>>,
    /// Cores in the control group's cpuset; `None`: no cpuset.
    pub cpuset: Option<Vec<u32>>,
    /// Cores' worth of CPU time the control group's quota allows, such as 1.5; `None`: no quota.
    pub quota: Option<f64>,
}

/// [`UsableCores`] in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreCount {
    /// Cores the machine has online.
    pub online: usize,
    /// Cores in the affinity mask; `None`: not known here.
    pub affinity: Option<usize>,
    /// Cores in the control group's cpuset; `None`: no cpuset.
    pub cpuset: Option<usize>,
    /// Cores' worth of CPU time of the control group's quota; `None`: no quota.
    pub quota: Option<f64>,
    /// Threads that can run at once: what all of them leave.
    pub usable: usize,
    /// Which of them leaves the fewest.
    pub limit: CoreLimit,
}

/// What keeps a process from using every core of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreLimit {
    /// Nothing does.
    Machine,
    /// The affinity mask (`taskset`, `sched_setaffinity`).
    Affinity,
    /// The control group's cpuset (`docker run --cpuset-cpus`).
    Cpuset,
    /// The control group's quota of CPU time (`docker run --cpus`).
    Quota,
}

impl CoreLimit {
    /// The word a description says it with.
    pub const fn word(self) -> &'static str {
        match self {
            CoreLimit::Machine => "machine",
            CoreLimit::Affinity => "affinity",
            CoreLimit::Cpuset => "cpuset",
            CoreLimit::Quota => "quota",
        }
    }
}

impl UsableCores {
    /// Reads the limits of this process as they are now, for the calling thread.
    pub fn of_this_process() -> UsableCores {
        UsableCores::read(Path::new("/"), affinity_of_this_thread())
    }

    /// Reads the limits from the `proc` and `sys` folders below `root`.
    pub(crate) fn read(root: &Path, affinity: Option<Vec<u32>>) -> UsableCores {
        let online = fs::read_to_string(root.join("sys/devices/system/cpu/online"))
            .ok()
            .and_then(|list| cores_of_list(&list))
            .unwrap_or_else(as_many_as_rust_says);
        let groups = Groups::read(root);
        UsableCores {
            online,
            affinity,
            cpuset: groups.cpuset(),
            quota: groups.quota(),
        }
    }

    /// How many threads can run at once: the smallest of what was read, at
    /// least one. A fraction of a core left by a quota is not counted: a thread on
    /// it would be stopped for the rest of every period.
    pub fn count(&self) -> usize {
        self.within(&self.cores())
    }

    /// How many threads can run at once on some of the cores: no more than there
    /// are, nor than the quota allows, and at least one.
    pub fn within(&self, cores: &[u32]) -> usize {
        let quota = self.quota.map_or(usize::MAX, |cores| cores as usize);
        cores.len().min(quota).max(1)
    }

    /// The cores the scheduler may place the process on, ascending.
    pub fn cores(&self) -> Vec<u32> {
        let allowed = |core: &u32| {
            [&self.affinity, &self.cpuset]
                .into_iter()
                .flatten()
                .all(|list| list.contains(core))
        };
        self.online.iter().copied().filter(allowed).collect()
    }

    /// The same in numbers.
    pub fn counted(&self) -> CoreCount {
        CoreCount {
            online: self.online.len(),
            affinity: self.affinity.as_ref().map(Vec::len),
            cpuset: self.cpuset.as_ref().map(Vec::len),
            quota: self.quota,
            usable: self.count(),
            limit: self.limit(),
        }
    }

    /// What [`count`](Self::count) was limited by. The affinity mask never
    /// reaches outside the cpuset, so it is named only where it is the smaller.
    pub fn limit(&self) -> CoreLimit {
        let placed = self.cores().len();
        if self.quota.is_some_and(|cores| (cores as usize) < placed) {
            CoreLimit::Quota
        } else if placed == self.online.len() {
            CoreLimit::Machine
        } else if self
            .cpuset
            .as_ref()
            .is_some_and(|list| list.len() == placed)
        {
            CoreLimit::Cpuset
        } else {
            CoreLimit::Affinity
        }
    }
}

/// The folders of the process's control groups, innermost first.
#[derive(Default)]
struct Groups {
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    cpuset: Vec<PathBuf>,
}

impl Groups {
    /// Finds them; a system that hides them simply has none.
    fn read(root: &Path) -> Groups {
        let text = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let mounts = text("proc/self/mountinfo");
        let mut groups = Groups::default();
        for line in text("proc/self/cgroup").lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if number == "0" && controllers.is_empty() {
                groups.unified = folders(root, &mounts, None, path);
            }
            for controller in controllers.split(',') {
                match controller {
                    "cpu" => groups.cpu = folders(root, &mounts, Some("cpu"), path),
                    "cpuset" => groups.cpuset = folders(root, &mounts, Some("cpuset"), path),
                    _ => {}
                }
            }
        }
        groups
    }

    /// Cores in the innermost cpuset.
    fn cpuset(&self) -> Option<Vec<u32>> {
        let first = |folders: &[PathBuf], name: &str| {
            folders
                .iter()
                .find_map(|folder| cores_of_list(&fs::read_to_string(folder.join(name)).ok()?))
        };
        first(&self.unified, "cpuset.cpus.effective")
            .or_else(|| first(&self.cpuset, "cpuset.effective_cpus"))
            .or_else(|| first(&self.cpuset, "cpuset.cpus"))
    }

    /// The tightest quota on the way up.
    fn quota(&self) -> Option<f64> {
        let unified = self.unified.iter().filter_map(|folder| {
            let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            cores_of_quota(quota, period)
        });
        let first_version = self.cpu.iter().filter_map(|folder| {
            let quota = fs::read_to_string(folder.join("cpu.cfs_quota_us")).ok()?;
            let period = fs::read_to_string(folder.join("cpu.cfs_period_us")).ok()?;
            cores_of_quota(&quota, &period)
        });
        unified.chain(first_version).min_by(f64::total_cmp)
    }
}

/// `quota / period`; `None` for "max", -1 and anything that is not a quota.
fn cores_of_quota(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse::<u64>().ok()? as f64;
    let period: f64 = period.trim().parse::<u64>().ok()? as f64;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The folder of group `path` in the mounted hierarchy of `controller` (`None`:
/// version 2), and its parents up to the mount point.
fn folders(root: &Path, mounts: &str, controller: Option<&str>, path: &str) -> Vec<PathBuf> {
    let Some((mount_root, mount_point)) =
        mounts.lines().find_map(|line| mount_of(line, controller))
    else {
        return Vec::new();
    };
    let top = root.join(mount_point.trim_start_matches('/'));
    // A group outside the mount (another namespace's, "/..") is seen as the mount's own root.
    let below = Path::new(path)
        .strip_prefix(mount_root)
        .ok()
        .filter(|below| {
            below
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        })
        .unwrap_or(Path::new(""));
    let levels = below.components().count() + 1;
    top.join(below)
        .ancestors()
        .take(levels)
        .map(Path::to_path_buf)
        .collect()
}

/// Root and mount point of one mountinfo line, if it mounts that hierarchy.
fn mount_of<'a>(line: &'a str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut system = system.split(' ');
    let (kind, options) = (system.next()?, system.nth(1).unwrap_or(""));
    let wanted = match controller {
        None => kind == "cgroup2",
        Some(name) => kind == "cgroup" && options.split(',').any(|option| option == name),
    };
    wanted.then_some((root, point))
}

/// Cores are numbered below this; the kernel's own limit is lower.
const MOST_CORES: u32 = 1 << 16;

/// The cores a list such as `0-3,8` names; `None` when it names none or is no list.
fn cores_of_list(list: &str) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= MOST_CORES {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// Where the system has no lists.
fn as_many_as_rust_says() -> Vec<u32> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (0..MOST_CORES).take(count).collect()
}

/// Cores in the calling thread's affinity mask.
#[cfg(all(feature = "native", target_os = "linux"))]
fn affinity_of_this_thread() -> Option<Vec<u32>> {
    // The kernel refuses a mask of fewer bits than it knows cores.
    let mut mask = vec![0u64; MOST_CORES as usize / 64];
    // SAFETY: the call writes at most the size it is given, into plain bits.
    let written = unsafe {
        libc::sched_getaffinity(0, size_of_val(&mask[..]), mask.as_mut_ptr().cast()) == 0
    };
    let has = |core: &u32| mask[*core as usize / 64] >> (core % 64) & 1 == 1;
    written.then(|| (0..MOST_CORES).filter(has).collect())
}

#[cfg(not(all(feature = "native", target_os = "linux")))]
fn affinity_of_this_thread() -> Option<Vec<u32>> {
    None
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::{CoreLimit, UsableCores, cores_of_list};
    use std::fs;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    /// A container's mount: its root is the container's own group.
    const V1_INSIDE: &str = "31 23 0:27 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

    const ALL: Option<&[u32]> = Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    struct Machine {
        name: &'static str,
        files: &'static [(&'static str, &'static str)],
        affinity: Option<&'static [u32]>,
        count: usize,
        limit: CoreLimit,
    }

    const MACHINES: &[Machine] = &[
        Machine {
            name: "nothing limits",
            files: &[],
            affinity: ALL,
            count: 16,
            limit: CoreLimit::Machine,
        },
        Machine {
            name: "affinity",
            files: &[],
            affinity: Some(&[1, 5, 6]),
            count: 3,
            limit: CoreLimit::Affinity,
        },
        Machine {
            name: "version 2, unlimited",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/user.slice\n"),
                ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-15\n"),
            ],
            affinity: ALL,
            count: 16,
            limit: CoreLimit::Machine,
        },
        Machine {
            name: "version 2, a parent's quota is the tightest",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/pod/app\n"),
                ("sys/fs/cgroup/pod/app/cpu.max", "800000 100000\n"),
                ("sys/fs/cgroup/pod/cpu.max", "250000 100000\n"),
            ],
            affinity: ALL,
            count: 2,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "version 2 in its own namespace",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/cpu.max", "400000 100000\n"),
            ],
            affinity: ALL,
            count: 4,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "version 2, group outside the namespace",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/../other\n"),
                ("sys/fs/cgroup/cpu.max", "300000 100000\n"),
            ],
            affinity: ALL,
            count: 3,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "less than one core",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
            ],
            affinity: ALL,
            count: 1,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "version 2, cpuset of the parent",
            files: &[
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/cpuset.cpus.effective", "2-3,7\n"),
            ],
            affinity: Some(&[2, 3, 7]),
            count: 3,
            limit: CoreLimit::Cpuset,
        },
        Machine {
            name: "version 1, quota",
            files: &[
                ("proc/self/mountinfo", V1),
                ("proc/self/cgroup", "4:cpu,cpuacct:/job\n5:cpuset:/\n"),
                ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "350000\n"),
                (
                    "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us",
                    "100000\n",
                ),
                ("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-15\n"),
            ],
            affinity: ALL,
            count: 3,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "version 1, no quota, cpuset",
            files: &[
                ("proc/self/mountinfo", V1),
                ("proc/self/cgroup", "4:cpu,cpuacct:/\n5:cpuset:/job\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpuset/job/cpuset.cpus", "0,1\n"),
            ],
            affinity: None,
            count: 2,
            limit: CoreLimit::Cpuset,
        },
        Machine {
            name: "version 1, mounted from inside a container",
            files: &[
                ("proc/self/mountinfo", V1_INSIDE),
                ("proc/self/cgroup", "4:cpu:/docker/abc\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
            affinity: ALL,
            count: 2,
            limit: CoreLimit::Quota,
        },
        Machine {
            name: "nonsense is no limit",
            files: &[
                ("proc/self/mountinfo", "garbage\n - \n"),
                ("proc/self/cgroup", "0::\nx\n4:cpu\n"),
            ],
            affinity: None,
            count: 16,
            limit: CoreLimit::Machine,
        },
    ];

    #[test]
    fn the_smallest_limit_counts_and_is_named() {
        for machine in MACHINES {
            let root = tempfile::tempdir().unwrap();
            let online = ("sys/devices/system/cpu/online", "0-15\n");
            for (name, text) in machine.files.iter().chain([&online]) {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let cores = UsableCores::read(root.path(), machine.affinity.map(<[u32]>::to_vec));
            assert_eq!(cores.online.len(), 16, "{}", machine.name);
            assert_eq!(cores.count(), machine.count, "{}: {cores:?}", machine.name);
            assert_eq!(cores.limit(), machine.limit, "{}: {cores:?}", machine.name);
        }
    }

    #[test]
    fn lists_of_cores() {
        for (list, cores) in [
            ("0", Some(&[0][..])),
            ("0-3,8,10-11\n", Some(&[0, 1, 2, 3, 8, 10, 11])),
            ("", None),
            ("3-1", None),
            ("0-", None),
            ("a", None),
            ("0-4294967295", None),
        ] {
            assert_eq!(cores_of_list(list).as_deref(), cores, "{list:?}");
        }
    }

    #[test]
    fn this_process_has_a_core_and_no_more_than_the_system_says() {
        let cores = UsableCores::of_this_process();
        let system = std::thread::available_parallelism().unwrap().get();
        assert!(cores.count() >= 1 && cores.count() <= system, "{cores:?}");
    }
}
