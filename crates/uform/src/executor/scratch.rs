//! Scratch: the memory a lane computes in, kept from call to call.
//!
//! A forward pass needs the same few buffers layer after layer and call after
//! call, so a lane keeps one block and *carves* it into pieces. The block grows
//! to what was asked for and stays, except that one very large call does not
//! own the memory for ever: when [`MODEST_CALLS`] calls in a row needed less than a
//! quarter of it, it shrinks to what the largest of them needed.
//!
//! A layer of a hundred tokens passes through some hundred pages of 4 KiB, with as many walks of the
//! page table as rows go by. So a block that is large is whole pages of 2 MiB, for which Linux is
//! asked. Measured with MiniLM in blocks of 256 tokens: a fortieth faster in f32, a
//! twenty-fifth in bf16, a fifteenth in i8.

use std::alloc::{self, Layout};
use std::mem;
use std::ptr::NonNull;
use std::slice;

use crate::memory::{HUGE_PAGE, HUGE_PAGES, ask_for_huge_pages};
use crate::{Error, Result, Status};

/// A cache line, which is also the widest vector: where every piece begins.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Line::FLOATS]);

impl Line {
    const FLOATS: usize = 16;
}

/// Calls in a row that needed little, after which a block shrinks.
const MODEST_CALLS: u32 = 32;

/// Lines never given back: 1 MiB.
const SMALL: usize = (1 << 20) / size_of::<Line>();

/// The scratch of one lane: memory aligned to 64 bytes that grows and is reused.
#[derive(Default)]
pub struct Arena {
    block: Block,
    /// The most lines one carving of the running call took.
    needed: usize,
    /// Calls in a row that needed little, and the most they did.
    modest_calls: u32,
    modest_needed: usize,
}

impl Arena {
    /// An arena without memory.
    pub fn new() -> Self {
        Arena::default()
    }

    /// Pieces of `sizes` floats each, every one aligned to 64 bytes. What they
    /// hold is whatever an earlier carving left there.
    ///
    /// # Errors
    /// [`OutOfMemory`](Status::OutOfMemory) when the system refuses the memory;
    /// the arena stays usable.
    pub fn carve<const N: usize>(&mut self, sizes: [usize; N]) -> Result<[&mut [f32]; N]> {
        let lines = sizes
            .iter()
            .try_fold(0usize, |sum, size| {
                sum.checked_add(size.div_ceil(Line::FLOATS))
            })
            .ok_or_else(|| refused(usize::MAX))?;
        self.needed = self.needed.max(lines);
        self.grow(lines)?;
        let mut rest = self.floats();
        Ok(sizes.map(|size| {
            let whole = size.next_multiple_of(Line::FLOATS);
            let (piece, tail) = mem::take(&mut rest).split_at_mut(whole);
            rest = tail;
            &mut piece[..size]
        }))
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.block.lines * size_of::<Line>()
    }

    /// The call is over: counts it, and shrinks after many modest ones.
    pub(super) fn end_call(&mut self) {
        let needed = mem::take(&mut self.needed);
        if self.block.lines <= SMALL || needed > self.block.lines / 4 {
            self.modest_calls = 0;
            self.modest_needed = 0;
            return;
        }
        self.modest_calls += 1;
        self.modest_needed = self.modest_needed.max(needed);
        if self.modest_calls == MODEST_CALLS {
            // Fresh memory is smaller only after the old is gone; should even that
            // be refused, the next carving asks again.
            self.block = Block::default();
            self.block = Block::zeroed(self.modest_needed).unwrap_or_default();
            self.modest_calls = 0;
            self.modest_needed = 0;
        }
    }

    /// Makes room for so many lines: half as much again as there was, where that
    /// can be had, since the next batch is likely a little larger still.
    fn grow(&mut self, lines: usize) -> Result<()> {
        let held = self.block.lines;
        if lines <= held {
            return Ok(());
        }
        self.block = Block::default();
        self.block = Block::zeroed(lines.max(held + held / 2))
            .or_else(|| Block::zeroed(lines))
            .ok_or_else(|| refused(lines.saturating_mul(size_of::<Line>())))?;
        Ok(())
    }

    fn floats(&mut self) -> &mut [f32] {
        let floats = self.block.lines * Line::FLOATS;
        // SAFETY: a line is exactly its floats, without padding, and the block's are contiguous and
        // written.
        unsafe { slice::from_raw_parts_mut(self.block.start.as_ptr().cast(), floats) }
    }
}

/// Memory of some lines, all of it written.
struct Block {
    start: NonNull<Line>,
    lines: usize,
}

// SAFETY: a block owns its memory, as a vector does.
unsafe impl Send for Block {}
// SAFETY: as above; it is written only through `&mut`.
unsafe impl Sync for Block {}

impl Default for Block {
    fn default() -> Self {
        Block {
            start: NonNull::dangling(),
            lines: 0,
        }
    }
}

impl Block {
    /// Zeroed lines, or `None` when the system refuses: so many, or what makes the last huge page
    /// whole of which they take half. The lane that will use the pages touches them first, so they lie
    /// near its core.
    fn zeroed(lines: usize) -> Option<Block> {
        if lines == 0 {
            return Some(Block::default());
        }
        let bytes = lines.checked_mul(size_of::<Line>())?;
        let whole = bytes.checked_next_multiple_of(HUGE_PAGE)?;
        let bytes = if HUGE_PAGES && whole - bytes <= HUGE_PAGE / 2 {
            whole
        } else {
            bytes
        };
        let lines = bytes / size_of::<Line>();
        let layout = layout(lines)?;
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { alloc::alloc(layout) };
        let start = NonNull::new(memory)?;
        if layout.align() == HUGE_PAGE {
            ask_for_huge_pages(start, bytes);
        }
        // SAFETY: the memory has so many bytes, and zeros are floats.
        unsafe { start.write_bytes(0, bytes) };
        let start = start.cast();
        Some(Block { start, lines })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.lines).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated with the layout of so many lines.
            unsafe { alloc::dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

/// How so many lines lie: from a page's beginning if they fill one.
fn layout(lines: usize) -> Option<Layout> {
    let layout = Layout::array::<Line>(lines).ok()?;
    match HUGE_PAGES && layout.size() >= HUGE_PAGE {
        true => layout.align_to(HUGE_PAGE).ok(),
        false => Some(layout),
    }
}

fn refused(bytes: usize) -> Error {
    Error::new(
        Status::OutOfMemory,
        format!(
            "the system refused {bytes} bytes of scratch memory for one lane of the executor: \
             encode fewer or shorter texts a call"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::{Arena, Line, MODEST_CALLS};
    use crate::Status;

    #[test]
    fn pieces_are_aligned_apart_and_of_their_size() {
        let mut arena = Arena::new();
        for sizes in [[0, 0, 0], [1, 16, 17], [1000, 3, 0], [5, 5, 5]] {
            let pieces = arena.carve(sizes).unwrap();
            for ((at, piece), size) in pieces.into_iter().enumerate().zip(sizes) {
                assert_eq!(piece.len(), size);
                assert_eq!(piece.as_ptr().addr() % align_of::<Line>(), 0);
                piece.fill(at as f32);
            }
            let pieces = arena.carve(sizes).unwrap();
            for (at, piece) in pieces.into_iter().enumerate() {
                assert!(piece.iter().all(|value| *value == at as f32));
            }
        }
    }

    #[test]
    fn memory_is_reused_and_grows_only_when_needed() {
        let mut arena = Arena::new();
        let first = arena.carve([1 << 16]).unwrap()[0].as_ptr();
        let bytes = arena.bytes();
        for size in [1, 1000, 1 << 16] {
            assert_eq!(arena.carve([size]).unwrap()[0].as_ptr(), first);
            arena.end_call();
        }
        assert_eq!(arena.bytes(), bytes);
        arena.carve([(1 << 16) + 1]).unwrap();
        assert!(arena.bytes() > bytes && arena.bytes() <= 2 * bytes);
    }

    #[test]
    fn one_large_call_does_not_keep_its_memory() {
        let mut arena = Arena::new();
        arena.carve([1 << 22]).unwrap();
        arena.end_call();
        let large = arena.bytes();
        for _ in 1..MODEST_CALLS {
            arena.carve([1 << 17]).unwrap();
            arena.end_call();
            assert_eq!(arena.bytes(), large);
        }
        arena.carve([1 << 16]).unwrap();
        arena.end_call();
        assert_eq!(arena.bytes(), 4 << 17);
    }

    #[test]
    fn refused_memory_is_an_error_and_the_arena_goes_on() {
        let mut arena = Arena::new();
        for sizes in [
            [usize::MAX / 4, 0],
            [usize::MAX, usize::MAX],
            [usize::MAX / 8, 1],
        ] {
            let error = arena.carve(sizes).unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory);
        }
        arena.carve([100]).unwrap()[0].fill(1.0);
        arena.end_call();
        assert!(arena.bytes() > 0);
    }
}
