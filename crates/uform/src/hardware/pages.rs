//! How memory is paged.

/// Asks the system to hold memory in pages of 2 MiB, before it is first touched: a thousand faults
/// become two. Advice that costs nothing where it is not taken, and changes no byte. Memory too
/// small to be sure of such a page is left as it is.
#[cfg(all(feature = "native", target_os = "linux"))]
pub fn prefer_huge(memory: &mut [f32]) {
    /// The smallest page, at which advice begins.
    const PAGE: usize = 4 << 10;
    /// Bytes that have a page of 2 MiB within them wherever they begin.
    const LEAST: usize = 4 << 20;
    if size_of_val(memory) < LEAST {
        return;
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(memory);
    // Whole pages only: what is left over would be advice about a neighbour's memory.
    let before = bytes.as_ptr().align_offset(PAGE);
    let whole = (bytes.len() - before) / PAGE * PAGE;
    let start = bytes[before..].as_mut_ptr();
    // SAFETY: the pages are the slice's own, and the advice changes no byte of them.
    unsafe { libc::madvise(start.cast(), whole, libc::MADV_HUGEPAGE) };
}

/// Nothing to ask.
#[cfg(not(all(feature = "native", target_os = "linux")))]
pub fn prefer_huge(_: &mut [f32]) {}

#[cfg(test)]
mod tests {
    use super::prefer_huge;

    #[test]
    fn memory_of_any_size_keeps_its_numbers() {
        for count in [0, 1, 5000, (1 << 20) - 1, 1 << 20, (5 << 20) + 3] {
            let mut memory = vec![1.5f32; count];
            prefer_huge(&mut memory);
            assert!(memory.iter().all(|value| *value == 1.5));
            memory.fill(2.5);
            assert!(memory.iter().all(|value| *value == 2.5));
        }
    }
}
