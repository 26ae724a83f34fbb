//! What several of the engine's tests share; each uses a part of it.

#![allow(dead_code)]

pub mod fake;
pub mod numbers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod sandbox;
pub mod tiny;

use std::path::PathBuf;

/// The folder of all-MiniLM-L6-v2.
pub fn real_model() -> PathBuf {
    let given = std::env::var_os("UFORM_TEST_MODEL").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/all-MiniLM-L6-v2")
    });
    assert!(
        folder.join("config.json").exists(),
        "no model in {}: run `cargo xtask fetch-model`, or set UFORM_TEST_MODEL",
        folder.display()
    );
    folder
}
