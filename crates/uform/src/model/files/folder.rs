//! A model's files in a folder of this machine.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::blob::{Blob, Written, written_to};
use super::{Bytes, Source, stays_inside};
use crate::error::{Error, Result, Status};

/// What the weights are called unless the caller named a file.
const WEIGHTS: &str = "model.safetensors";

/// Extensions of weights that other frameworks write.
const FOREIGN: [&str; 10] = [
    "bin", "ckpt", "gguf", "h5", "msgpack", "onnx", "ot", "pt", "pth", "xml",
];

/// A folder in the layout of the Hugging Face hub and of sentence-transformers.
///
/// Symbolic links are followed, also out of the folder: hub caches are made of them.
pub struct Folder {
    root: PathBuf,
    /// The file to read as `model.safetensors`, when the caller named one.
    weights: Option<String>,
}

impl Folder {
    /// Opens a model's folder, or the folder around a `.safetensors` file.
    ///
    /// # Errors
    /// - [`Status::NotFound`]: nothing is there, or only a link that leads nowhere.
    /// - [`Status::Unsupported`]: another framework's file.
    /// - [`Status::InvalidArgument`]: any other file.
    /// - [`Status::Io`]: the system refuses, or links form a loop.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder> {
        let path = path.as_ref();
        let Some(found) = stat(path)? else {
            return Err(Error::new(
                Status::NotFound,
                format!(
                    "{}: no such file or folder; expected a model's folder (config.json, \
                     tokenizer.json, model.safetensors) or a .safetensors file{}",
                    path.display(),
                    hub_hint(path)
                ),
            ));
        };
        if found.is_dir() {
            return Ok(Folder {
                root: path.to_owned(),
                weights: None,
            });
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        match (extension, path.file_name().and_then(|name| name.to_str())) {
            (Some("safetensors"), Some(name)) => Ok(Folder {
                root: path.parent().unwrap_or(Path::new("")).to_owned(),
                weights: Some(name.to_owned()),
            }),
            (Some(other), _) if FOREIGN.contains(&other) => Err(Error::unsupported(format!(
                "{}: .{other} weights cannot be read; give a folder or file with safetensors weights",
                path.display()
            ))),
            _ => Err(Error::invalid(format!(
                "{}: neither a folder nor a .safetensors file; give the model's folder",
                path.display()
            ))),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        match &self.weights {
            Some(weights) if name == WEIGHTS => self.root.join(weights),
            _ => self.root.join(name),
        }
    }

    /// A regular file, open; `None` when nothing is there.
    fn file(&self, name: &str) -> Result<Option<File>> {
        if self.size(name)?.is_none() {
            return Ok(None);
        }
        let path = self.path(name);
        // What was there a moment ago may be a pipe by now, and opening one would wait for a writer, perhaps for ever.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(&path, error)),
        };
        let found = file.metadata().map_err(|error| refused(&path, error))?;
        check_regular(&path, &found)?;
        Ok(Some(file))
    }
}

impl Source for Folder {
    fn locate(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        if !stays_inside(name) {
            return Err(Error::corrupt(format!(
                "{name:?}: a file outside the model's folder"
            )));
        }
        let path = self.path(name);
        let Some(found) = stat(&path)? else {
            return Ok(None);
        };
        check_regular(&path, &found)?;
        Ok(Some(found.len()))
    }

    fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let Some(file) = self.file(name)? else {
            return Ok(None);
        };
        let bytes = whole(file, &self.locate(name));
        let bytes = bytes.map_err(|error| refused(&self.path(name), error))??;
        Ok(Some(Arc::new(bytes)))
    }

    fn open(&self, name: &str) -> Result<Option<Blob>> {
        let Some(file) = self.file(name)? else {
            return Ok(None);
        };
        let blob = Blob::of_file(file, self.locate(name));
        let path = self.path(name);
        blob.map(Some).map_err(|error| refused(&path, error))
    }

    fn names(&self) -> Vec<String> {
        self.names_in("")
    }

    fn names_in(&self, folder: &str) -> Vec<String> {
        // Only messages depend on it, so a folder that cannot be listed lists nothing.
        let entries = fs::read_dir(self.root.join(folder));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }
}

/// What to do with the name of a model on the hub, such as `sentence-transformers/all-MiniLM-L6-v2`.
fn hub_hint(path: &Path) -> String {
    let name = path.to_str().unwrap_or_default();
    let is_part = |part: &str| {
        let rest = part.strip_prefix(|first: char| first.is_ascii_alphanumeric());
        let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        rest.is_some_and(|rest| rest.chars().all(is_name))
    };
    match name.split_once('/') {
        Some((owner, model)) if is_part(owner) && is_part(model) => format!(
            "; for a model of the Hugging Face hub, download it first, `hf download {name} --local-dir \
             FOLDER`, and pass the folder"
        ),
        _ => String::new(),
    }
}

/// All bytes of a file, which messages call `place`.
fn whole(mut file: File, place: &str) -> io::Result<Result<Vec<u8>>> {
    let before = file.metadata()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(before.len()).unwrap_or(usize::MAX))?;
    // One more than there are, so that a file that grows for ever is noticed.
    let most = before.len().saturating_add(1);
    (&mut file).take(most).read_to_end(&mut bytes)?;
    let after = file.metadata()?;
    let is_whole = bytes.len() as u64 == before.len();
    if is_whole && Written::of(&before) == Written::of(&after) {
        Ok(Ok(bytes))
    } else {
        Ok(Err(written_to(place)))
    }
}

/// Refuses what is no regular file: a pipe waits for a writer, perhaps for ever.
fn check_regular(path: &Path, found: &fs::Metadata) -> Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(Error::corrupt(format!(
            "{}: not a regular file",
            path.display()
        ))),
    }
}

/// What `path` leads to; `None` when nothing is there.
fn stat(path: &Path) -> Result<Option<fs::Metadata>> {
    let error = match fs::metadata(path) {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    match error.kind() {
        io::ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => Err(Error::new(
                Status::NotFound,
                format!(
                    "{}: a symbolic link to {}, which does not exist",
                    path.display(),
                    target.display()
                ),
            )),
            Err(_) => Ok(None),
        },
        io::ErrorKind::NotADirectory => Ok(None),
        _ => Err(refused(path, error)),
    }
}

/// The system's refusal, with the path that no `io::Error` names.
fn refused(path: &Path, error: io::Error) -> Error {
    let message = if error.raw_os_error() == Some(libc::ELOOP) {
        format!("{}: its symbolic links form a loop", path.display())
    } else {
        format!("{}: {error}", path.display())
    };
    let status = match error.kind() {
        io::ErrorKind::OutOfMemory => Status::OutOfMemory,
        _ => Status::Io,
    };
    Error::new(status, message).because(error)
}
