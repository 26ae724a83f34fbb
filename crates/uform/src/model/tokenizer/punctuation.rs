//! Where words end: at what the reference takes for punctuation.
//!
//! Version 0.23 of the tokenizers library, by which models were trained and are used in Python, knows the
//! punctuation of an older Unicode. The crate's `BertPreTokenizer` and `Punctuation` know 141 characters more,
//! and two fewer. Nothing else that cuts text differs but by characters that no vocabulary has.

use std::fmt::Write as _;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tokenizers::pipeline::Span;
use unicode_categories::UnicodeCategories;

/// Characters that are no punctuation any more.
const NO_LONGER: [char; 2] = ['\u{166d}', '\u{111c9}'];

/// No punctuation lies beyond.
const LAST: char = '\u{1ffff}';

/// What the reference cuts at, beside white space.
pub fn is_punctuation(char: char) -> bool {
    char.is_ascii_punctuation() || char.is_punctuation()
}

/// Corrects the words that the crate's `BertPreTokenizer` cut a text into.
///
/// Words that touch were cut at punctuation. If neither side of a cut is any, the words are one.
pub fn correct(text: &str, words: &mut Vec<Span>) {
    if text.is_ascii() {
        return;
    }
    words.dedup_by(|next, word| {
        let is_cut = |word: &Span| {
            let word = &text[word.range()];
            word.chars().next_back().is_some_and(is_punctuation)
        };
        let begins = text[next.range()].chars().next();
        let is_one = word.end == next.start && !is_cut(word) && !begins.is_some_and(is_punctuation);
        if is_one {
            word.end = next.end;
        }
        is_one
    });
    if text.contains(NO_LONGER) {
        *words = words.iter().flat_map(|word| cut(text, *word)).collect();
    }
}

/// A word, cut at the characters that are no punctuation any more.
fn cut(text: &str, word: Span) -> Vec<Span> {
    let mut parts = Vec::new();
    let mut start = word.start;
    for (at, part) in text[word.range()].match_indices(NO_LONGER) {
        let (first, end) = (
            word.start + at as u32,
            word.start + (at + part.len()) as u32,
        );
        if start < first {
            parts.push(Span::new(start, first));
        }
        parts.push(Span::new(first, end));
        start = end;
    }
    if start < word.end {
        parts.push(Span::new(start, word.end));
    }
    parts
}

/// Rewrites the pre-tokenizers of a `tokenizer.json` that know another punctuation as one that is told it.
pub fn rewrite(pre_tokenizer: &mut Value) {
    let split = |behavior: &str| {
        json!({
            "type": "Split", "pattern": { "Regex": pattern() }, "behavior": behavior, "invert": false,
        })
    };
    match pre_tokenizer["type"].as_str() {
        Some("BertPreTokenizer") => {
            *pre_tokenizer = json!({
                "type": "Sequence",
                "pretokenizers": [{ "type": "WhitespaceSplit" }, split("Isolated")],
            });
        }
        Some("Punctuation") => {
            // The other ways to cut are those of the reference already.
            let behavior = pre_tokenizer["behavior"].as_str().unwrap_or("Isolated");
            if matches!(behavior, "Isolated" | "Removed") {
                *pre_tokenizer = split(behavior);
            }
        }
        Some("Sequence") => {
            let steps = pre_tokenizer["pretokenizers"].as_array_mut();
            steps.into_iter().flatten().for_each(rewrite);
        }
        _ => {}
    }
}

/// A regular expression of one character that is punctuation.
fn pattern() -> &'static str {
    static PATTERN: OnceLock<String> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut pattern = String::from("[");
        let mut chars = ('\0'..=LAST)
            .filter(|char| is_punctuation(*char))
            .peekable();
        while let Some(first) = chars.next() {
            let mut last = first;
            while let Some(next) = chars.next_if(|next| *next as u32 == last as u32 + 1) {
                last = next;
            }
            // Writing to a string does not fail.
            let _ = write!(
                pattern,
                "\\x{{{:x}}}-\\x{{{:x}}}",
                first as u32, last as u32
            );
        }
        pattern + "]"
    })
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use serde_json::{Value, json};
    use tokenizers::pipeline::{PreTokenizer, PreTokenizerScratch, Span};

    use super::{correct, rewrite};
    use crate::model::tokenizer::regexes::Cutter;

    /// The code points that the reference cuts `a?b` at, and how many words that makes: see
    /// `tests/fixtures/punctuation.py`.
    fn reference() -> Vec<(u32, u32, usize)> {
        let file = include_str!("../../../../../tests/fixtures/punctuation.json");
        serde_json::from_str(file).unwrap()
    }

    /// Cuts texts as a tokenizer of this pre-tokenizer does.
    fn cutter(pre_tokenizer: Value) -> impl FnMut(&str) -> Vec<Span> {
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
            "decoder": null,
            "model": { "type": "WordLevel", "unk_token": "?", "vocab": { "?": 0 } },
        });
        let canonical = tokenizers::canonicalize_str(&file.to_string()).unwrap();
        let steps = tokenizers::from_json(&canonical).unwrap();
        let cutter = Cutter::of(steps.get_pre_tokenizer()).unwrap();
        let mut scratch = PreTokenizerScratch::default();
        move |text| {
            let mut words = Vec::new();
            let steps = steps.get_pre_tokenizer();
            match &cutter {
                Some(cutter) => cutter.cut(text, &mut scratch, &mut words).unwrap(),
                None => steps.pre_tokenize(text, &mut scratch, &mut words).unwrap(),
            }
            words
        }
    }

    #[test]
    fn newer_punctuation_cuts_words_where_the_reference_does_and_nowhere_else() {
        let mut cut = cutter(json!({ "type": "BertPreTokenizer" }));
        let mut told = json!({ "type": "BertPreTokenizer" });
        rewrite(&mut told);
        let mut cut_as_told = cutter(told);
        let reference = reference();
        let mut ranges = reference.iter().peekable();
        for char in '\0'..=char::MAX {
            while ranges.next_if(|(_, last, _)| *last < char as u32).is_some() {}
            let expected = match ranges.peek() {
                Some((first, _, words)) if *first <= char as u32 => *words,
                _ => 1,
            };
            let text = format!("a{char}b");
            let mut words = cut(&text);
            correct(&text, &mut words);
            assert_eq!(words.len(), expected, "{char:?} {words:?}");
            if char > '~' {
                assert_eq!(cut_as_told(&text), words, "{char:?}");
            }
        }
    }

    #[test]
    fn punctuation_of_any_age_may_stand_together() {
        let mut cut = cutter(json!({ "type": "BertPreTokenizer" }));
        for (text, expected) in [
            ("a\u{61d}\u{61d}b c", &["a\u{61d}\u{61d}b", "c"][..]),
            ("\u{61d}!\u{61d}", &["\u{61d}", "!", "\u{61d}"]),
            (
                "é\u{166d}\u{166d}\u{61d}",
                &["é", "\u{166d}", "\u{166d}", "\u{61d}"],
            ),
            ("\u{111c9}", &["\u{111c9}"]),
            ("é \u{61d}", &["é", "\u{61d}"]),
        ] {
            let mut words = cut(text);
            correct(text, &mut words);
            let found: Vec<_> = words.iter().map(|word| &text[word.range()]).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
