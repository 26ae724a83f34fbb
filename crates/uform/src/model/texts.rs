//! The texts of one call, laid end to end in one buffer.

use crate::Result;
use crate::memory::{refused, reserve};

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
    use super::Texts;

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
}
