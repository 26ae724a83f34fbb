//! A file as memory, for as long as a model is being loaded.

use std::{
    fs::File,
    io,
    ops::{Deref, Range},
};

use memmap2::UncheckedAdvice;

/// A read-only memory map of a whole file.
///
/// It is meant to be short-lived: reading a page that another process has cut
/// off the file in the meantime raises `SIGBUS`. So a model copies what it keeps,
/// and drops its maps before its loading returns.
pub struct Mapping(memmap2::Mmap);

impl Mapping {
    /// Maps `file` as it is now.
    ///
    /// # Errors
    /// When the file is empty, or its file system does not map.
    pub fn of(file: &File) -> io::Result<Mapping> {
        // SAFETY: the map is private and read-only, so nothing in this process
        // changes its bytes. Another process might; the bytes are read as plain
        // numbers, which have no invalid values, and what decides about memory
        // safety (names, shapes, offsets) is copied out of the header once and checked there.
        unsafe { memmap2::Mmap::map(file) }.map(Mapping)
    }

    /// Lets go of the memory behind some bytes, which a later look fetches again.
    pub fn release(&self, bytes: Range<usize>) {
        // SAFETY: the map is read-only: its pages are the file's, and dropping them loses
        // nothing. A system that does not know the advice keeps them, which is allowed.
        let _ = unsafe {
            self.0
                .unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len())
        };
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
