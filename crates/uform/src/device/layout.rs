//! Numbers in a device's memory: where each kind of them lies in a buffer, and views of them.
//!
//! A [`Layout`] is made before there is memory, so that what will be needed is known first. It gives
//! each piece a [`Place`], and a [`Buffer`] as large as the layout has a [`View`] at each.

use std::marker::PhantomData;

use bytemuck::Pod;

use super::memory::Buffer;
use crate::{Error, Result};

/// What every piece's address is a multiple of, as that of a buffer is.
const ALIGNMENT: usize = 256;

/// Pieces of memory, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    bytes: usize,
}

/// Where a layout has a piece of so many numbers.
pub struct Place<T> {
    offset: usize,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl Layout {
    /// A layout of nothing.
    pub fn new() -> Layout {
        Layout::default()
    }

    /// A place for so many numbers, behind all others. A count beyond all memory
    /// makes the layout as large as can be said.
    pub fn add<T: Pod>(&mut self, count: usize) -> Place<T> {
        let offset = self.bytes;
        let bytes = count.saturating_mul(size_of::<T>());
        let end = offset.saturating_add(bytes);
        self.bytes = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end);
        Place::new(offset, count)
    }

    /// How large a buffer has to be.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T> Place<T> {
    /// So many numbers, from an offset in bytes on.
    pub fn new(offset: usize, count: usize) -> Place<T> {
        Place {
            offset,
            count,
            kind: PhantomData,
        }
    }

    /// So many of them, from one on.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn part(self, from: usize, count: usize) -> Place<T> {
        let end = from.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.count),
            "{count} numbers from {from} on are not among {}",
            self.count
        );
        Place::new(self.offset + from * size_of::<T>(), count)
    }

    /// Where it begins, in bytes.
    pub fn offset(self) -> usize {
        self.offset
    }

    /// How many numbers it has.
    pub fn count(self) -> usize {
        self.count
    }
}

/// Some numbers in a buffer.
///
/// It says where they are and how many, not what they are now: that is up to what was submitted.
pub struct View<'a, T> {
    buffer: &'a Buffer,
    offset: usize,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl Buffer {
    /// The numbers at a place.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) when the buffer is smaller than that.
    pub fn view<T: Pod>(&self, place: Place<T>) -> Result<View<'_, T>> {
        let bytes = place.count.checked_mul(size_of::<T>());
        let end = bytes.and_then(|bytes| place.offset.checked_add(bytes));
        if end.is_none_or(|end| end > self.bytes()) {
            return Err(Error::invalid(format!(
                "{} numbers at {} are not within a buffer of {} bytes",
                place.count,
                place.offset,
                self.bytes()
            )));
        }
        Ok(View {
            buffer: self,
            offset: place.offset,
            count: place.count,
            kind: PhantomData,
        })
    }
}

impl<'a, T: Pod> View<'a, T> {
    /// Where the first of them is, in the device's memory.
    pub fn address(self) -> u64 {
        self.buffer.address() + self.offset as u64
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// How many bytes they take.
    pub fn bytes(self) -> usize {
        self.count * size_of::<T>()
    }

    /// Whose memory it is.
    pub fn buffer(self) -> &'a Buffer {
        self.buffer
    }

    /// Where it begins in that.
    pub fn offset(self) -> usize {
        self.offset
    }

    /// So many of them, from one on.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn part(self, from: usize, count: usize) -> View<'a, T> {
        let part = Place::<T>::new(self.offset, self.count).part(from, count);
        View {
            offset: part.offset,
            count,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn places_follow_each_other_and_are_aligned() {
        let mut layout = Layout::new();
        let halves = layout.add::<u16>(3);
        let none = layout.add::<f32>(0);
        let floats = layout.add::<f32>(65);
        let last = layout.add::<u32>(1);
        assert_eq!((halves.offset(), halves.count()), (0, 3));
        assert_eq!((none.offset(), floats.offset()), (256, 256));
        assert_eq!((last.offset(), layout.bytes()), (768, 1024));
    }

    #[test]
    fn what_no_memory_holds_is_not_wrapped_around() {
        let mut layout = Layout::new();
        layout.add::<f32>(usize::MAX / 2);
        layout.add::<f32>(10);
        assert_eq!(layout.bytes(), usize::MAX);
    }
}
