//! What several of the engine's tests share; each uses a part of it.

#![allow(dead_code)]

pub mod tiny;

use std::path::PathBuf;

/// The folder of all-MiniLM-L6-v2, or a line that says the test was skipped.
pub fn real_model() -> Option<PathBuf> {
    let given = std::env::var_os("UFORM_TEST_MODEL").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/all-MiniLM-L6-v2")
    });
    if folder.join("config.json").exists() {
        return Some(folder);
    }
    eprintln!(
        "skipped: no model in {} (set UFORM_TEST_MODEL)",
        folder.display()
    );
    None
}
