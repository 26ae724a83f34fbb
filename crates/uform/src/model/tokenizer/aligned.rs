//! A text with the place of each of its characters in the text it was made from.
//!
//! What normalising does to places follows the reference, the `NormalizedString` of the tokenizers library: a
//! step says of each character it writes how many it stands for, and the places follow from that.

use std::mem::take;

/// A place in a text: where it starts and ends, in UTF-16 units.
pub type Place = (u32, u32);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aligned {
    text: String,
    /// The place of each character.
    places: Vec<Place>,
}

/// A character that is written, and how many fewer are read for it: 0, one is; 1, none is, and it shares the
/// place of the one read last; -1, two are, and it has the place of the first.
pub type Change = (char, isize);

impl Aligned {
    /// A text as it is, which starts so many units into another.
    pub fn of(text: &str, mut at: u32) -> Aligned {
        let places = text.chars().map(|char| {
            let start = at;
            at += char.len_utf16() as u32;
            (start, at)
        });
        Aligned {
            places: places.collect(),
            text: text.to_owned(),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its characters and their places.
    pub fn chars(&self) -> impl Iterator<Item = (char, Place)> {
        self.text.chars().zip(self.places.iter().copied())
    }

    pub fn push(&mut self, char: char, place: Place) {
        self.text.push(char);
        self.places.push(place);
    }

    /// What changes make of it.
    pub fn changed(&self, changes: impl IntoIterator<Item = Change>) -> Aligned {
        let mut written = Aligned::default();
        // How many characters are read.
        let mut read = 0usize;
        for (char, change) in changes {
            let from = if change > 0 {
                read.saturating_sub(1)
            } else {
                let from = read;
                read += 1 + change.unsigned_abs();
                from
            };
            let place = self.places.get(from).or(self.places.last());
            written.push(char, place.copied().unwrap_or_default());
        }
        written
    }

    /// Another text in its stead, of which nothing is known: what both begin and end with keeps its place, and
    /// what is between has the place of all that was there.
    pub fn rewritten(mut self, text: &str) -> Aligned {
        let same = |(a, b): &(char, char)| a == b;
        let both = self.text.chars().zip(text.chars());
        let before = both.take_while(same).count();
        let (old, new) = (self.places.len(), text.chars().count());
        let both = self.text.chars().rev().zip(text.chars().rev());
        let most = old.min(new) - before;
        let after = both.take(most).take_while(same).count();
        let between = &self.places[before..old - after];
        let place = match (between, before) {
            ([first, .., last], _) => (first.0, last.1),
            ([only], _) => *only,
            ([], 0) => self.places.first().copied().unwrap_or_default(),
            ([], _) => self.places[before - 1],
        };
        let mut places = take(&mut self.places);
        let written = (0..new - before - after).map(|_| place);
        places.splice(before..old - after, written);
        Aligned {
            text: text.to_owned(),
            places,
        }
    }
}

/// Finds the places of pieces of a text, none of which begins before the one asked for before it.
pub struct Finder<'a> {
    aligned: &'a Aligned,
    /// The character that the last piece begins with, and where that starts.
    index: usize,
    start: usize,
}

impl<'a> Finder<'a> {
    pub fn new(aligned: &'a Aligned) -> Finder<'a> {
        Finder {
            aligned,
            index: 0,
            start: 0,
        }
    }

    /// The place of the bytes from `start` to `end`: of every character some of which is there.
    pub fn place(&mut self, start: usize, end: usize) -> Place {
        (self.index, self.start) = self.char_at(start);
        let (last, _) = self.char_at(end.max(start + 1) - 1);
        let places = &self.aligned.places;
        match (places.get(self.index), places.get(last)) {
            (Some(first), Some(last)) => (first.0, last.1),
            // Nothing is there.
            _ => Place::default(),
        }
    }

    /// The character that has the byte at `at`, and where it starts.
    fn char_at(&self, at: usize) -> (usize, usize) {
        let (mut index, mut start) = (self.index, self.start);
        for char in self.aligned.text[start..].chars() {
            if start + char.len_utf8() > at {
                break;
            }
            start += char.len_utf8();
            index += 1;
        }
        (index, start)
    }
}

#[cfg(test)]
mod tests {
    use super::{Aligned, Finder, Place};

    fn places(aligned: &Aligned) -> Vec<Place> {
        aligned.chars().map(|(_, place)| place).collect()
    }

    #[test]
    fn units_are_those_of_utf_16() {
        let aligned = Aligned::of("a🚲é", 7);
        assert_eq!(places(&aligned), [(7, 8), (8, 10), (10, 11)]);
    }

    #[test]
    fn changes_say_what_characters_stand_for() {
        let aligned = Aligned::of("abcd", 0);
        let changed = aligned.changed([('A', 0), ('+', 1), ('B', -1), ('D', 0)]);
        assert_eq!(changed.text(), "A+BD");
        assert_eq!(places(&changed), [(0, 1), (0, 1), (1, 2), (3, 4)]);
    }

    #[test]
    fn of_another_text_what_is_alike_keeps_its_place() {
        for (text, expected) in [
            ("abcd", vec![(0, 1), (1, 2), (2, 3), (3, 4)]),
            ("aXd", vec![(0, 1), (1, 3), (3, 4)]),
            (
                "aXYZcd",
                vec![(0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (3, 4)],
            ),
            ("ab+cd", vec![(0, 1), (1, 2), (1, 2), (2, 3), (3, 4)]),
            ("+abcd", vec![(0, 1), (0, 1), (1, 2), (2, 3), (3, 4)]),
            ("ad", vec![(0, 1), (3, 4)]),
            ("x", vec![(0, 4)]),
            ("", vec![]),
        ] {
            let rewritten = Aligned::of("abcd", 0).rewritten(text);
            assert_eq!(places(&rewritten), expected, "{text}");
            assert_eq!(rewritten.text(), text);
        }
    }

    #[test]
    fn a_piece_has_the_place_of_every_character_it_touches() {
        let aligned = Aligned::of("a🚲é", 0);
        let mut finder = Finder::new(&aligned);
        assert_eq!(finder.place(0, 3), (0, 3));
        assert_eq!(finder.place(3, 5), (1, 3));
        assert_eq!(finder.place(1, 7), (1, 4));
        assert_eq!(finder.place(5, 7), (3, 4));
    }
}
