//! Where a model's files come from: a [`Source`] gives bytes by name.
//!
//! A folder on disk is one ([`Folder`](self::folder::Folder)), a record of names
//! to bytes another ([`Memory`]). Names use `/` and are relative to the model's
//! root, as in `1_Pooling/config.json`. Everything above this file reads through [`fetch`],
//! [`require`] and, piece by piece, [`open`], which also recognise what is a file in name only.

pub mod blob;
pub mod document;
#[cfg(feature = "native")]
pub mod folder;
pub mod nearest;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::blob::{Blob, Reader};
use crate::error::{Error, Result, Status};
use crate::memory::{reserve, with_room};

/// The name of weights in one file.
pub(in crate::model) const SINGLE: &str = "model.safetensors";

/// The largest settings file that is read; the real ones are a few kilobytes.
pub const LARGEST_SETTINGS: u64 = 16 << 20;

/// The largest `tokenizer.json` that is read; the real ones stay below 40 MB.
pub const LARGEST_TOKENIZER: u64 = 256 << 20;

/// How a Git LFS pointer begins: three lines of text in the place of the file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// What some editors and shells write before a text, by its encoding.
const MARKS: [(&[u8], &str); 3] = [
    (b"\xef\xbb\xbf", "UTF-8"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
];

/// What gives a model's files, by name.
pub trait Source: Send + Sync {
    /// How a message calls the file `name`, such as its whole path; `""` is the root itself.
    fn locate(&self, name: &str) -> String;

    /// The size of a file in bytes; `None` when there is no such file.
    fn size(&self, name: &str) -> Result<Option<u64>>;

    /// The bytes of a file; `None` when there is no such file.
    fn read(&self, name: &str) -> Result<Option<Bytes>>;

    /// A file as [`read`](Self::read) gives it, for those who take it piece by piece.
    fn open(&self, name: &str) -> Result<Option<Blob>> {
        Ok(self.read(name)?.map(Blob::of_memory))
    }

    /// What lies in the root, for messages that say what is there instead of
    /// what was looked for. A source that cannot list returns nothing.
    fn names(&self) -> Vec<String>;
}

/// The bytes of one file, shared with whoever provided them.
pub type Bytes = Arc<Vec<u8>>;

/// A model's files as a browser hands them over, or a test makes them up: in memory, the large ones
/// rather elsewhere, in whoever's memory they came to.
#[derive(Clone, Default)]
pub struct Memory {
    /// What precedes every name in messages, such as a URL, or else the path of the weights.
    place: String,
    files: BTreeMap<String, Held>,
    /// Files that are known not to be there.
    absent: BTreeSet<String>,
    /// What lies in the root, as far as that is known.
    beside: Vec<String>,
}

#[derive(Clone)]
enum Held {
    Here(Bytes),
    Elsewhere(Arc<dyn Reader>),
}

impl Memory {
    /// Files by their names relative to the model's root.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Memory {
        let files = files.into_iter();
        Memory {
            files: files
                .map(|(name, bytes)| (name, Held::Here(Arc::new(bytes))))
                .collect(),
            ..Memory::default()
        }
    }

    /// No files yet, of a model at `place`: what ends with `/` precedes the files' names, as a URL does, and
    /// anything else is the path of its weights; `""`: it has none. `names` are of what lies in its root, wanted
    /// or not, where they are known: messages say what is there in the place of what is not.
    pub fn of(place: &str, names: Vec<String>) -> Memory {
        Memory {
            place: place.to_owned(),
            beside: names,
            ..Memory::default()
        }
    }

    /// Says that there is no such file, so that it is not [wanted](crate::model::load::wanted::wanted) again.
    pub fn absent(&mut self, name: &str) {
        self.absent.insert(name.to_owned());
    }

    /// Whether nothing is known yet of any file.
    pub(in crate::model) fn is_new(&self) -> bool {
        self.files.is_empty() && self.absent.is_empty()
    }

    /// Whether it is known if there is such a file.
    pub(in crate::model) fn knows(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.absent.contains(name)
    }

    /// Begins a file that comes in pieces, with room for the `size` it is expected to have.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) when the system refuses it.
    pub fn begin(&mut self, name: &str, size: usize) -> Result<()> {
        let bytes = with_room(size, "a model's files")?;
        self.files
            .insert(name.to_owned(), Held::Here(Arc::new(bytes)));
        Ok(())
    }

    /// Says who has a file: all of it, to be read until the files are dropped.
    pub fn lend(&mut self, name: &str, reader: Arc<dyn Reader>) {
        self.files.insert(name.to_owned(), Held::Elsewhere(reader));
    }

    /// Room for the next `more` bytes of a file that was begun, for the caller to fill.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) when the system refuses it, and
    /// [`Internal`](Status::Internal) for a file that was not begun, or is being read.
    pub fn append(&mut self, name: &str, more: usize) -> Result<&mut [u8]> {
        let bytes = match self.files.get_mut(name) {
            Some(Held::Here(bytes)) => Arc::get_mut(bytes),
            _ => None,
        };
        let Some(bytes) = bytes else {
            let message = format!("{name}: bytes for a file that takes none");
            return Err(Error::new(Status::Internal, message));
        };
        reserve(bytes, more, "a model's files")?;
        let start = bytes.len();
        bytes.resize(start + more, 0);
        Ok(&mut bytes[start..])
    }
}

impl Source for Memory {
    fn locate(&self, name: &str) -> String {
        let place = &*self.place;
        match (place, name) {
            ("", "") => "the model's files".to_owned(),
            (_, SINGLE) if !place.is_empty() && !place.ends_with('/') => place.to_owned(),
            _ => {
                let folder = place.rfind('/').map_or("", |end| &place[..=end]);
                format!("{folder}{name}")
            }
        }
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.files.get(name).map(|file| match file {
            Held::Here(bytes) => bytes.len() as u64,
            Held::Elsewhere(reader) => reader.size(),
        }))
    }

    fn read(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(match self.files.get(name) {
            None => None,
            Some(Held::Here(bytes)) => Some(Arc::clone(bytes)),
            Some(Held::Elsewhere(reader)) => {
                // What is too large for memory is refused there.
                let size = usize::try_from(reader.size()).unwrap_or(usize::MAX);
                let mut bytes = with_room(size, "a model's files")?;
                bytes.resize(size, 0);
                reader.read(0, &mut bytes)?;
                Some(Arc::new(bytes))
            }
        })
    }

    fn open(&self, name: &str) -> Result<Option<Blob>> {
        Ok(match self.files.get(name) {
            Some(Held::Elsewhere(reader)) => Some(Blob::of_reader(Arc::clone(reader))),
            _ => self.read(name)?.map(Blob::of_memory),
        })
    }

    fn names(&self) -> Vec<String> {
        self.files.keys().chain(&self.beside).cloned().collect()
    }
}

/// The bytes of the JSON file `name`, if there is one of at most `most` bytes.
///
/// # Errors
/// [`Status::CorruptModel`] for a larger file, a Git LFS pointer or what begins with a byte order mark, and
/// whatever the source says.
pub fn fetch(source: &dyn Source, name: &str, most: u64) -> Result<Option<Bytes>> {
    let Some(size) = source.size(name)? else {
        return Ok(None);
    };
    if size > most {
        return Err(Error::corrupt(format!(
            "{}: {size} bytes, more than any such file needs (at most {most} are read)",
            source.locate(name)
        )));
    }
    let Some(bytes) = source.read(name)? else {
        return Ok(None);
    };
    check_pointer(source, name, &bytes)?;
    check_mark(source, name, &bytes)?;
    Ok(Some(bytes))
}

/// A file of any size, to be taken piece by piece, if there is one.
///
/// # Errors
/// [`Status::CorruptModel`] for a Git LFS pointer, and whatever the source says.
pub fn open(source: &dyn Source, name: &str) -> Result<Option<Blob>> {
    let Some(blob) = source.open(name)? else {
        return Ok(None);
    };
    let most = usize::try_from(blob.size()).unwrap_or(usize::MAX);
    check_pointer(
        source,
        name,
        &blob.piece(0..LFS_POINTER.len().min(most), |_| ())?,
    )?;
    Ok(Some(blob))
}

/// Refuses what only stands for a file; `bytes` are its first ones at least.
fn check_pointer(source: &dyn Source, name: &str, bytes: &[u8]) -> Result<()> {
    if !bytes.starts_with(LFS_POINTER) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{}: a Git LFS pointer, not the file it stands for; run `git lfs pull` in the model's \
         repository, or download the file itself",
        source.locate(name)
    )))
}

/// Refuses a text that does not begin with its first character. JSON may not (RFC 8259, section 8.1), nor does
/// whatever else reads a model's files take it.
fn check_mark(source: &dyn Source, name: &str, bytes: &[u8]) -> Result<()> {
    let mark = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
    mark.map_or(Ok(()), |(_, encoding)| {
        Err(Error::corrupt(format!(
            "{}: begins with a byte order mark of {encoding}, which JSON has none of; save it as UTF-8 without one",
            source.locate(name)
        )))
    })
}

/// The bytes of a JSON file that must be there.
///
/// # Errors
/// [`Status::NotFound`] naming the file and `expected`, what it would have held; else as [`fetch`].
pub fn require(source: &dyn Source, name: &str, most: u64, expected: &str) -> Result<Bytes> {
    fetch(source, name, most)?.ok_or_else(|| {
        Error::new(
            Status::NotFound,
            format!("{}: no such file; expected {expected}", source.locate(name)),
        )
    })
}

/// Joins a folder of the model, `""` for its root, and a file in it.
pub fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Whether a name that a model's file gives for another stays inside the model's root.
pub fn stays_inside(name: &str) -> bool {
    !name.contains(['\\', ':', '\0'])
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_root_are_recognised() {
        for good in ["a", "a/b.json", "0_Transformer", "..a", "a..b"] {
            assert!(stays_inside(good), "{good}");
        }
        for bad in [
            "", "/a", "../a", "a/..", "a/../b", "./a", "a//b", "a/", "..\\a", "C:/a", "C:a", "a\0",
        ] {
            assert!(!stays_inside(bad), "{bad:?}");
        }
    }

    /// Bytes that somebody else has.
    struct Elsewhere(Vec<u8>);

    impl Reader for Elsewhere {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
            into.copy_from_slice(&self.0[at as usize..][..into.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_file_that_is_elsewhere_is_a_file() {
        let bytes = Vec::from_iter((0..300_000).map(|at| (at / 7) as u8));
        let mut files = Memory::of("https://host/model/", Vec::new());
        files.lend("weights", Arc::new(Elsewhere(bytes.clone())));
        assert_eq!(files.locate("weights"), "https://host/model/weights");
        assert_eq!(files.size("weights").unwrap(), Some(bytes.len() as u64));
        assert_eq!(*files.read("weights").unwrap().unwrap(), bytes);
        let blob = open(&files, "weights").unwrap().unwrap();
        let range = 1000..290_000;
        assert!(blob.piece(range.clone(), |_| ()).unwrap()[..] == bytes[range]);
        assert!(files.append("weights", 1).is_err());
    }

    #[test]
    fn a_pointer_is_not_a_file() {
        let text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
        let source = Memory::new([("config.json".to_owned(), text.into())]);
        let fetched = fetch(&source, "config.json", 1024).err();
        let opened = open(&source, "config.json").err();
        for error in [fetched.expect("refused"), opened.expect("refused")] {
            assert_eq!(error.status(), Status::CorruptModel);
            assert!(error.message().contains("git lfs pull"), "{error}");
        }
    }

    #[test]
    fn a_text_that_begins_with_a_byte_order_mark_says_so() {
        for (mark, encoding) in MARKS {
            let bytes = [mark, b"{}"].concat();
            let source = Memory::new([("config.json".to_owned(), bytes)]);
            let error = fetch(&source, "config.json", 1024).unwrap_err();
            assert_eq!(error.status(), Status::CorruptModel);
            let words = format!("config.json: begins with a byte order mark of {encoding}, ");
            assert!(error.message().starts_with(&words), "{error}");
        }
    }

    #[test]
    fn sizes_are_bounded_before_anything_is_read() {
        let source = Memory::new([("a".to_owned(), vec![0; 9])]);
        assert!(fetch(&source, "a", 9).is_ok());
        assert!(fetch(&source, "a", 8).is_err());
        assert!(fetch(&source, "b", 8).is_ok_and(|bytes| bytes.is_none()));
    }
}
