//! What a path can lead to: folders, files, links, and things that are neither.
#![cfg(unix)]

mod common;

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use common::tiny::Tiny;
use uform::{
    Error, Result, Status,
    executor::Executor,
    model::{EncodeOptions, Model, ModelOptions, Texts},
};

fn load(path: impl AsRef<Path>) -> Result<Model> {
    Model::load_ram(path.as_ref(), &ModelOptions::default(), &Executor::inline())
}

/// The tiny model in a folder of its own.
fn model() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model");
    Tiny::new().write(&path).expect("written");
    (folder, path)
}

#[track_caller]
fn refused(path: impl AsRef<Path>, status: Status, fragments: &[&str]) -> Error {
    let error = load(path).err().expect("refused");
    assert_eq!(error.status(), status, "{error}");
    for fragment in fragments {
        assert!(error.message().contains(fragment), "{fragment}: {error}");
    }
    error
}

#[test]
fn a_folder_and_the_file_in_it_are_the_same_model() {
    let (_kept, path) = model();
    assert!(load(&path).is_ok());
    assert!(load(path.join("model.safetensors")).is_ok());
    fs::rename(
        path.join("model.safetensors"),
        path.join("mine.safetensors"),
    )
    .expect("renamed");
    assert!(load(path.join("mine.safetensors")).is_ok());
    let error = refused(&path, Status::NotFound, &["model.safetensors"]);
    assert!(
        error.message().contains(&path.display().to_string()),
        "{error}"
    );
}

#[test]
fn hub_caches_are_followed() {
    let (_kept, path) = model();
    let hub = path.parent().expect("a parent").join("models--tiny");
    let (blobs, snapshot) = (hub.join("blobs"), hub.join("snapshots/abc"));
    fs::create_dir_all(&blobs).expect("made");
    for (number, name) in Tiny::new().files.keys().enumerate() {
        let link = snapshot.join(name);
        fs::create_dir_all(link.parent().expect("a parent")).expect("made");
        fs::rename(path.join(name), blobs.join(number.to_string())).expect("moved");
        let up = "../".repeat(2 + name.matches('/').count());
        symlink(format!("{up}blobs/{number}"), link).expect("linked");
    }
    assert!(load(&snapshot).is_ok());
    refused(&hub, Status::NotFound, &["config.json", "snapshots"]);
    fs::remove_file(blobs.join("0")).expect("removed");
    let gone = Tiny::new().files.into_keys().next().expect("a file");
    refused(
        &snapshot,
        Status::NotFound,
        &[&gone, "symbolic link", "does not exist"],
    );
}

#[test]
fn links_that_lead_nowhere_are_refused_with_their_path() {
    let (_kept, path) = model();
    let link = path.parent().expect("a parent").join("link");
    symlink("link", &link).expect("linked");
    refused(&link, Status::Io, &["link", "loop"]);
    refused(
        path.join("nowhere"),
        Status::NotFound,
        &["nowhere", "expected a model's folder"],
    );
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::remove_file(path.join(name)).expect("removed");
        symlink(name, path.join(name)).expect("linked");
        refused(&path, Status::Io, &[name, "loop"]);
        fs::remove_file(path.join(name)).expect("removed");
        symlink("../elsewhere", path.join(name)).expect("linked");
        refused(&path, Status::NotFound, &[name, "../elsewhere"]);
        fs::remove_file(path.join(name)).expect("removed");
        Tiny::new().write(&path).expect("written again");
    }
}

#[test]
fn what_is_not_a_file_is_not_opened() {
    let (_kept, path) = model();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::remove_file(path.join(name)).expect("removed");
        let socket = UnixListener::bind(path.join(name)).expect("bound");
        refused(&path, Status::CorruptModel, &[name, "not a regular file"]);
        drop(socket);
        fs::remove_file(path.join(name)).expect("removed");
        fs::create_dir(path.join(name)).expect("made");
        refused(&path, Status::CorruptModel, &[name, "not a regular file"]);
        fs::remove_dir(path.join(name)).expect("removed");
        Tiny::new().write(&path).expect("written again");
    }
}

#[test]
fn other_files_are_refused_by_their_kind() {
    let (_kept, path) = model();
    refused(
        path.join("config.json"),
        Status::InvalidArgument,
        &["config.json", "folder"],
    );
    for name in [
        "pytorch_model.bin",
        "model.onnx",
        "model.gguf",
        "tf_model.h5",
    ] {
        fs::write(path.join(name), "x").expect("written");
        refused(path.join(name), Status::Unsupported, &[name, "safetensors"]);
    }
    let empty = tempfile::tempdir().expect("a temporary folder");
    refused(
        empty.path(),
        Status::NotFound,
        &["config.json", "Hugging Face layout"],
    );
    refused("", Status::NotFound, &["expected a model's folder"]);
}

#[test]
fn a_file_cut_after_loading_is_harmless() {
    let (_kept, path) = model();
    let model = load(&path).expect("loaded");
    let embed = || {
        let texts = Texts::from_iter(["the sea is blue"]);
        model.encode_text(&Executor::inline(), &texts, &EncodeOptions::default())
    };
    let before = embed().expect("embedded");
    fs::write(path.join("model.safetensors"), "").expect("cut");
    assert_eq!(embed().expect("embedded"), before);
    refused(
        &path,
        Status::CorruptModel,
        &["model.safetensors", "0 bytes"],
    );
}

#[test]
fn the_name_of_a_model_on_the_hub_is_told_from_a_path() {
    let words = [
        "sentence-transformers/no-such-model",
        "no such file",
        "hf download",
    ];
    refused(
        "sentence-transformers/no-such-model",
        Status::NotFound,
        &words,
    );
    for path in ["./no/such", "/no/such", "no", "no/such/folder", "no/.such"] {
        let error = refused(path, Status::NotFound, &["no such file"]);
        assert!(!error.message().contains("hf download"), "{error}");
    }
}
