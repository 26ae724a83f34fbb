//! A large file of a model, read piece by piece into memory of our own.
//!
//! A memory map would show the file without copying it. But whoever cuts the file meanwhile ends the
//! process (`SIGBUS`), what was checked may change before it is used, and it is slower: a map costs
//! a page fault every 64 KiB, while a read copies at the speed of memory into a buffer that stays in
//! a core's caches from one tensor to the next. Measured with MiniLM's 90 MB in the system's cache:
//! see `benches/load.rs`.

use std::mem;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "native")]
use std::{fs::File, io, os::unix::fs::FileExt};

use super::files::Bytes;
#[cfg(feature = "native")]
use crate::error::Error;
use crate::error::Result;
use crate::hardware::pages::prefer_huge;
use crate::memory::zeros;

/// Bytes that are looked at together: few enough to stay in a core's own cache.
const CHUNK: usize = 128 << 10;

/// Buffers of fewer bytes are not worth keeping for the next piece.
const KEPT: usize = CHUNK;

/// A large file, in memory or elsewhere.
pub struct Blob(Contents);

enum Contents {
    Memory(Bytes),
    Elsewhere(Elsewhere),
}

/// Who has a file that is not in our memory, such as a disk.
pub trait Reader: Send + Sync {
    /// How many bytes it has.
    fn size(&self) -> u64;

    /// Copies the bytes from `at` on, within the size.
    ///
    /// # Errors
    /// Whatever keeps it from doing so.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// A file that is read.
struct Elsewhere {
    reader: Arc<dyn Reader>,
    /// Buffers of pieces that are no more.
    spare: Mutex<Vec<Vec<f32>>>,
}

/// A file on disk.
#[cfg(feature = "native")]
struct Disk {
    file: File,
    /// What messages call it.
    place: String,
    bytes: u64,
}

/// Some bytes of a [`Blob`].
pub struct Piece<'a>(Held<'a>);

enum Held<'a> {
    Shared(&'a [u8]),
    Read(Buffer<'a>),
}

/// Memory that goes back to where it came from. It is made of floats, for their alignment and
/// since most pieces are such.
struct Buffer<'a> {
    floats: Vec<f32>,
    bytes: usize,
    file: &'a Elsewhere,
}

impl Blob {
    /// A file that is in memory.
    pub fn of_memory(bytes: Bytes) -> Blob {
        Blob(Contents::Memory(bytes))
    }

    /// A file that somebody else has.
    pub fn of_reader(reader: Arc<dyn Reader>) -> Blob {
        Blob(Contents::Elsewhere(Elsewhere {
            reader,
            spare: Mutex::default(),
        }))
    }

    /// An open file, which messages call `place`, of the size it has now.
    ///
    /// # Errors
    /// When the system does not tell the size.
    #[cfg(feature = "native")]
    pub fn of_file(file: File, place: String) -> io::Result<Blob> {
        let bytes = file.metadata()?.len();
        Ok(Blob::of_reader(Arc::new(Disk { file, place, bytes })))
    }

    /// How many bytes it has, or had when it was opened.
    pub fn size(&self) -> u64 {
        match &self.0 {
            Contents::Memory(bytes) => bytes.len() as u64,
            Contents::Elsewhere(file) => file.reader.size(),
        }
    }

    /// The bytes of a range within the [`size`](Self::size). `look` sees them, in order and each
    /// once, while they are in a core's own cache: in chunks whose lengths are multiples of 64, but
    /// for the last.
    ///
    /// # Errors
    /// `OutOfMemory`, and those of the [`Reader`]: of a file on disk `CorruptModel` when it is shorter than
    /// it was, and `Io`.
    ///
    /// # Panics
    /// When a range reaches beyond the size.
    pub fn piece(&self, range: Range<usize>, look: impl FnMut(&[u8])) -> Result<Piece<'_>> {
        assert!(range.end as u64 <= self.size(), "a range within the file");
        Ok(Piece(match &self.0 {
            Contents::Memory(bytes) => {
                let bytes = &bytes[range];
                bytes.chunks(CHUNK).for_each(look);
                Held::Shared(bytes)
            }
            Contents::Elsewhere(file) => Held::Read(file.read(range, look)?),
        }))
    }
}

impl Elsewhere {
    fn read(&self, range: Range<usize>, mut look: impl FnMut(&[u8])) -> Result<Buffer<'_>> {
        let mut buffer = Buffer {
            floats: self.floats(range.len().div_ceil(size_of::<f32>()))?,
            bytes: range.len(),
            file: self,
        };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer.floats);
        let mut at = range.start as u64;
        for chunk in bytes[..range.len()].chunks_mut(CHUNK) {
            self.reader.read(at, chunk)?;
            look(chunk);
            at += chunk.len() as u64;
        }
        Ok(buffer)
    }

    /// Memory for so many floats at least, which hold whatever they hold.
    fn floats(&self, count: usize) -> Result<Vec<f32>> {
        if count * size_of::<f32>() >= KEPT {
            let mut spare = self.spare();
            if let Some(fits) = spare.iter().position(|floats| floats.len() >= count) {
                return Ok(spare.swap_remove(fits));
            }
        }
        let mut floats = zeros(count, "a model's weights")?;
        prefer_huge(&mut floats);
        Ok(floats)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        // A list is valid whatever a panicking thread was doing.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "native")]
impl Reader for Disk {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, at).map_err(|error| {
            let place = &self.place;
            match error.kind() {
                io::ErrorKind::UnexpectedEof => Error::corrupt(format!(
                    "{place}: it had {} bytes when it was opened and was cut while it was being read; \
                     open the model again once the file is complete",
                    self.bytes
                ))
                .because(error),
                _ => Error::new(crate::Status::Io, format!("{place}: {error}")).because(error),
            }
        })
    }
}

impl Piece<'_> {
    /// The numbers, when these are the bytes of numbers and lie as numbers must.
    pub fn floats(&self) -> Option<&[f32]> {
        bytemuck::try_cast_slice(self).ok()
    }

    /// The piece's own memory as numbers, or the piece back when it is not its own or larger.
    pub fn into_floats(self) -> std::result::Result<Vec<f32>, Self> {
        match self.0 {
            Held::Read(mut buffer) if buffer.bytes == size_of_val(buffer.floats.as_slice()) => {
                Ok(mem::take(&mut buffer.floats))
            }
            held => Err(Piece(held)),
        }
    }
}

impl Deref for Piece<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Shared(bytes) => bytes,
            Held::Read(buffer) => &bytemuck::cast_slice(&buffer.floats)[..buffer.bytes],
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let floats = mem::take(&mut self.floats);
        if size_of_val(floats.as_slice()) >= KEPT {
            self.file.spare().push(floats);
        }
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::{Blob, CHUNK};
    use crate::Status;
    use std::fs::{self, File, OpenOptions};
    use std::sync::Arc;

    fn numbers(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn a_file_and_the_same_bytes_in_memory_are_alike() {
        let bytes = numbers(3 * CHUNK + 5);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        fs::write(&path, &bytes).unwrap();
        let disk = Blob::of_file(File::open(&path).unwrap(), "weights".into()).unwrap();
        let memory = Blob::of_memory(Arc::new(bytes.clone()));
        let ranges = [
            0..0,
            0..bytes.len(),
            1..2,
            7..CHUNK + 9,
            CHUNK..3 * CHUNK,
            bytes.len() - 3..bytes.len(),
            bytes.len()..bytes.len(),
        ];
        for blob in [&disk, &memory] {
            assert_eq!(blob.size(), bytes.len() as u64);
            // Again: then buffers have been used before.
            for range in ranges.iter().chain(&ranges) {
                let mut seen = Vec::new();
                let look = |chunk: &[u8]| seen.extend_from_slice(chunk);
                let piece = blob.piece(range.clone(), look).unwrap();
                assert!(
                    piece[..] == bytes[range.clone()] && seen == piece[..],
                    "{range:?}"
                );
            }
        }
    }

    #[test]
    fn a_piece_of_its_own_becomes_numbers_without_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        let values = Vec::from_iter((0..CHUNK).map(|value| value as f32));
        fs::write(&path, bytemuck::cast_slice(&values)).unwrap();
        let disk = Blob::of_file(File::open(&path).unwrap(), "weights".into()).unwrap();
        let piece = disk.piece(0..4 * CHUNK, |_| ()).unwrap();
        let start = piece.as_ptr();
        let Ok(own) = piece.into_floats() else {
            panic!("a buffer of just its size");
        };
        assert!(own.as_ptr().cast() == start && own == values);
        // One that is larger than its piece is for the next.
        drop(disk.piece(0..4 * CHUNK, |_| ()).unwrap());
        let smaller = disk.piece(0..2 * CHUNK, |_| ()).unwrap();
        let Err(smaller) = smaller.into_floats() else {
            panic!("a buffer with room to spare");
        };
        assert!(smaller.floats() == Some(&values[..CHUNK / 2]));
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        fs::write(&path, numbers(2 * CHUNK)).unwrap();
        let disk = Blob::of_file(File::open(&path).unwrap(), "some weights".into()).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(CHUNK as u64 / 2).unwrap();
        assert!(disk.piece(0..CHUNK / 2, |_| ()).is_ok());
        let error = disk.piece(0..CHUNK, |_| ()).err().expect("an error");
        assert_eq!(error.status(), Status::CorruptModel);
        for words in ["some weights", "was cut", &(2 * CHUNK).to_string()] {
            assert!(error.message().contains(words), "{error}");
        }
    }
}
