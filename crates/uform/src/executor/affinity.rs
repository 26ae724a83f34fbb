//! Putting a thread on its cores and its memory near them.
//!
//! Only the executor's own threads are pinned, each by itself: affinity and memory policy
//! belong to a thread, and the calling thread's are its program's. The policy is a preference.
//! When a domain is full the system takes memory elsewhere, where a binding would end the process.
//!
//! A system may refuse either, as sandboxes do. Then the thread stays where it is, and the
//! refusal is a sentence for `describe()`.

use std::io;

use crate::placement::{ComputeDomain, Placement};

/// What asks the system, for the calling thread.
pub(super) trait System {
    /// Runs on these cores alone, from now on.
    fn run_on(&self, cores: &[u32]) -> io::Result<()>;

    /// Takes memory it touches first from these domains by turns, as long as they have some.
    fn take_memory_from(&self, domains: &[u32]) -> io::Result<()>;
}

/// Pins the calling thread to its domain; returns what was refused.
pub(super) fn pin(at: &ComputeDomain, system: &impl System) -> Vec<String> {
    pin_to(&at.cores, &[at.memory_domain], system)
}

/// Pins the calling thread, and those it spawns, to all domains of a placement; returns what was refused.
pub(super) fn pin_to_all(placement: &Placement, system: &impl System) -> Vec<String> {
    match &placement.memory_domains[..] {
        [] => Vec::new(),
        domains => pin_to(&placement.cores(), domains, system),
    }
}

fn pin_to(cores: &[u32], memory_domains: &[u32], system: &impl System) -> Vec<String> {
    let affinity = system.run_on(cores).map_err(|error| {
        format!(
            "the system refused to keep threads on cores {cores:?}, near memory domains \
             {memory_domains:?}: {error}"
        )
    });
    let memory = prefer_memory(memory_domains, system);
    affinity.err().into_iter().chain(memory).collect()
}

/// What the calling thread allocates from now on lies in these domains; what was refused.
pub(super) fn prefer_memory(domains: &[u32], system: &impl System) -> Option<String> {
    let refused = system.take_memory_from(domains).err()?;
    Some(format!(
        "the system refused to prefer memory domains {domains:?} for what threads allocate: {refused}"
    ))
}

/// The system there is.
pub(super) struct Here;

#[cfg(target_os = "linux")]
impl System for Here {
    fn run_on(&self, cores: &[u32]) -> io::Result<()> {
        let mask = bits(cores);
        // SAFETY: the call reads as many bytes as it is told, from plain bits. 0 is the calling
        // thread.
        let outcome =
            unsafe { libc::sched_setaffinity(0, size_of_val(&mask[..]), mask.as_ptr().cast()) };
        succeeded(outcome.into())
    }

    fn take_memory_from(&self, domains: &[u32]) -> io::Result<()> {
        let mode = match domains {
            [_] => libc::MPOL_PREFERRED,
            _ => libc::MPOL_INTERLEAVE,
        };
        let mask = bits(domains);
        // The kernel takes the last bit for one too many.
        let length = size_of_val(&mask[..]) * 8 + 1;
        // SAFETY: the call reads `length` bits less one, which is the whole mask, and changes
        // the calling thread's policy alone.
        let outcome =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), length) };
        succeeded(outcome)
    }
}

#[cfg(not(target_os = "linux"))]
impl System for Here {
    fn run_on(&self, _cores: &[u32]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn take_memory_from(&self, _domains: &[u32]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A mask with these bits set.
#[cfg(target_os = "linux")]
fn bits(set: &[u32]) -> Vec<libc::c_ulong> {
    let last = set.iter().max().map_or(0, |last| *last as usize);
    let width = libc::c_ulong::BITS as usize;
    let mut mask = vec![0; last / width + 1];
    for bit in set.iter().map(|bit| *bit as usize) {
        mask[bit / width] |= 1 << (bit % width);
    }
    mask
}

#[cfg(target_os = "linux")]
fn succeeded(outcome: libc::c_long) -> io::Result<()> {
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::{Here, System, pin};
    use crate::hardware::cores::UsableCores;
    use crate::placement::ComputeDomain;
    use std::cell::RefCell;
    use std::io;

    /// A system that grants or refuses, and remembers what was asked.
    struct Fake {
        affinity: Option<i32>,
        memory: Option<i32>,
        asked: RefCell<Vec<Vec<u32>>>,
    }

    impl Fake {
        fn answer(&self, asked: &[u32], refusal: Option<i32>) -> io::Result<()> {
            self.asked.borrow_mut().push(asked.to_vec());
            refusal.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
        }
    }

    impl System for Fake {
        fn run_on(&self, cores: &[u32]) -> io::Result<()> {
            self.answer(cores, self.affinity)
        }

        fn take_memory_from(&self, domains: &[u32]) -> io::Result<()> {
            self.answer(domains, self.memory)
        }
    }

    fn domain(cores: &[u32]) -> ComputeDomain {
        ComputeDomain {
            memory_domain: 3,
            cores: cores.to_vec(),
            far: false,
        }
    }

    #[test]
    fn each_refusal_is_a_sentence_and_hinders_nothing_else() {
        for affinity in [None, Some(libc::EPERM)] {
            for memory in [None, Some(libc::ENOSYS), Some(libc::EPERM)] {
                let system = Fake {
                    affinity,
                    memory,
                    asked: RefCell::default(),
                };
                let refused = pin(&domain(&[4, 5]), &system);
                assert_eq!(system.asked.into_inner(), [vec![4, 5], vec![3]]);
                let told = |words: &str| refused.iter().filter(|text| text.contains(words)).count();
                assert_eq!(
                    told("cores [4, 5], near memory domains [3]"),
                    affinity.iter().count()
                );
                assert_eq!(told("prefer memory domains [3]"), memory.iter().count());
                let codes = affinity.into_iter().chain(memory);
                for code in codes {
                    assert!(told(&io::Error::from_raw_os_error(code).to_string()) > 0);
                }
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_system_pins_the_thread_that_asks_and_no_other() {
        let affinity = || UsableCores::of_this_process().affinity;
        let before = affinity();
        let core = *before.as_ref().unwrap().last().unwrap();
        std::thread::spawn(move || {
            assert!(Here.run_on(&[core]).is_ok());
            assert_eq!(affinity(), Some(vec![core]));
            assert!(Here.run_on(&[60_000]).is_err());
            assert_eq!(affinity(), Some(vec![core]));
        })
        .join()
        .unwrap();
        assert_eq!(affinity(), before);
    }
}
