//! Large vectors, whose memory may be refused, and pages for what is large.
//!
//! Rust ends the process when an ordinary vector cannot grow. What is sized by a
//! caller's texts or a model's weights is made here instead, and a refusal is
//! [`OutOfMemory`](Status::OutOfMemory).

use std::ptr::NonNull;

use crate::error::{Error, Result, Status};

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Whether this build asks for huge pages: on Linux.
pub const HUGE_PAGES: bool = cfg!(all(feature = "native", target_os = "linux"));

/// Asks for huge pages where whole ones fit into so many bytes from `start`, which is where one would
/// begin: advice that costs nothing where it is not taken.
#[cfg(all(feature = "native", target_os = "linux"))]
pub fn ask_for_huge_pages(start: NonNull<u8>, bytes: usize) {
    // Whole pages only: what is left over would be advice about a neighbour's memory.
    let whole = bytes / HUGE_PAGE * HUGE_PAGE;
    // SAFETY: the advice changes no byte of the memory.
    unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
}

/// Asks for huge pages, which this system has no advice for.
#[cfg(not(all(feature = "native", target_os = "linux")))]
pub fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}

/// An empty vector with room for `count` values of `what`.
///
/// # Errors
/// [`OutOfMemory`](Status::OutOfMemory) naming `what` and the bytes refused.
pub fn with_room<T>(count: usize, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    reserve(&mut values, count, what)?;
    Ok(values)
}

/// Room for `more` values in a vector of `what`.
///
/// # Errors
/// As [`with_room`]; the vector is as it was.
pub fn reserve<T>(values: &mut Vec<T>, more: usize, what: &str) -> Result<()> {
    values.try_reserve(more).map_err(|error| {
        let bytes = more.saturating_mul(size_of::<T>());
        refused(bytes, what).because(error)
    })
}

/// `count` zeros for `what`. Where they are many the system brings them, page by page as they are
/// touched.
///
/// # Errors
/// As [`with_room`].
pub fn zeros(count: usize, what: &str) -> Result<Vec<f32>> {
    bytemuck::allocation::try_zeroed_vec(count)
        .map_err(|()| refused(count.saturating_mul(size_of::<f32>()), what))
}

/// The error that the system refused so many bytes for `what`.
pub fn refused(bytes: usize, what: &str) -> Error {
    let message = format!(
        "the system refused {bytes} bytes for {what}: free what is not needed, or do less at a time"
    );
    Error::new(Status::OutOfMemory, message)
}

#[cfg(test)]
mod tests {
    use super::{with_room, zeros};
    use crate::Status;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert_eq!(zeros(3, "a test").unwrap(), [0.0; 3]);
        // Addresses of 32 bits have room for what they can count.
        let refused = (usize::BITS == 64).then(|| 1usize.rotate_right(6));
        for count in [usize::MAX, usize::MAX / 4].into_iter().chain(refused) {
            let error = with_room::<f32>(count, "a test").unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory);
            assert!(error.message().contains("a test"), "{error}");
        }
    }
}
