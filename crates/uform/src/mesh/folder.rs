//! A job's folder: what is done to files, and nothing of why.
//!
//! ```text
//! directory/job/
//!     member-3-<nonce>.json       the record of a process
//!     run-<name>/verdict.json     what was decided of a run
//!     .member-…  .run-…           the same, being written
//! ```
//!
//! Nobody reads what is half written: a record is written under another name and renamed, which replaces
//! the one before in one step. A verdict is never replaced, so it is renamed with a folder around it: a folder
//! is not renamed to where one with something in it is. Network file systems do both as local ones do.
//!
//! A listing may miss a file that is being replaced. That a file is not there is
//! believed only when it was asked for by its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_128;

use super::member::Nonce;
use super::process::Process;
use super::record::{Decided, Record, Run, Verdict};
use super::view::{Sighting, View};
use crate::{Error, Result, Status};

/// The longest record that is read: of a run of some ten thousand processes.
const LONGEST: u64 = 1 << 20;

/// How often the folder is made again when somebody's leaving removed it just then.
const TRIES: usize = 1000;

/// A job's folder, for one process.
#[derive(Clone)]
pub(super) struct Folder {
    directory: PathBuf,
    path: PathBuf,
    here: Process,
    /// Told before every change and every reading, and what that is.
    watch: Watch,
}

/// Is told what is about to be done.
pub type Watch = &'static (dyn Fn(&'static str) + Sync);

impl Folder {
    /// The folder, which need not be there.
    pub fn new(directory: &Path, job: &str, watch: Watch) -> Self {
        Folder {
            directory: directory.to_owned(),
            path: directory.join(job),
            here: Process::this(),
            watch,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, unless it is there, in a directory that has to be, and puts the first record into it.
    ///
    /// # Errors
    /// [`NotFound`](Status::NotFound) and [`InvalidArgument`](Status::InvalidArgument) when the
    /// directory is none, [`Io`](Status::Io) when the system refuses.
    pub fn enter(&self, record: &Record) -> Result<()> {
        let directory = self.directory.display();
        match fs::metadata(&self.directory) {
            Ok(found) if found.is_dir() => (),
            Ok(_) => {
                return Err(Error::invalid(format!(
                    "`directory` is {directory}, which is a file: name a directory that every host sees"
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let message = format!(
                    "`directory` is {directory}, which does not exist: name a directory that every \
                     host sees, and make it first"
                );
                return Err(Error::new(Status::NotFound, message).because(error));
            }
            Err(error) => return Err(refused("look at", &self.directory, error)),
        }
        let mut tries = 0..TRIES;
        loop {
            (self.watch)("make the folder");
            match fs::create_dir(&self.path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(refused("make", &self.path, error));
                }
                _ => (),
            }
            match self.write(record) {
                Err(error) if error.kind() == ErrorKind::NotFound && tries.next().is_some() => (),
                done => return done.map_err(|error| self.lost(error)),
            }
        }
    }

    /// Replaces this process's record.
    ///
    /// # Errors
    /// [`NotFound`](Status::NotFound) when the folder vanished, [`Io`](Status::Io) when the
    /// system refuses.
    pub fn publish(&self, record: &Record) -> Result<()> {
        self.write(record).map_err(|error| self.lost(error))
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let name = file_name(record.member.index, &record.nonce);
        let draft = self.path.join(format!(".{name}"));
        (self.watch)("write the record");
        let written = write(&draft, record);
        (self.watch)("rename the record");
        let renamed = written.and_then(|()| fs::rename(&draft, self.path.join(name)));
        if renamed.is_err() {
            _ = fs::remove_file(draft);
        }
        renamed
    }

    /// Reads every record but this process's.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), also when this process's record is no longer there.
    pub fn look(&self, own: &Record, view: &mut View) -> Result<()> {
        (self.watch)("look for the own record");
        let own_name = file_name(own.member.index, &own.nonce);
        fs::symlink_metadata(self.path.join(&own_name)).map_err(|error| self.lost(error))?;
        (self.watch)("list the folder");
        let mut names: Vec<(String, Nonce)> = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|error| self.lost(error))? {
            let name = entry.map_err(|error| self.lost(error))?.file_name();
            let name = name.to_string_lossy();
            if let Some(nonce) = nonce_of(&name).filter(|nonce| *nonce != own.nonce) {
                names.push((name.into_owned(), nonce));
            }
        }
        for (nonce, known) in &view.others {
            let name = file_name(known.record.member.index, nonce);
            if !known.gone && !names.iter().any(|(_, listed)| listed == nonce) {
                names.push((name, *nonce));
            }
        }
        for (name, nonce) in names {
            self.read_record(&name, nonce, view)?;
        }
        Ok(())
    }

    fn read_record(&self, name: &str, nonce: Nonce, view: &mut View) -> Result<()> {
        (self.watch)("read a record");
        match read::<Record>(&self.path.join(name)) {
            Ok(Some(record)) if record.nonce == nonce => {
                let life = record.member.process.life(&self.here);
                view.unreadable.remove(name);
                let (record, gone) = (record.into(), false);
                view.others.insert(nonce, Sighting { record, life, gone });
            }
            Ok(_) => _ = view.unreadable.insert(name.to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(known) = view.others.get_mut(&nonce) {
                    known.gone = true;
                }
            }
            // It was replaced while it was read.
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => (),
            Err(error) => return Err(refused("read", &self.path.join(name), error)),
        }
        Ok(())
    }

    /// What was decided of a run, if anything.
    ///
    /// # Errors
    /// [`Io`](Status::Io).
    pub fn verdict(&self, run: &Run) -> Result<Option<Verdict>> {
        (self.watch)("read the verdict");
        let path = self.path.join(run_name(run)).join("verdict.json");
        match read::<Decided>(&path) {
            Ok(Some(decided)) if decided.run == *run => Ok(Some(decided.verdict)),
            Ok(_) => Err(Error::new(
                Status::Io,
                format!(
                    "{} is not what a process of this version writes",
                    path.display()
                ),
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => Ok(None),
            Err(error) => Err(refused("read", &path, error)),
        }
    }

    /// Decides of a run, unless somebody has. Returns what is decided.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn decide(&self, own: &Nonce, run: &Run, verdict: Verdict) -> Result<Verdict> {
        let decided = Decided {
            run: run.clone(),
            verdict,
        };
        let name = run_name(run);
        let draft = self.path.join(format!(".{name}-{own}"));
        (self.watch)("write the verdict");
        let written =
            fs::create_dir(&draft).and_then(|()| write(&draft.join("verdict.json"), &decided));
        (self.watch)("rename the verdict");
        let renamed = written.and_then(|()| fs::rename(&draft, self.path.join(name)));
        if renamed.is_err() {
            _ = fs::remove_dir_all(&draft);
        }
        // A network may repeat a request that was already done and tell of the second one's failure: what
        // counts is what is there.
        match (self.verdict(run)?, renamed) {
            (Some(verdict), _) => Ok(verdict),
            (None, Err(error)) => Err(self.lost(error)),
            (None, Ok(())) => Err(self.lost(ErrorKind::NotFound.into())),
        }
    }

    /// Removes this process's record; the verdict of a run that this process was to be part of, if
    /// nobody of the run is left to read it; and the folder, if nothing is left in it. What cannot be
    /// removed stays, to be found by the next run.
    ///
    /// Of two that leave at the same time one finds both records removed, since each removes its
    /// own before it looks. A verdict may be about a process that never promised, and leaves last.
    pub fn leave(&self, own: &Record) {
        (self.watch)("remove the record");
        _ = fs::remove_file(self.path.join(file_name(own.member.index, &own.nonce)));
        (self.watch)("look for verdicts");
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let is_verdict = entry.file_name().to_string_lossy().starts_with("run-");
            if is_verdict
                && let Ok(Some(decided)) = read::<Decided>(&entry.path().join("verdict.json"))
            {
                self.forget(own, &decided.run, &entry.path());
            }
        }
        (self.watch)("remove the folder");
        _ = fs::remove_dir(&self.path);
    }

    /// Removes a run's verdict, if this process was the last that could need it.
    fn forget(&self, own: &Record, run: &Run, verdict: &Path) {
        (self.watch)("look for the others");
        let mut records = (0..)
            .zip(&run.0)
            .map(|(index, nonce)| file_name(index, nonce));
        let absent = |name| {
            let found = fs::symlink_metadata(self.path.join(name));
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if run.0.contains(&own.nonce) && records.all(absent) {
            (self.watch)("remove the verdict");
            _ = fs::remove_dir_all(verdict);
        }
    }

    /// What it means that a file of this process's own is not to be had.
    fn lost(&self, error: io::Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => Error::new(
                Status::NotFound,
                format!(
                    "{} was removed while this process was joining: start all processes again",
                    self.path.display()
                ),
            )
            .because(error),
            _ => refused("write to", &self.path, error),
        }
    }
}

fn refused(verb: &str, path: &Path, error: io::Error) -> Error {
    let message = format!("cannot {verb} {} (`directory`): {error}", path.display());
    Error::new(Status::Io, message).because(error)
}

/// Writes a file, through to where it stays: over a network a full disk shows only then.
fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&serde_json::to_vec(content)?)?;
    file.sync_all()
}

/// Reads a file; `None` if it is something else.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LONGEST {
        true => Ok(None),
        false => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

/// What a process's record is called.
fn file_name(index: u32, nonce: &Nonce) -> String {
    format!("member-{index}-{nonce}.json")
}

/// Whose record is called so.
fn nonce_of(name: &str) -> Option<Nonce> {
    let rest = name.strip_prefix("member-")?.strip_suffix(".json")?;
    let (index, nonce) = rest.split_once('-')?;
    index.parse::<u32>().ok()?;
    Nonce::parse(nonce)
}

/// What a run's verdict is called.
fn run_name(run: &Run) -> String {
    let nonces = run.0.iter().flat_map(|nonce| nonce.0.to_le_bytes());
    let bytes: Vec<u8> = nonces.collect();
    format!("run-{:032x}", XxHash3_128::oneshot(&bytes))
}
