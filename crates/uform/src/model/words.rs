//! Words to pieces of a WordPiece vocabulary.
//!
//! A word becomes the longest entry it begins with, then the longest continuation (`##…`) the rest
//! begins with, and so on; a word of which some rest begins with none is one unknown token. Schuster and
//! Nakajima 2012, "Japanese and Korean Voice Search"; greedy as in BERT (arXiv 1810.04805).
//!
//! The tokenizers crate does the same with a trie, faster to walk than this is to ask, and slow to
//! build: of a model's cold start that was a third. What is hard about BERT's tokens, normalising and
//! cutting text into words, remains the crate's.

use std::borrow::Cow;
use std::collections::HashMap;

/// What a file says of a WordPiece vocabulary.
pub struct Vocabulary<'a> {
    /// Its entries and their ids; of two alike the last counts.
    pub entries: &'a [(Cow<'a, str>, u32)],
    /// What an entry begins with that continues a word, such as `##`.
    pub continuing_prefix: &'a str,
    /// The entry that stands for a word of no entries.
    pub unknown: &'a str,
    /// The most characters of a word that is looked up; a longer one is unknown.
    pub longest_word: usize,
}

/// A WordPiece vocabulary, ready to look words up in.
pub struct Words {
    /// Every entry, as a word begins with it.
    whole: HashMap<Box<str>, u32>,
    /// The entries that continue a word, without what marks them.
    continued: HashMap<Box<str>, u32>,
    unknown: u32,
    /// As [`Vocabulary::longest_word`].
    longest_word: usize,
    /// Bytes of the longest entry.
    longest_entry: usize,
}

impl Words {
    /// The vocabulary of a file; `None` when its unknown token is not among its entries.
    pub fn new(vocabulary: &Vocabulary<'_>) -> Option<Words> {
        let entries = vocabulary.entries;
        let mut whole = HashMap::with_capacity(entries.len());
        let mut continued = HashMap::with_capacity(entries.len() / 4);
        let mut longest_entry = 0;
        for (entry, id) in entries {
            longest_entry = longest_entry.max(entry.len());
            if let Some(rest) = entry.strip_prefix(vocabulary.continuing_prefix) {
                continued.insert(rest.into(), *id);
            }
            whole.insert(entry.as_ref().into(), *id);
        }
        Some(Words {
            unknown: *whole.get(vocabulary.unknown)?,
            whole,
            continued,
            longest_word: vocabulary.longest_word,
            longest_entry,
        })
    }

    /// The id of an entry.
    pub fn id(&self, entry: &str) -> Option<u32> {
        self.whole.get(entry).copied()
    }

    /// Appends the ids of a word, one at least unless it is empty.
    pub fn encode(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        let mut rest = word;
        // Counting takes a look at every byte, which bytes alone often make needless.
        if word.len() > self.longest_word && word.chars().count() > self.longest_word {
            ids.push(self.unknown);
            return;
        }
        let mut entries = &self.whole;
        while !rest.is_empty() {
            let Some((id, length)) = self.longest(entries, rest) else {
                ids.truncate(before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            rest = &rest[length..];
            entries = &self.continued;
        }
    }

    /// The longest entry that a text begins with, and its bytes.
    fn longest(&self, entries: &HashMap<Box<str>, u32>, text: &str) -> Option<(u32, usize)> {
        let most = text.len().min(self.longest_entry);
        let lengths = (1..=most).rev().filter(|end| text.is_char_boundary(*end));
        let mut found = lengths.map(|end| (entries.get(&text[..end]), end));
        found.find_map(|(id, end)| Some((*id?, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Vocabulary, Words};

    const ENTRIES: [(&str, u32); 10] = [
        ("?", 0),
        ("un", 1),
        ("una", 2),
        ("##able", 3),
        ("##a", 4),
        ("##b", 5),
        ("##", 6),
        ("#", 7),
        ("é", 8),
        ("##é", 9),
    ];

    fn words(unknown: &str) -> Option<Words> {
        let entries = ENTRIES.map(|(entry, id)| (entry.into(), id));
        Words::new(&Vocabulary {
            entries: &entries,
            continuing_prefix: "##",
            unknown,
            longest_word: 6,
        })
    }

    #[test]
    fn a_word_is_its_longest_beginning_and_so_on() {
        let words = words("?").expect("the unknown token is there");
        let table: &[(&str, &[u32])] = &[
            ("", &[]),
            ("un", &[1]),
            // Longest first, even if the rest comes out unknown.
            ("unable", &[0]),
            ("unaab", &[2, 4, 5]),
            ("una", &[2]),
            ("able", &[0]),
            ("##", &[6]),
            ("##a", &[4]),
            ("#a", &[7, 4]),
            ("éé", &[8, 9]),
            ("ü", &[0]),
            // Six characters of twelve bytes, and seven.
            ("éééééé", &[8, 9, 9, 9, 9, 9]),
            ("ééééééé", &[0]),
        ];
        for (word, expected) in table {
            let mut ids = vec![99];
            words.encode(word, &mut ids);
            assert_eq!(ids[1..], **expected, "{word:?}");
        }
        assert_eq!((words.id("##able"), words.id("able")), (Some(3), None));
    }

    #[test]
    fn a_vocabulary_needs_its_unknown_token() {
        assert!(words("[UNK]").is_none());
    }
}
