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
use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::FileExt,
    time::SystemTime,
};

use super::Bytes;
#[cfg(feature = "native")]
use crate::error::Error;
use crate::error::Result;
use crate::executor::{complete, pause};
use crate::hardware::pages::prefer_huge;
use crate::memory::{with_room, zeros};

/// What memory was refused for, in an error's words.
const WHAT: &str = "a model's weights";

/// Bytes that are looked at together: few enough to stay in a core's own cache.
const CHUNK: usize = 128 << 10;

/// Bytes after which others have their turn.
const STEP: usize = 32 * CHUNK;

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

    /// Whether all that was read so far is of one file, as it was when it was opened.
    ///
    /// # Errors
    /// `CorruptModel` when it was written to in the meantime.
    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
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
    written: Written,
}

/// How many bytes a file has and when it was last written to, where the system tells. Systems count that time in steps
/// of some milliseconds: a write in the same step as the one before it, to the same size, is not seen.
#[cfg(feature = "native")]
#[derive(PartialEq, Eq)]
pub(super) struct Written(u64, Option<SystemTime>);

#[cfg(feature = "native")]
impl Written {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Written(metadata.len(), metadata.modified().ok())
    }
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
        let metadata = file.metadata()?;
        Ok(Blob::of_reader(Arc::new(Disk {
            file,
            place,
            bytes: metadata.len(),
            written: Written::of(&metadata),
        })))
    }

    /// How many bytes it has, or had when it was opened.
    pub fn size(&self) -> u64 {
        match &self.0 {
            Contents::Memory(bytes) => bytes.len() as u64,
            Contents::Elsewhere(file) => file.reader.size(),
        }
    }

    /// Whether all pieces so far are of one file, as it was when it was opened. To be asked after the last one.
    ///
    /// # Errors
    /// `CorruptModel` when it was written to in the meantime.
    pub fn check_unchanged(&self) -> Result<()> {
        match &self.0 {
            Contents::Memory(_) => Ok(()),
            Contents::Elsewhere(file) => file.reader.check_unchanged(),
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
        complete(self.piece_in_steps(range, look))
    }

    /// [`piece`](Self::piece), with a [`pause`] after every few megabytes.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub async fn piece_in_steps(
        &self,
        range: Range<usize>,
        mut look: impl FnMut(&[u8]),
    ) -> Result<Piece<'_>> {
        assert!(range.end as u64 <= self.size(), "a range within the file");
        Ok(Piece(match &self.0 {
            Contents::Memory(bytes) => {
                let bytes = &bytes[range];
                for step in bytes.chunks(STEP) {
                    step.chunks(CHUNK).for_each(&mut look);
                    rest(step).await;
                }
                Held::Shared(bytes)
            }
            Contents::Elsewhere(file) => Held::Read(file.read(range, look).await?),
        }))
    }
}

/// Others' turn after a whole step.
async fn rest(step: &[u8]) {
    if step.len() == STEP {
        pause().await;
    }
}

impl Elsewhere {
    async fn read(&self, range: Range<usize>, look: impl FnMut(&[u8])) -> Result<Buffer<'_>> {
        let count = range.len().div_ceil(size_of::<f32>());
        let mut buffer = Buffer {
            floats: Vec::new(),
            bytes: range.len(),
            file: self,
        };
        match self.spared(count) {
            Some(floats) => buffer.floats = floats,
            // WebAssembly brings no memory that is known to be zero: that would be written twice.
            None if cfg!(not(feature = "native")) && buffer.bytes > CHUNK => {
                buffer.floats = self.grown(range, look).await?;
                return Ok(buffer);
            }
            None => buffer.floats = fresh(count)?,
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer.floats);
        self.fill(range.start, &mut bytes[..range.len()], look)
            .await?;
        Ok(buffer)
    }

    /// The bytes of a range, and what is left of the last float.
    async fn grown(&self, range: Range<usize>, mut look: impl FnMut(&[u8])) -> Result<Vec<f32>> {
        let mut floats = with_room(range.len().div_ceil(size_of::<f32>()), WHAT)?;
        let count = CHUNK / size_of::<f32>();
        let mut passing = Buffer {
            floats: self.spared(count).map_or_else(|| fresh(count), Ok)?,
            bytes: CHUNK,
            file: self,
        };
        for start in range.clone().step_by(CHUNK) {
            let length = CHUNK.min(range.end - start);
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut passing.floats);
            self.fill(start, &mut bytes[..length], &mut look).await?;
            floats.extend_from_slice(&passing.floats[..length.div_ceil(size_of::<f32>())]);
            if (start - range.start + CHUNK).is_multiple_of(STEP) {
                pause().await;
            }
        }
        Ok(floats)
    }

    /// Reads the bytes from a place on.
    async fn fill(
        &self,
        start: usize,
        bytes: &mut [u8],
        mut look: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut at = start as u64;
        for step in bytes.chunks_mut(STEP) {
            for chunk in step.chunks_mut(CHUNK) {
                self.reader.read(at, chunk)?;
                look(chunk);
                at += chunk.len() as u64;
            }
            rest(step).await;
        }
        Ok(())
    }

    /// Memory for so many floats at least, which hold whatever they hold, if some is left of another piece.
    fn spared(&self, count: usize) -> Option<Vec<f32>> {
        if count * size_of::<f32>() < KEPT {
            return None;
        }
        let mut spare = self.spare();
        let fits = spare.iter().position(|floats| floats.len() >= count)?;
        Some(spare.swap_remove(fits))
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<f32>>> {
        // A list is valid whatever a panicking thread was doing.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// New memory for so many floats.
fn fresh(count: usize) -> Result<Vec<f32>> {
    let mut floats = zeros(count, WHAT)?;
    prefer_huge(&mut floats);
    Ok(floats)
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

    fn check_unchanged(&self) -> Result<()> {
        let place = &self.place;
        match self.file.metadata() {
            Ok(now) if Written::of(&now) == self.written => Ok(()),
            Ok(_) => Err(written_to(place)),
            Err(error) => {
                Err(Error::new(crate::Status::Io, format!("{place}: {error}")).because(error))
            }
        }
    }
}

/// A file that was written to while it was read.
#[cfg(feature = "native")]
pub(super) fn written_to(place: &str) -> Error {
    Error::corrupt(format!(
        "{place}: it was written to while it was being read; open the model again once the file is complete"
    ))
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
    use super::{Blob, CHUNK, Contents, STEP, complete};
    use crate::Status;
    use std::fs::{self, File, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

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
    fn memory_that_grows_with_a_piece_holds_the_same() {
        let bytes = numbers(STEP + 3 * CHUNK + 8);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        fs::write(&path, &bytes).unwrap();
        let disk = Blob::of_file(File::open(&path).unwrap(), "weights".into()).unwrap();
        let Contents::Elsewhere(file) = &disk.0 else {
            panic!("a file on disk");
        };
        for range in [
            0..bytes.len(),
            4..CHUNK + 12,
            CHUNK..2 * CHUNK,
            1..CHUNK + 3,
            8..8,
        ] {
            let mut seen = Vec::new();
            let look = |chunk: &[u8]| seen.extend_from_slice(chunk);
            let floats = complete(file.grown(range.clone(), look)).unwrap();
            assert_eq!(floats.len(), range.len().div_ceil(4));
            let held: &[u8] = bytemuck::cast_slice(&floats);
            assert!(
                held[..range.len()] == bytes[range.clone()] && seen == bytes[range.clone()],
                "{range:?}"
            );
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

    #[test]
    fn a_file_that_is_written_to_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        type Write = fn(&File);
        let writes: [(&str, Write); 3] = [
            ("other bytes", |file| {
                file.write_all_at(b"other", 9).unwrap()
            }),
            ("fewer bytes", |file| file.set_len(CHUNK as u64).unwrap()),
            ("more bytes", |file| file.set_len(3 * CHUNK as u64).unwrap()),
        ];
        for (what, write) in writes {
            fs::write(&path, numbers(2 * CHUNK)).unwrap();
            let disk = Blob::of_file(File::open(&path).unwrap(), "some weights".into()).unwrap();
            drop(disk.piece(0..CHUNK, |_| ()).unwrap());
            assert!(disk.check_unchanged().is_ok(), "{what}");
            // The system's clock of files has steps.
            thread::sleep(Duration::from_millis(30));
            write(&OpenOptions::new().write(true).open(&path).unwrap());
            let error = disk.check_unchanged().unwrap_err();
            assert_eq!(error.status(), Status::CorruptModel, "{what}");
            assert!(
                error.message().contains("some weights: it was written to"),
                "{what}"
            );
        }
    }

    #[test]
    fn a_file_that_gave_its_name_to_another_is_the_one_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["weights", "other"].map(|name| folder.path().join(name));
        fs::write(&path, numbers(CHUNK)).unwrap();
        let disk = Blob::of_file(File::open(&path).unwrap(), "weights".into()).unwrap();
        thread::sleep(Duration::from_millis(30));
        fs::write(&other, b"other").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(disk.piece(0..CHUNK, |_| ()).unwrap()[..] == numbers(CHUNK));
        assert!(disk.check_unchanged().is_ok());
    }
}
