//! Processes that meet in a folder: real ones, in any order, with everything that can come between.

#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use common::members::{End, Role, be_a_member, run};
use serde_json::{Value, json};
use uform::Status;
use uform::executor::Control;
use uform::mesh::Prepared;
use uform::mesh::rendezvous::{Meeting, join};

/// The process that the others here start.
#[test]
fn a_member() {
    be_a_member();
}

fn soaking() -> bool {
    env::var_os("UFORM_SOAK").is_some()
}

/// Numbers that look random and are the same every time (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// What a process of a run of so many has joined when all went well.
fn joined(count: u32) -> Value {
    json!({
        "indexes": (0..count).collect::<Vec<_>>(),
        "payloads": (0..count).map(|index| [index, 0xab]).collect::<Vec<_>>(),
        "noMulticast": vec![Value::Null; count as usize],
        "leftovers": null,
    })
}

fn assert_empty(directory: &Path) {
    let left: Vec<_> = fs::read_dir(directory).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn rounds(count: u32, short: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(0x9e37_79b9 + u64::from(count));
    for _ in 0..if soaking() { 100 } else { short } {
        let mut roles: Vec<Role> = (0..count)
            .map(|index| Role {
                delay: random.below(200),
                ..Role::new(directory.path(), index, count)
            })
            .collect();
        random.shuffle(&mut roles);
        for end in run(&roles) {
            assert_eq!(end, End::Joined(joined(count)));
        }
        assert_empty(directory.path());
    }
}

#[test]
fn two_meet() {
    rounds(2, 4);
}

#[test]
fn four_meet() {
    rounds(4, 3);
}

#[test]
fn sixteen_meet() {
    rounds(16, 1);
}

/// Who leaves first may come again before the others have left, or have even read that the run was on.
#[test]
fn one_job_is_joined_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let meeting = Meeting {
        directory: directory.path(),
        job: "job",
        timeout: Duration::from_secs(100),
    };
    let turns = if soaking() { 300 } else { 20 };
    thread::scope(|scope| {
        for index in 0..3 {
            let member = Role::new(directory.path(), index, 3).member();
            let meeting = &meeting;
            scope.spawn(move || {
                for _ in 0..turns {
                    let joined = join(member.clone(), meeting, &Control::new(), &mut |_| {
                        Prepared::default()
                    });
                    let joined = joined.unwrap();
                    assert!(joined.members.iter().map(|member| member.index).eq(0..3));
                }
            });
        }
    });
    assert_empty(directory.path());
}

/// A process that disagrees, and what all are told.
#[test]
fn whoever_disagrees_everybody_is_told_the_same() {
    type Change = fn(&mut Role);
    let table: [(Change, &str); 7] = [
        (
            |role| role.version = "1.2.4".into(),
            "the version of uform is 1.2.3 for index 0",
        ),
        (|role| role.count = 4, "`hostDomainCount` is 3 for index 0"),
        (
            |role| drop(role.uuids.pop()),
            "the number of GPUs is 2 for index 0",
        ),
        (
            |role| role.multimem = 6,
            "`gpusPerMultimemDomain` is 2 for index 0",
        ),
        (
            |role| role.class = "nvidia-ada".into(),
            "the class of the GPUs is nvidia-hopper for index 0",
        ),
        (
            |role| role.index = 1,
            "`hostDomainIndex` 1 is there 2 times: index 1",
        ),
        (
            |role| role.uuids[0] = "GPU-0-1".into(),
            "the GPU GPU-0-1 is used by index 0",
        ),
    ];
    for (change, words) in table {
        let directory = tempfile::tempdir().unwrap();
        let mut roles: Vec<Role> = (0..3)
            .map(|index| Role::new(directory.path(), index, 3))
            .collect();
        change(&mut roles[2]);
        let ends = run(&roles);
        let End::Failed(status, message) = &ends[0] else {
            panic!("{words}: {ends:?}");
        };
        assert_eq!(status, "UFORM_CONFIG_MISMATCH", "{message}");
        assert!(message.contains(words), "{message}");
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        assert_empty(directory.path());
    }
}

#[test]
fn who_does_not_come_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let roles = [0, 2, 3].map(|index| Role {
        seconds: 2.0,
        ..Role::new(directory.path(), index, 5)
    });
    for end in run(&roles) {
        let End::Failed(status, message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(status, "UFORM_TIMED_OUT");
        assert!(
            message.contains("indexes 1, 4 of 5 did not come in time"),
            "{message}"
        );
        assert!(message.contains("index 2 (host "), "{message}");
    }
    assert_empty(directory.path());
}

/// One more of an index that is taken, or of a larger run, when all have met already.
#[test]
fn one_too_many_is_told_so_and_disturbs_nobody() {
    for (index, count) in [(1, 2), (2, 3)] {
        let directory = tempfile::tempdir().unwrap();
        let stay = |index| Role {
            stay: 6_000,
            ..Role::new(directory.path(), index, 2)
        };
        let run: Vec<_> = [0, 1].map(|index| stay(index).start()).into();
        let verdict = || {
            let found = fs::read_dir(directory.path().join("job"))
                .into_iter()
                .flatten();
            let mut names = found.flatten().map(|entry| entry.file_name());
            names.any(|name| name.to_string_lossy().starts_with("run-"))
        };
        while !verdict() {
            thread::sleep(Duration::from_millis(10));
        }
        let extra = Role {
            seconds: 1.0,
            uuids: vec!["GPU-9-0".into(), "GPU-9-1".into()],
            ..Role::new(directory.path(), index, count)
        };
        let end = extra.start().end();
        let End::Failed(status, message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(status, "UFORM_CONFIG_MISMATCH", "{message}");
        assert!(message.contains("going on without index"), "{message}");
        for member in run {
            assert!(matches!(member.end(), End::Joined(_)));
        }
        assert_empty(directory.path());
    }
}

#[test]
fn who_cannot_bind_multicast_memory_is_known_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut roles = [0, 1, 2].map(|index| Role::new(directory.path(), index, 3));
    roles[1].no_multicast = Some("cuMulticastBindMem failed with 401".into());
    let mut expected = joined(3);
    expected["noMulticast"][1] = json!("cuMulticastBindMem failed with 401");
    for end in run(&roles) {
        assert_eq!(end, End::Joined(expected.clone()));
    }
}

/// Ends a process at every step it takes; the other one succeeds, or is told. Then a new run has
/// what was left before it, succeeds, and says what is left; on this host, where it can be told that the
/// process has ended, and as if from another.
#[test]
fn a_crash_at_any_step_is_survived_and_what_it_leaves_is_not_believed() {
    let directories = tempfile::tempdir().unwrap();
    let lanes = 6;
    let most = if soaking() { 120 } else { 36 };
    thread::scope(|scope| {
        for lane in 0..lanes {
            let directory = directories.path();
            scope.spawn(move || {
                for step in (lane..most).step_by(lanes) {
                    let directory = directory.join(step.to_string());
                    fs::create_dir(&directory).unwrap();
                    crash_at(step, &directory);
                }
            });
        }
    });
}

fn crash_at(step: usize, directory: &Path) {
    let elsewhere = (step % 2 == 1).then(|| "elsewhere".to_owned());
    let victim = Role {
        kill_at: Some(step),
        host: elsewhere,
        ..Role::new(directory, 1, 2)
    };
    let survivor = Role {
        seconds: 1.5,
        ..Role::new(directory, 0, 2)
    };
    let ends = run(&[victim, survivor]);
    // There are some thirty steps, and more where they wait for each other.
    if step < 20 {
        assert_eq!(ends[0], End::Killed, "step {step}");
    }
    match &ends[1] {
        End::Joined(found) => assert_eq!(*found, joined(2), "step {step}"),
        End::Failed(status, message) => {
            assert_eq!(status, "UFORM_TIMED_OUT", "step {step}: {message}");
            assert!(message.contains("index 1"), "step {step}: {message}");
        }
        End::Killed => panic!("step {step}: both were killed"),
    }
    let job = directory.join("job");
    let names = |folder: &Path| -> BTreeSet<_> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    };
    let left = names(&job);
    let roles = [0, 1].map(|index| Role::new(directory, index, 2));
    for end in run(&roles) {
        let End::Joined(mut found) = end else {
            panic!("step {step}: {left:?}: {end:?}")
        };
        let leftovers = found["leftovers"].take();
        let record = left.iter().any(|name| name.starts_with("member-"));
        assert_eq!(
            leftovers.is_string(),
            record,
            "step {step}: {left:?}: {leftovers}"
        );
        if let Some(leftovers) = leftovers.as_str() {
            assert!(leftovers.contains("the record of index 1"), "{leftovers}");
            assert!(leftovers.contains("remove that folder"), "{leftovers}");
        }
        assert_eq!(found, joined(2), "step {step}");
    }
    assert_eq!(names(&job), left, "step {step}");
}

#[test]
fn a_directory_that_cannot_be_used_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let missing = directory.path().join("misspelled");
    let mut table = vec![
        (
            missing.as_path(),
            "UFORM_NOT_FOUND",
            "misspelled, which does not exist",
        ),
        (
            file.as_path(),
            "UFORM_INVALID_ARGUMENT",
            "file, which is a file",
        ),
    ];
    // Nobody may make a folder there, whoever this runs as.
    let closed = Path::new("/sys/kernel");
    match closed.is_dir() {
        true => table.push((closed, "UFORM_IO", "cannot make /sys/kernel/job")),
        false => println!(
            "SKIPPED: an unwritable directory: there is no {}",
            closed.display()
        ),
    }
    for (directory, code, words) in table {
        // After a wait it would be another error.
        let role = Role {
            seconds: 20.0,
            ..Role::new(directory, 0, 2)
        };
        let end = role.start().end();
        let End::Failed(status, message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(status, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

/// In a mount namespace of its own, with a file system that has no room left.
#[test]
fn a_full_directory_is_told_at_once() {
    const MARK: &str = "UFORM_TEST_FULL";
    if let Ok(directory) = env::var(MARK) {
        let directory = Path::new(&directory);
        let filled = fs::write(directory.join("filler"), vec![1; 1 << 20]);
        assert!(filled.is_err(), "the file system is larger than thought");
        let role = Role {
            seconds: 20.0,
            ..Role::new(directory, 0, 2)
        };
        let end = role.start().end();
        let End::Failed(status, message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(status, "UFORM_IO", "{message}");
        assert!(message.contains("No space left on device"), "{message}");
        let left: Vec<_> = fs::read_dir(directory).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mounted = "mount -t tmpfs -o size=64k none \"$UFORM_TEST_FULL\" || exit 77; exec \"$0\" \
                   a_full_directory_is_told_at_once --exact --nocapture";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", mounted])
        .arg(env::current_exe().unwrap())
        .env(MARK, directory.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        }
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            println!("SKIPPED: a full directory: no file system can be mounted here: {reason}");
        }
        Err(error) => println!("SKIPPED: a full directory: unshare does not start: {error}"),
    }
}

#[test]
fn a_folder_that_vanishes_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let role = Role {
        seconds: 20.0,
        ..Role::new(directory.path(), 0, 2)
    };
    let member = role.start();
    let job = directory.path().join("job");
    // Until its first record is there it would make the folder anew.
    let is_there = || {
        let mut names = fs::read_dir(&job).into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().starts_with("member-"))
    };
    while !is_there() {
        thread::sleep(Duration::from_millis(5));
    }
    // A person tidies up; the process may be writing anew meanwhile.
    while job.exists() {
        _ = fs::remove_dir_all(&job);
    }
    let end = member.end();
    let End::Failed(status, message) = end else {
        panic!("{end:?}")
    };
    assert_eq!(status, "UFORM_NOT_FOUND", "{message}");
    assert!(
        message.contains("was removed while this process was joining"),
        "{message}"
    );
}

/// Every file's time is moved to and fro, as a host whose clock is wrong would write it.
#[test]
fn clocks_do_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let roles = [0, 1].map(|index| Role {
        delay: u64::from(index) * 300,
        ..Role::new(directory.path(), index, 2)
    });
    let members = roles.map(|role| role.start());
    let job = directory.path().join("job");
    for turn in 0..60 {
        let minutes = Duration::from_secs(60 * turn);
        let now = SystemTime::now();
        let moved = if turn % 2 == 0 {
            now + minutes
        } else {
            now - minutes
        };
        for entry in fs::read_dir(&job).into_iter().flatten().flatten() {
            _ = File::open(entry.path()).and_then(|file| file.set_modified(moved));
        }
        thread::sleep(Duration::from_millis(10));
    }
    for member in members {
        assert_eq!(member.end(), End::Joined(joined(2)));
    }
    assert_empty(directory.path());
}

/// Who gave up leaves at once and may come again, while the other one still waits.
#[test]
fn a_caller_may_give_up_and_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let other = Role::new(directory.path(), 0, 3).start();
    let role = Role::new(directory.path(), 1, 3);
    let meeting = Meeting {
        directory: directory.path(),
        job: "job",
        timeout: Duration::from_secs(60),
    };
    let job = directory.path().join("job");
    let records_of = |index: u32| {
        let entries = fs::read_dir(&job).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&format!("member-{index}-")))
    };
    let control = Control::new();
    let error = thread::scope(|scope| {
        let waiting =
            scope.spawn(|| join(role.member(), &meeting, &control, &mut |_| role.prepared()));
        while !records_of(0) || !records_of(1) {
            thread::sleep(Duration::from_millis(5));
        }
        control.cancel();
        waiting.join().unwrap().err().unwrap()
    });
    assert_eq!(error.status(), Status::Aborted);
    assert!(records_of(0) && !records_of(1));
    let last = Role::new(directory.path(), 2, 3).start();
    let again = join(role.member(), &meeting, &Control::new(), &mut |_| {
        role.prepared()
    });
    assert_eq!(again.unwrap().members.len(), 3);
    for member in [other, last] {
        assert_eq!(member.end(), End::Joined(joined(3)));
    }
    assert_empty(directory.path());
}
