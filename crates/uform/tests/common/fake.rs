//! Processes that have the stand-ins of `fake-gpu` for the GPU vendors' drivers.
//!
//! A process has one driver of a vendor's for its life, so every case is a process of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// A process's environment.
#[derive(Default)]
pub struct Case<'a> {
    /// NVIDIA's devices.
    pub cuda: &'a str,
    /// AMD's.
    pub hip: &'a str,
    /// What goes wrong.
    pub fault: &'a str,
}

/// Set in such a process, to the number of its case.
pub const MARK: &str = "UFORM_TEST_ALONE";

/// Runs the test called `name` in a process of its own for every case; `body` is told which it is.
/// Afterwards nothing of a device may be left.
pub fn alone(name: &str, cases: &[Case<'_>], body: impl Fn(usize)) {
    if let Ok(case) = env::var(MARK) {
        return body(case.parse().unwrap());
    }
    let folder = drivers();
    for (number, case) in cases.iter().enumerate() {
        let counts = folder.path().join("counts");
        child(name, number, case, folder.path(), &counts);
        check_counts(&counts, number);
    }
}

/// Nothing may be alive that was made on a device, by what a process wrote at its end.
pub fn check_counts(counts: &Path, number: usize) {
    let counts = fs::read_to_string(counts).unwrap_or_default();
    for line in counts.lines() {
        let mut alive: BTreeMap<String, u64> = serde_json::from_str(line).unwrap();
        alive.remove("launches").unwrap();
        assert!(
            alive.values().all(|&count| count == 0),
            "case {number}: {line}"
        );
    }
}

/// One such process, which must end well and say nothing.
pub fn child(name: &str, number: usize, case: &Case<'_>, drivers: &Path, counts: &Path) {
    let output = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, number.to_string())
        .env("LD_LIBRARY_PATH", drivers)
        .env("FAKE_CUDA_DEVICES", case.cuda)
        .env("FAKE_HIP_DEVICES", case.hip)
        .env("FAKE_CUDA_FAULT", case.fault)
        .env("FAKE_GPU_COUNTS", counts)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "case {number}: {errors}");
    assert_eq!(errors, "", "case {number}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("1 passed"), "case {number}: {printed}");
}

/// A folder with the stand-ins, which cargo has built beside this program.
pub fn drivers() -> tempfile::TempDir {
    let program = env::current_exe().unwrap();
    let built = program.parent().unwrap().join("libfake_gpu.so");
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1", "libamdhip64.so.6"] {
        fs::copy(&built, folder.path().join(name)).unwrap();
    }
    folder
}
