//! A folder that is there whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::{Error, Result, Status};

/// A folder that is filled beside its place under another name, and renamed when it is finished; dropped
/// before, it leaves nothing behind.
pub(super) struct NewFolder {
    into: PathBuf,
    unfinished: PathBuf,
}

impl NewFolder {
    /// Makes the folder that is going to be `into`.
    ///
    /// # Errors
    /// `InvalidArgument` when something is there other than an empty folder, `NotFound` when the folder
    /// around it is not there, `Io` when the system refuses.
    pub(super) fn create(into: &Path) -> Result<NewFolder> {
        let into = place(into)?;
        let mut name = OsString::from(".");
        name.push(into.file_name().unwrap_or_default());
        name.push(format!(".{}.part", process::id()));
        let unfinished = into.with_file_name(name);
        fs::create_dir(&unfinished).map_err(|error| refused(&into, error))?;
        Ok(NewFolder { into, unfinished })
    }

    /// Where it is until it is finished.
    pub(super) fn path(&self) -> &Path {
        &self.unfinished
    }

    /// Makes the file `name` of it, and the folders in between; `fill` writes it.
    ///
    /// # Errors
    /// Those of `fill`; `Io` when the system refuses.
    pub(super) fn file(
        &self,
        name: &str,
        fill: impl FnOnce(&mut NewFile) -> Result<()>,
    ) -> Result<()> {
        let path = self.unfinished.join(name);
        let folder = path.parent().unwrap_or(&self.unfinished);
        fs::create_dir_all(folder).map_err(|error| refused(folder, error))?;
        let file = File::create_new(&path).map_err(|error| refused(&path, error))?;
        let mut file = NewFile { file, path };
        fill(&mut file)?;
        file.file
            .sync_all()
            .map_err(|error| refused(&file.path, error))
    }

    /// Everything is in it: from now on it is there.
    ///
    /// # Errors
    /// `Io` when the system refuses, such as when something has got into its place.
    pub(super) fn finish(self) -> Result<()> {
        fs::rename(&self.unfinished, &self.into).map_err(|error| refused(&self.into, error))
    }
}

/// A file of a new folder.
pub(super) struct NewFile {
    file: File,
    path: PathBuf,
}

impl NewFile {
    /// Writes bytes at a place of it.
    ///
    /// # Errors
    /// `Io` when the system refuses.
    pub(super) fn write(&mut self, start: u64, bytes: &[u8]) -> Result<()> {
        let there = self.file.seek(SeekFrom::Start(start));
        let written = there.and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| refused(&self.path, error))
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // After it was renamed there is none.
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

/// The path without links, checked to be free.
fn place(into: &Path) -> Result<PathBuf> {
    let shown = into.display();
    match fs::read_dir(into) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::invalid(format!(
                    "{shown}: there is something in this folder; name one that is new or empty"
                )));
            }
            fs::canonicalize(into).map_err(|error| refused(into, error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::invalid(format!(
            "{shown}: a file; name a folder that is new or empty"
        ))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(into, error)),
        Err(_) if fs::symlink_metadata(into).is_ok() => Err(Error::invalid(format!(
            "{shown}: a link that leads nowhere; name a folder that is new or empty"
        ))),
        Err(_) => {
            let (Some(parent), Some(name)) = (into.parent(), into.file_name()) else {
                return Err(Error::invalid(format!("{shown}: not the name of a folder")));
            };
            let around = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            match fs::canonicalize(around) {
                Ok(around) => Ok(around.join(name)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::new(
                    Status::NotFound,
                    format!("{shown}: there is no folder {}", around.display()),
                )),
                Err(error) => Err(refused(around, error)),
            }
        }
    }
}

/// The system's refusal, with the path that no `io::Error` names.
fn refused(path: &Path, error: io::Error) -> Error {
    let message = format!("cannot write {}: {error}", path.display());
    Error::new(Status::Io, message).because(error)
}
