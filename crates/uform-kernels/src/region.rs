//! One stretch of memory for all packed weights of a model.
//!
//! A forward pass reads every weight once a block of tokens, many megabytes in order. In pages of
//! 4 KiB that is thousands of walks of the page table, which no cache holds: so the weights lie
//! next to each other, and Linux is asked for pages of 2 MiB. Measured with MiniLM in bf16 on AMX: the
//! dense layers of 256 tokens are a fifth faster, those of 8 tokens a quarter. Where the system has
//! no such pages, nothing else changes.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Result;
use crate::memory::{HUGE_PAGE, ask_for_huge_pages, refused};

/// What memory was refused for, in an error's words.
const WHAT: &str = "a model's weights";

/// One cache line, for its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; 16]);

/// Memory that weights are packed into, given out in allocations and freed as one.
pub struct Region {
    start: NonNull<Line>,
    layout: Layout,
    lines: usize,
    taken: AtomicUsize,
}

// SAFETY: each line belongs to the one allocation it was given out with, and its owner says how it is
// shared; the rest is an atomic counter and what never changes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Some lines of a region.
pub(super) struct Allocation {
    region: Arc<Region>,
    first: usize,
    lines: usize,
}

impl Region {
    /// A region for so many bytes of packed weights: the sum of their
    /// [`Kernels::packed_bytes`](super::Kernels::packed_bytes).
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses the memory.
    pub fn new(bytes: usize) -> Result<Arc<Region>> {
        let lines = bytes.div_ceil(size_of::<Line>()).max(1);
        let huge = bytes >= HUGE_PAGE;
        let align = if huge { HUGE_PAGE } else { align_of::<Line>() };
        let refused = || refused(bytes, WHAT);
        let size = lines.checked_mul(size_of::<Line>()).ok_or_else(refused)?;
        let layout = Layout::from_size_align(size, align).map_err(|_| refused())?;
        // SAFETY: the layout is not of size zero.
        let start = unsafe { alloc::alloc(layout) };
        let start = NonNull::new(start.cast::<Line>()).ok_or_else(refused)?;
        if huge {
            ask_for_huge_pages(start.cast(), size);
        }
        Ok(Arc::new(Region {
            start,
            layout,
            lines,
            taken: AtomicUsize::new(0),
        }))
    }

    /// An allocation with a region of its own.
    pub(super) fn whole(lines: usize) -> Result<Allocation> {
        let bytes = lines.saturating_mul(size_of::<Line>());
        let region = Region::new(bytes)?;
        region.take(lines).ok_or_else(|| refused(bytes, WHAT))
    }

    /// So many lines of it, uninitialised; `None` when there are not so many left.
    pub(super) fn take(self: &Arc<Self>, lines: usize) -> Option<Allocation> {
        let taken = |first: usize| first.checked_add(lines).filter(|end| *end <= self.lines);
        let order = Ordering::Relaxed;
        let first = self.taken.fetch_update(order, order, taken).ok()?;
        Some(Allocation {
            region: Arc::clone(self),
            first,
            lines,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no allocation is left.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

impl Allocation {
    /// Where it begins. It has no other owner.
    pub(super) fn start(&self) -> *mut f32 {
        // SAFETY: the allocation lies within the region.
        unsafe { self.region.start.as_ptr().add(self.first).cast() }
    }

    /// How many `f32` it takes.
    pub(super) fn floats(&self) -> usize {
        self.lines * size_of::<Line>() / 4
    }
}
