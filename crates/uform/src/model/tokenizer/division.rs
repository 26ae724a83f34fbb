//! Where a text can be cut so that what BERT's normaliser makes of its parts, end to end, is what it makes
//! of the text.
//!
//! A long text is tokenized part by part, with turns for others between. The normaliser looks at a character
//! at a time, but for marks, which canonical ordering (Unicode, chapter 3.11) puts in order behind the letter
//! they belong to; and before and after it, added tokens are looked for. So a cut is anywhere but between
//! marks that may change places, and inside of what may be an added token. Words need not end there: the
//! [pipeline](super::pipeline) carries what was begun of one over to the next part.

use std::iter;

use hashbrown::HashSet;
use tokenizers::pipeline::{
    PipelineNormalizer, PipelinePreTokenizer, PipelineTokenizer, normalize_all,
};
use unicode_normalization::char::canonical_combining_class;

/// How texts of a tokenizer divide.
pub struct Division {
    steps: PipelineTokenizer,
    /// Whether marks are put in order.
    reorders: bool,
    /// The added tokens that are looked for in a text as it is.
    before: Neighbours,
    /// Those that are looked for in what it is normalised to.
    after: Neighbours,
}

impl Division {
    /// That of a pipeline; `None` when it does not normalise and cut words as BERT does, or an added token
    /// looks at what is around it.
    pub fn of(steps: &PipelineTokenizer) -> Option<Division> {
        let [PipelineNormalizer::Bert(bert)] = steps.get_normalizers() else {
            return None;
        };
        let PipelinePreTokenizer::Bert(_) = steps.get_pre_tokenizer() else {
            return None;
        };
        let added = steps.get_added_vocabulary().get_added_tokens_decoder();
        let looks_around = |content: &str| content.contains(char::is_whitespace);
        if added
            .values()
            .any(|token| token.single_word || looks_around(&token.content))
        {
            return None;
        }
        let neighbours = |normalized: bool| {
            let tokens = added
                .values()
                .filter(|token| token.normalized == normalized);
            Neighbours::of(tokens.map(|token| &*token.content))
        };
        Some(Division {
            reorders: bert.strip_accents.unwrap_or(bert.lowercase),
            before: neighbours(false),
            after: neighbours(true),
            steps: steps.clone(),
        })
    }

    /// The parts of a text, of `bytes` or a few more where it can be cut.
    pub fn parts<'a>(&self, text: &'a str, bytes: usize) -> impl Iterator<Item = &'a str> {
        let mut rest = text;
        iter::from_fn(move || {
            let (part, after) = rest.split_at(self.cut(rest, bytes).unwrap_or(rest.len()));
            rest = after;
            (!part.is_empty()).then_some(part)
        })
    }

    /// The first place from `least` bytes on where a text can be cut that begins where one was, or begins.
    fn cut(&self, text: &str, least: usize) -> Option<usize> {
        if text.len() <= least {
            return None;
        }
        let least = text.ceil_char_boundary(least);
        let mut left = text[..least].chars().next_back()?;
        // Only what stays can change places. Where nothing of this part does, it was cut where nothing
        // before could.
        let stays = text[..least].chars().rev().find_map(|char| self.face(char));
        let mut is_settled = stays.is_none_or(|face| is_starter(face.last));
        for (at, right) in text[least..].char_indices() {
            let face = self.face(right);
            let can_settle = is_settled || face.is_some_and(|face| is_starter(face.first));
            if (can_settle || !self.reorders) && !self.are_joined(left, right) {
                return Some(least + at);
            }
            if let Some(face) = face {
                is_settled = is_starter(face.last);
            }
            left = right;
        }
        None
    }

    /// Whether an added token may reach over the place between two characters.
    fn are_joined(&self, left: char, right: char) -> bool {
        self.before.have(left, right)
            || !self.after.is_empty() && {
                let faces = self.face(left).zip(self.face(right));
                faces.is_none_or(|(left, right)| {
                    let is_fixed = is_starter(left.last) && is_starter(right.first);
                    !is_fixed || self.after.have(left.last, right.first)
                })
            }
    }

    /// What a character is normalised to by itself; `None`: nothing.
    fn face(&self, char: char) -> Option<Face> {
        let normalizers = self.steps.get_normalizers();
        let mut alone = [0; 4];
        let alone = char.encode_utf8(&mut alone);
        // It does not fail; a text it failed on would not be encoded.
        let chars = normalize_all(normalizers, alone, 0).ok()?;
        let mut chars = chars.chars();
        let first = chars.next()?;
        let last = chars.next_back().unwrap_or(first);
        Some(Face { first, last })
    }
}

/// The ends of what a character is normalised to.
#[derive(Clone, Copy)]
struct Face {
    first: char,
    last: char,
}

/// Whether a character keeps its place. The three that do and decompose to marks that do not (U+0F73, U+0F75,
/// U+0F81) come to nothing where anything is put in order.
fn is_starter(char: char) -> bool {
    canonical_combining_class(char) == 0
}

/// The characters that are next to each other in some texts.
struct Neighbours(HashSet<(char, char)>);

impl Neighbours {
    fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Neighbours {
        Neighbours(
            texts
                .flat_map(|text| text.chars().zip(text.chars().skip(1)))
                .collect(),
        )
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn have(&self, left: char, right: char) -> bool {
        self.0.contains(&(left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::Division;
    use serde_json::{Value, json};

    /// The pipeline of a model of BERT's with an added token.
    fn file(added: Value) -> Value {
        json!({
            "version": "2.0",
            "added_tokens": [
                token("[SEP]", 1),
                added,
            ],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "lowercase": true, "strip_accents": null,
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "model": {
                "type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": { "?": 0, "[SEP]": 1, "<Ab>": 2 },
            },
        })
    }

    fn division_of(file: &Value) -> Option<Division> {
        let canonical = tokenizers::canonicalize_str(&file.to_string()).expect("sound");
        Division::of(&tokenizers::from_json(&canonical).expect("sound"))
    }

    fn token(content: &str, id: u32) -> Value {
        json!({
            "content": content, "id": id, "special": false, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    }

    #[test]
    fn texts_are_divided_where_berts_steps_and_the_added_tokens_allow_it() {
        assert!(division_of(&file(token("<Ab>", 2))).is_some());
        assert!(division_of(&file(token("A b", 2))).is_none());
        let mut whole_word = token("<Ab>", 2);
        whole_word["single_word"] = json!(true);
        assert!(division_of(&file(whole_word)).is_none());
        for (part, other) in [("normalizer", "Lowercase"), ("pre_tokenizer", "Whitespace")] {
            let mut file = file(token("<Ab>", 2));
            file[part] = json!({ "type": other });
            assert!(division_of(&file).is_none(), "{part}");
        }
    }

    #[test]
    fn a_text_is_cut_anywhere_but_between_marks_that_may_change_places_and_within_tokens() {
        let plain = division_of(&file(token("<Ab>", 2))).expect("divisible");
        let mut normalized = token("<Ab>", 2);
        normalized["normalized"] = json!(true);
        let normalized = division_of(&file(normalized)).expect("divisible");
        let mut cased = file(token("<Ab>", 2));
        cased["normalizer"]["lowercase"] = json!(false);
        let cased = division_of(&cased).expect("divisible");
        for (division, text, least, cut) in [
            (&plain, "", 1, None),
            (&plain, "ab", 2, None),
            (&plain, "ab", 1, Some(1)),
            (&plain, "   ", 2, Some(2)),
            (&plain, "é!", 1, Some(2)),
            (&plain, "a[SEP]b", 2, Some(6)),
            (&plain, "a[sep]b", 2, Some(2)),
            (&plain, "<Ab>", 1, None),
            (&plain, "<ab>", 1, Some(1)),
            // Marks that are taken off do not matter, others keep to what they belong to.
            (&plain, "e\u{301}\u{301}", 1, Some(1)),
            (&plain, "\u{301}\u{301}", 1, Some(2)),
            (&plain, "\u{200d}\u{301}", 1, Some(3)),
            (&plain, "e\u{1d165}\u{1d165}a", 1, Some(1)),
            (&plain, "e\u{1d165}\u{1d165}a", 2, Some(9)),
            (&plain, "e\u{1d165}\u{301}\u{200d}\u{1d165}", 2, None),
            (&cased, "e\u{1d165}\u{1d165}a", 2, Some(5)),
            // What may be of the token once it is normalised.
            (&normalized, "<aB>x", 1, Some(4)),
            (&normalized, "<a\0\0b>x", 2, Some(6)),
            (&normalized, "<Áb>", 2, None),
            (&normalized, "[Sep]", 1, Some(2)),
            (&normalized, "[SEP]", 1, None),
        ] {
            assert_eq!(division.cut(text, least), cut, "{text:?} from {least}");
        }
        let parts = plain.parts("ab[SEP]東京  ", 3);
        assert_eq!(Vec::from_iter(parts), ["ab[SEP]", "東", "京", "  "]);
        assert_eq!(plain.parts("", 3).count(), 0);
    }
}
