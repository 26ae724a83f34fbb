//! Where a text can be cut so that its ids are those of its parts.
//!
//! A long text is tokenized part by part, with turns for others between. BERT's words end at spaces, at
//! every sign of punctuation and around every ideograph, whatever follows; so a text can be cut before one
//! of them, where no added token reaches over the cut. What has no such place, a word of megabytes, need
//! not be read at all: above a number of characters every word is one unknown token, and its beginning
//! and its end say all that can be said of it.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use serde_json::Value;

/// Bytes of a part of a text, about.
const PART: usize = 32 << 10;

/// The ideographs that texts are cut between: assigned since Unicode 1.1, and decomposed by no form.
const IDEOGRAPHS: Range<u32> = 0x4e00..0x9fa6;

/// How texts of a tokenizer divide.
#[derive(Debug, PartialEq)]
pub struct Division {
    /// The ASCII punctuation that no added token has, a bit each.
    marks: u128,
    /// Whether ideographs stand alone.
    ideographs: bool,
    /// How much of a long word matters at either end; `None`: all of it does.
    edge: Option<usize>,
}

impl Division {
    /// That of a canonical file; `None` when it does not cut words as BERT does, or an added token reaches
    /// over a space.
    pub fn of(file: &Value) -> Option<Division> {
        let is = |part: &str, kind: &str| file[part]["type"] == kind;
        if !is("normalizer", "BertNormalizer") || !is("pre_tokenizer", "BertPreTokenizer") {
            return None;
        }
        let added = file["added_tokens"].as_array().into_iter().flatten();
        let added = added.map(|token| token["content"].as_str());
        let added: Vec<&str> = added.collect::<Option<_>>()?;
        if added
            .iter()
            .any(|token| token.contains(char::is_whitespace))
        {
            return None;
        }
        // What others become when they are normalised is not looked into.
        let ascii = added.iter().all(|token| token.is_ascii());
        let is_mark = |mark: &u8| {
            mark.is_ascii_punctuation() && !added.iter().any(|token| token.contains(*mark as char))
        };
        let marks = (0..128).filter(is_mark).map(|mark| 1 << mark);
        let is_word = |token: &&str| token.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let longest = added.iter().map(|token| token.len()).max().unwrap_or(0);
        let longest_word = file["model"]["max_input_chars_per_word"].as_u64();
        let longest_word = longest_word.and_then(|most| usize::try_from(most).ok());
        Some(Division {
            marks: if ascii { marks.sum() } else { 0 },
            ideographs: ascii && file["normalizer"]["handle_chinese_chars"] == true,
            // Added tokens take no more of a word than their length, and leave one that is too long.
            edge: longest_word
                .filter(|_| ascii && !added.iter().any(is_word))
                .map(|most| most + 1 + longest),
        })
    }

    /// Parts of a text whose ids, end to end, are the text's: of some milliseconds of work each, where it
    /// can be cut.
    pub fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        let mut rest = Some(text);
        iter::from_fn(move || {
            let text = rest?;
            let (part, after) = text.split_at(self.cut(text, PART).unwrap_or(text.len()));
            rest = (!after.is_empty()).then_some(after);
            Some(match part.len() > 2 * PART {
                true => self.shorten(part),
                false => Cow::Borrowed(part),
            })
        })
    }

    /// The first place after `least` where a text can be cut.
    fn cut(&self, text: &str, least: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        (least + 1..bytes.len()).find(|at| match (bytes[at - 1], bytes[*at]) {
            (before, b' ') if before.is_ascii_alphanumeric() => {
                bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
            }
            (before, mark @ 0..128) if before.is_ascii_alphanumeric() => {
                self.marks >> mark & 1 == 1
            }
            (0x80.., 0xe4..=0xe9) => {
                let (before, after) = text.split_at(*at);
                let near = [before.chars().next_back(), after.chars().next()];
                let is_ideograph = |near: Option<char>| {
                    near.is_some_and(|letter| IDEOGRAPHS.contains(&u32::from(letter)))
                };
                self.ideographs && near.into_iter().all(is_ideograph)
            }
            _ => false,
        })
    }

    /// The same text for the tokenizer, without the middle of its longest words.
    fn shorten<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(edge) = self.edge else {
            return Cow::Borrowed(text);
        };
        let mut short = String::new();
        let mut taken = 0;
        let mut start = 0;
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
        for word in text.as_bytes().split_inclusive(|byte| !is_word(byte)) {
            let end = start + word.len() - usize::from(!word.last().is_some_and(is_word));
            if end - start > 2 * edge {
                short.push_str(&text[taken..start + edge]);
                taken = end - edge;
            }
            start += word.len();
        }
        if taken == 0 {
            return Cow::Borrowed(text);
        }
        short.push_str(&text[taken..]);
        Cow::Owned(short)
    }
}

#[cfg(test)]
mod tests {
    use super::{Division, PART};
    use serde_json::{Value, json};

    /// A canonical file with an added token.
    fn file(added: &str) -> Value {
        json!({
            "normalizer": { "type": "BertNormalizer", "handle_chinese_chars": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "model": { "max_input_chars_per_word": 100 },
            "added_tokens": [{ "content": "[SEP]" }, { "content": added }],
        })
    }

    fn division(added: &str) -> Division {
        Division::of(&file(added)).expect("divisible")
    }

    #[test]
    fn texts_are_divided_where_words_are_berts_and_added_tokens_have_no_space() {
        assert!(Division::of(&file("[A B]")).is_none());
        for part in ["normalizer", "pre_tokenizer"] {
            let mut other = file("[A]");
            other[part]["type"] = json!("Whitespace");
            assert!(Division::of(&other).is_none(), "{part}");
        }
        let all = division("<a>");
        assert_eq!(all.edge, Some(106));
        assert!(all.ideographs);
        let marks = |division: &Division| {
            let is_mark = |mark: &char| division.marks >> u32::from(*mark) & 1 == 1;
            ('\0'..'\u{80}').filter(is_mark).collect::<String>()
        };
        assert_eq!(marks(&all), "!\"#$%&'()*+,-./:;=?@\\^_`{|}~");
        // A token within a word, and one that may become something else.
        assert_eq!(division("abc").edge, None);
        let other = division("<é>");
        assert_eq!(
            (other.edge, other.ideographs, marks(&other)),
            (None, false, String::new())
        );
    }

    #[test]
    fn a_text_is_cut_before_what_ends_a_word() {
        let division = division("<a>");
        for (text, least, cut) in [
            ("", 0, None),
            ("ab cd", 0, Some(2)),
            ("ab cd", 1, Some(2)),
            ("ab cd ef", 2, Some(5)),
            ("ab  cd, ef é g h", 0, Some("ab  cd".len())),
            ("ab  cd! ef", 7, None),
            ("é,é f", 0, None),
            ("ab<a>[SEP]c", 0, None),
            ("ab<a>[SEP]c.", 0, Some(11)),
            ("ab東京都", 0, Some("ab東".len())),
            ("東ab京", 0, None),
            ("東\u{301}京、都", 0, None),
            ("ab cd", 9, None),
        ] {
            assert_eq!(division.cut(text, least), cut, "{text:?} from {least}");
        }
    }

    #[test]
    fn a_long_word_is_its_ends() {
        let division = division("<a>");
        let edge = 106;
        let word = |length: usize| format!("{}xy", "a".repeat(length - 2));
        for (length, short) in [
            (2 * edge, 2 * edge),
            (2 * edge + 1, 2 * edge),
            (9999, 2 * edge),
        ] {
            for around in [
                ["", "-", ""],
                ["é<a>", "\u{301} z ", "."],
                ["b c ", ", d é", " e"],
            ] {
                let of = |length| around.join(&word(length));
                assert_eq!(
                    division.shorten(&of(length)),
                    of(short),
                    "{length} {around:?}"
                );
            }
        }
        let words = "ab ".repeat(PART) + &"a".repeat(4 * PART) + ", and the rest";
        let parts = Vec::from_iter(division.parts(&words));
        assert!(parts.iter().all(|part| part.len() < 2 * PART));
        assert!(parts.concat().ends_with("aaa, and the rest"));
        let unlike = Vec::from_iter(division.parts("a b"));
        assert_eq!(unlike, ["a b"]);
    }
}
