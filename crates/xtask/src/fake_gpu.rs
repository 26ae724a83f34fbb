//! The stand-ins for the GPU vendors' driver libraries, under the names that programs look for.

use std::fs;
use std::path::Path;

use crate::command::{cargo, run};
use crate::{Result, target};

/// The names: NVIDIA's driver, its management library and NCCL; AMD's runtime and RCCL.
const NAMES: [&str; 5] = [
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnccl.so.2",
    "libamdhip64.so.6",
    "librccl.so.1",
];

/// Builds the stand-in, and copies it into a folder: a program started with the folder in `LD_LIBRARY_PATH`
/// finds it there. Never packed.
pub fn make(folder: &str) -> Result {
    run(cargo()
        .args(["build", "--package", "fake-gpu", "--target-dir"])
        .arg(target()?))?;
    let built = target()?.join("debug/libfake_gpu.so");
    let folder = Path::new(folder);
    let cannot = |error| {
        format!(
            "cannot copy {} to {}: {error}",
            built.display(),
            folder.display()
        )
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    for name in NAMES {
        fs::copy(&built, folder.join(name)).map_err(cannot)?;
    }
    Ok(())
}
