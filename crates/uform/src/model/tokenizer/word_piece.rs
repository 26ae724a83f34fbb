//! Words to pieces of a WordPiece vocabulary.
//!
//! A word becomes the longest entry it begins with, then the longest continuation (`##…`) the rest
//! begins with, and so on; a word of which some rest begins with none is one unknown token. Schuster and
//! Nakajima 2012, "Japanese and Korean Voice Search"; greedy as in BERT (arXiv 1810.04805).
//!
//! The tokenizers crate does the same with a trie, faster to walk than this is to ask, and slow to
//! build: of a model's cold start that was a third. What is hard about BERT's tokens, normalising and
//! cutting text into words, remains the crate's.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The entries of a vocabulary and their ids, in the order of a file: their texts end to end, so that there
/// is one piece of memory for all of them.
#[derive(Default)]
pub struct Entries {
    texts: String,
    /// Where each text ends, and its id.
    entries: Vec<(u32, u32)>,
}

impl Entries {
    /// Appends one; whether there is room, which is 4 GiB of texts.
    #[must_use]
    pub fn push(&mut self, text: &str, id: u32) -> bool {
        let Ok(end) = u32::try_from(self.texts.len() + text.len()) else {
            return false;
        };
        self.texts.push_str(text);
        self.entries.push((end, id));
        true
    }

    /// The text of an entry.
    fn text(&self, index: usize) -> &str {
        let start = match index {
            0 => 0,
            _ => self.entries[index - 1].0,
        };
        &self.texts[start as usize..self.entries[index].0 as usize]
    }
}

/// What a file says of a WordPiece vocabulary.
pub struct Vocabulary<'a> {
    /// Its entries and their ids; of two alike the last counts.
    pub entries: Entries,
    /// What an entry begins with that continues a word, such as `##`.
    pub continuing_prefix: &'a str,
    /// The entry that stands for a word of no entries.
    pub unknown: &'a str,
    /// The most characters of a word that is looked up; a longer one is unknown.
    pub longest_word: usize,
}

/// A WordPiece vocabulary, ready to look words up in.
pub struct Words {
    entries: Entries,
    /// Every entry, as a word begins with it.
    whole: Index,
    /// The entries that continue a word, without what marks them.
    continued: Index,
    hashing: DefaultHashBuilder,
    unknown: u32,
    /// As [`Vocabulary::longest_word`].
    longest_word: usize,
    /// Bytes of the longest entry.
    longest_entry: usize,
}

/// Some entries by their texts, of which so many bytes are left out.
struct Index {
    found: HashTable<u32>,
    without: usize,
}

impl Index {
    fn of(room: usize, without: usize) -> Index {
        Index {
            found: HashTable::with_capacity(room),
            without,
        }
    }

    /// Adds the entry at `index`; one of the same text goes.
    fn insert(&mut self, entries: &Entries, index: usize, hashing: &DefaultHashBuilder) {
        let text = |index: u32| &entries.text(index as usize)[self.without..];
        let hash = |index: &u32| hashing.hash_one(text(*index));
        // There are fewer entries than bytes of them.
        let index = index as u32;
        let is_same = |other: &u32| text(*other) == text(index);
        self.found.entry(hash(&index), is_same, hash).insert(index);
    }

    /// The id of an entry.
    fn get(&self, entries: &Entries, text: &str, hashing: &DefaultHashBuilder) -> Option<u32> {
        let is_text = |index: &u32| &entries.text(*index as usize)[self.without..] == text;
        let index = self.found.find(hashing.hash_one(text), is_text)?;
        Some(entries.entries[*index as usize].1)
    }
}

impl Words {
    /// The vocabulary of a file; `None` when its unknown token is not among its entries.
    pub fn new(vocabulary: Vocabulary<'_>) -> Option<Words> {
        let Vocabulary {
            entries,
            continuing_prefix,
            unknown,
            longest_word,
        } = vocabulary;
        let hashing = DefaultHashBuilder::default();
        let count = entries.entries.len();
        let mut whole = Index::of(count, 0);
        let mut continued = Index::of(count / 4, continuing_prefix.len());
        let mut longest_entry = 0;
        for index in 0..count {
            let text = entries.text(index);
            longest_entry = longest_entry.max(text.len());
            if text.starts_with(continuing_prefix) {
                continued.insert(&entries, index, &hashing);
            }
            whole.insert(&entries, index, &hashing);
        }
        Some(Words {
            unknown: whole.get(&entries, unknown, &hashing)?,
            entries,
            whole,
            continued,
            hashing,
            longest_word,
            longest_entry,
        })
    }

    /// The id of an entry.
    pub fn id(&self, entry: &str) -> Option<u32> {
        self.whole.get(&self.entries, entry, &self.hashing)
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
        let mut index = &self.whole;
        while !rest.is_empty() {
            let Some((id, length)) = self.longest(index, rest) else {
                ids.truncate(before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            rest = &rest[length..];
            index = &self.continued;
        }
    }

    /// As much of a word as says what it becomes, whatever it goes on with: a character more than is looked up.
    pub fn beginning<'a>(&self, word: &'a str) -> &'a str {
        if word.len() <= self.longest_word {
            return word;
        }
        let mut ends = word.char_indices().map(|(start, _)| start);
        &word[..ends.nth(self.longest_word + 1).unwrap_or(word.len())]
    }

    /// The longest entry that a text begins with, and its bytes.
    fn longest(&self, index: &Index, text: &str) -> Option<(u32, usize)> {
        let most = text.len().min(self.longest_entry);
        let lengths = (1..=most).rev().filter(|end| text.is_char_boundary(*end));
        let mut found = lengths.map(|end| {
            let id = index.get(&self.entries, &text[..end], &self.hashing);
            (id, end)
        });
        found.find_map(|(id, end)| Some((id?, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Entries, Vocabulary, Words};

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
        let mut entries = Entries::default();
        // Of two alike the last counts.
        for (entry, id) in [("una", 98), ("##a", 97)].into_iter().chain(ENTRIES) {
            assert!(entries.push(entry, id));
        }
        Words::new(Vocabulary {
            entries,
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
        for (word, beginning) in [
            ("", ""),
            ("unable", "unable"),
            ("unablest", "unables"),
            ("éééééé", "éééééé"),
            ("éééééééé", "ééééééé"),
        ] {
            assert_eq!(words.beginning(word), beginning);
        }
    }

    #[test]
    fn a_vocabulary_needs_its_unknown_token() {
        assert!(words("[UNK]").is_none());
    }
}
