//! The texts of one call, laid end to end in one buffer.

use crate::memory::{refused, reserve};
use crate::{Error, Result, Status};

/// What memory was refused for, in an error's words.
const TEXTS: &str = "a call's texts";

/// An ordered list of texts in one allocation: what a call is handed, copied
/// once from wherever the caller keeps its strings.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    joined: String,
    ends: Vec<usize>,
}

impl Texts {
    /// Makes room for `texts` more of them, of `bytes` of UTF-8 in all.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses it; nothing is lost.
    pub fn reserve(&mut self, texts: usize, bytes: usize) -> Result<()> {
        reserve(&mut self.ends, texts, TEXTS)?;
        let reserved = self.joined.try_reserve(bytes);
        reserved.map_err(|error| refused(bytes, TEXTS).because(error))
    }

    /// Appends one text.
    pub fn push(&mut self, text: &str) {
        self.joined.push_str(text);
        self.ends.push(self.joined.len());
    }

    /// Appends texts that lie end to end as UTF-8, each of them up to one of `ends`. What is behind the last
    /// of them begins a text that goes on.
    ///
    /// # Errors
    /// `OutOfMemory`; `Internal` when the bytes are something else.
    pub fn append(&mut self, utf8: &[u8], ends: &[u32]) -> Result<()> {
        let otherwise = || {
            Error::new(
                Status::Internal,
                "a call's texts are not as they are said to be",
            )
        };
        let text = str::from_utf8(utf8).map_err(|error| otherwise().because(error))?;
        let is_end = |end: &u32| text.is_char_boundary(*end as usize);
        if !ends.is_sorted() || !ends.iter().all(is_end) {
            return Err(otherwise());
        }
        self.reserve(ends.len(), text.len())?;
        let start = self.joined.len();
        self.joined.push_str(text);
        self.ends
            .extend(ends.iter().map(|end| start + *end as usize));
        Ok(())
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of UTF-8 in all of them.
    pub fn bytes(&self) -> usize {
        self.joined.len()
    }

    /// The text at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn get(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.joined[start..self.ends[index]]
    }
}

/// Who has texts that are copied when their call's turn comes, piece by piece.
pub trait Lender: Send {
    /// Appends some of what is left of them; whether there was anything.
    ///
    /// # Errors
    /// `OutOfMemory`, and whatever keeps it from doing so.
    fn next(&mut self, texts: &mut Texts) -> Result<bool>;
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut all = Texts::default();
        for text in texts {
            all.push(text.as_ref());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::Status;
    use crate::model::Texts;

    #[test]
    fn texts_come_back_as_they_went_in() {
        let given = ["", "a", "", "naïve 🦀", ""];
        let texts = Texts::from_iter(given);
        assert_eq!(texts.len(), given.len());
        assert_eq!(texts.bytes(), given.concat().len());
        for (index, text) in given.iter().enumerate() {
            assert_eq!(texts.get(index), *text);
        }
    }

    #[test]
    fn texts_that_lie_end_to_end_are_appended_piece_by_piece() {
        let mut texts = Texts::default();
        for (piece, ends) in [
            ("aé", &[0, 1, 1][..]),
            ("", &[]),
            ("b", &[0, 1]),
            ("c", &[]),
        ] {
            texts.append(piece.as_bytes(), ends).expect("sound");
        }
        let all = Vec::from_iter((0..texts.len()).map(|index| texts.get(index)));
        assert_eq!(all, ["", "a", "", "é", "b"]);
        let utf8 = "aé".as_bytes();
        for (bytes, ends) in [
            (utf8, &[2, 3][..]),
            (utf8, &[3, 1]),
            (utf8, &[4]),
            (&utf8[..2], &[1]),
        ] {
            let refused = texts.append(bytes, ends).map_err(|error| error.status());
            assert_eq!(refused, Err(Status::Internal), "{ends:?}");
        }
        assert_eq!((texts.len(), texts.bytes()), (5, 5));
    }
}
