//! A team for one job that fills memory to be kept: the loading of a model.
//!
//! Memory lies where the thread that touches it first is told to take it from. Neither
//! the calling thread may be told, nor the executor's own threads, which compute in domains of
//! theirs. So the job gets threads for itself, which end with it. It also gets them where there is
//! no executor whose threads it could use.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, ScopedJoinHandle};

use super::affinity::{Here, prefer_memory};
use super::sync::{Mutex, lock};
use super::threads::block_signals;
use crate::kernels::{ForkJoin, Solo};

/// Lanes whose memory is taken from some domains by turns.
pub(crate) struct LoadingTeam {
    lanes: usize,
    memory_domains: Vec<u32>,
    refused: Mutex<Vec<String>>,
}

impl LoadingTeam {
    /// At most so many threads at a time, for memory in these domains; none: wherever the system
    /// puts it.
    pub(crate) fn new(lanes: usize, memory_domains: Vec<u32>) -> Self {
        LoadingTeam {
            lanes,
            memory_domains,
            refused: Mutex::new(Vec::new()),
        }
    }

    /// What the system refused, a sentence each.
    pub(crate) fn into_refused(self) -> Vec<String> {
        let mut refused = self.refused.into_inner().unwrap_or_default();
        refused.sort();
        refused.dedup();
        refused
    }

    fn settle(&self) {
        block_signals();
        if !self.memory_domains.is_empty() {
            lock(&self.refused).extend(prefer_memory(&self.memory_domains, &Here));
        }
    }
}

impl ForkJoin for LoadingTeam {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let next = &AtomicUsize::new(0);
        let share = move |lane: usize| {
            self.settle();
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                body(lane, task);
            }
        };
        thread::scope(|scope| {
            let mut threads: Vec<ScopedJoinHandle<'_, ()>> = Vec::new();
            for lane in 0..tasks.min(self.lanes) {
                let spawned = Builder::new()
                    .name(format!("uform-load-{lane}"))
                    .spawn_scoped(scope, move || share(lane));
                match spawned {
                    Ok(thread) => threads.push(thread),
                    // Those there are do it all.
                    Err(_) if lane > 0 => break,
                    Err(error) => {
                        if !self.memory_domains.is_empty() {
                            lock(&self.refused).push(format!(
                                "the system refused a thread to load into memory domains {:?}: \
                                 {error}",
                                self.memory_domains
                            ));
                        }
                        return Solo.run(tasks, body);
                    }
                }
            }
            let panics = threads.into_iter().filter_map(|thread| thread.join().err());
            // All are joined before the first is raised.
            if let Some(payload) = panics.collect::<Vec<_>>().into_iter().next() {
                panic::resume_unwind(payload);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::LoadingTeam;
    use crate::hardware::topology::Topology;
    use crate::kernels::ForkJoin;
    use std::panic::{self, AssertUnwindSafe};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn every_task_is_done_once_on_threads_that_are_gone_afterwards() {
        let allowed: Vec<u32> = Topology::here().allowed_domains().collect();
        let (team, nowhere) = (
            LoadingTeam::new(3, allowed),
            LoadingTeam::new(3, Vec::new()),
        );
        let caller = thread::current().id();
        for tasks in [0, 1, 2, 100] {
            for team in [&team, &nowhere] {
                let sum = AtomicUsize::new(0);
                team.run(tasks, &|lane, task| {
                    assert!(lane < 3 && thread::current().id() != caller);
                    sum.fetch_add(task + 1, Ordering::Relaxed);
                });
                assert_eq!(sum.into_inner(), tasks * (tasks + 1) / 2);
            }
        }
        assert_eq!(nowhere.into_refused(), Vec::<String>::new());
        let raised = panic::catch_unwind(AssertUnwindSafe(|| {
            team.run(5, &|_, task| {
                if task == 3 {
                    panic::resume_unwind(Box::new("three"));
                }
            });
        }));
        assert_eq!(*raised.unwrap_err().downcast::<&str>().unwrap(), "three");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_loading_threads_take_memory_from_the_domains_and_the_caller_does_not() {
        // "7f0000000000 prefer:0 file=…": what is mapped where, and by which policy.
        let policy = || {
            let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").ok()?;
            Some(maps.split(' ').nth(1)?.to_owned())
        };
        let Some(before) = policy() else {
            println!("SKIPPED: this kernel does not tell its memory policies");
            return;
        };
        let id = Topology::here().allowed_domains().next().unwrap();
        let team = LoadingTeam::new(2, vec![id]);
        let found = std::sync::Mutex::new(Vec::new());
        team.run(2, &|_, _| found.lock().unwrap().push(policy()));
        if team.into_refused().is_empty() {
            let preferred = Some(format!("prefer:{id}"));
            assert_eq!(found.into_inner().unwrap(), [preferred.clone(), preferred]);
        }
        assert_eq!(policy(), Some(before));
    }

    #[test]
    fn a_refusal_is_told_once_and_the_work_is_done() {
        let team = LoadingTeam::new(2, vec![60_000]);
        let count = AtomicUsize::new(0);
        team.run(10, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 10);
        let refused = team.into_refused();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("memory domains [60000]"), "{refused:?}");
    }
}
