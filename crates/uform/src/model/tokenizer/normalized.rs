//! Normalising a text with the places of its characters.
//!
//! The text is always the one the tokenizers crate makes, so that its tokens are the model's. The places are
//! found beside it, step by step, by the rules of the reference; a step of which this file knows no rule, or one
//! that turns out otherwise than its rule says, has the places of [`Aligned::rewritten`].

use hashbrown::HashMap;
use tokenizers::Result;
use tokenizers::normalizers::metaspace::{MetaspaceNormalizer, PrependBehavior};
use tokenizers::normalizers::{BertNormalizer, Lowercase, Precompiled, Replace};
use tokenizers::pipeline::{Normalizer, PipelineNormalizer};
use tokenizers::utils::{SysRegex, search::ReplacePattern};
use unicode_normalization::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible,
};
use unicode_segmentation::UnicodeSegmentation;

use super::aligned::{Aligned, Change};

/// A text after all steps; `offset` is where it starts in the whole, in bytes.
pub fn normalize(
    steps: &[PipelineNormalizer],
    mut aligned: Aligned,
    offset: usize,
) -> Result<Aligned> {
    for step in steps {
        let text = step.normalize(aligned.text(), offset)?;
        if *text == *aligned.text() {
            continue;
        }
        let followed = follow(step, &aligned, offset)?;
        aligned = match followed {
            Some(followed) if followed.text() == &*text => followed,
            _ => {
                let text = text.into_owned();
                aligned.rewritten(&text)
            }
        };
    }
    Ok(aligned)
}

/// What a step makes of a text by its rule.
fn follow(step: &PipelineNormalizer, given: &Aligned, offset: usize) -> Result<Option<Aligned>> {
    Ok(Some(match step {
        PipelineNormalizer::Bert(step) => bert(step, given)?,
        PipelineNormalizer::NFD(_) => given.changed(decomposed(given, Form::Canonical)),
        PipelineNormalizer::NFKD(_) => given.changed(decomposed(given, Form::Compatible)),
        PipelineNormalizer::NFC(_) => given.changed(composed(decomposed(given, Form::Canonical))),
        PipelineNormalizer::NFKC(_) => given.changed(composed(decomposed(given, Form::Compatible))),
        PipelineNormalizer::Precompiled(step) => given.changed(mapped(step.parsed(), given.text())),
        PipelineNormalizer::Replace(step) => return replaced(step, given),
        PipelineNormalizer::Prepend(step) => {
            let mut written = Aligned::default();
            let first = given.chars().next().map(|(_, place)| place);
            for char in step.prepend.chars() {
                written.push(char, first.unwrap_or_default());
            }
            extend(&mut written, given.chars());
            written
        }
        PipelineNormalizer::Strip(step) => {
            let text = given.text();
            let before = match step.strip_left {
                true => text.len() - text.trim_start().len(),
                false => 0,
            };
            let kept = &text[before..];
            let kept = match step.strip_right {
                true => kept.trim_end(),
                false => kept,
            };
            let skipped = text[..before].chars().count();
            let mut written = Aligned::default();
            extend(
                &mut written,
                given.chars().skip(skipped).take(kept.chars().count()),
            );
            written
        }
        PipelineNormalizer::Metaspace(step) => metaspace(step, given, offset),
        PipelineNormalizer::Lowercase(_)
        | PipelineNormalizer::ByteLevel(_)
        | PipelineNormalizer::StripAccents(_)
        | PipelineNormalizer::Nmt(_) => each(step, given)?,
    }))
}

fn extend(written: &mut Aligned, chars: impl Iterator<Item = (char, super::aligned::Place)>) {
    for (char, place) in chars {
        written.push(char, place);
    }
}

/// A step that looks at one character at a time: what it makes of each has its place.
fn each(step: &dyn Normalizer, given: &Aligned) -> Result<Aligned> {
    let mut known: HashMap<char, Box<str>> = HashMap::new();
    let mut written = Aligned::default();
    for (char, place) in given.chars() {
        if !known.contains_key(&char) {
            let mut alone = [0; 4];
            let alone = char.encode_utf8(&mut alone);
            let made = step.normalize(alone, 0)?;
            known.insert(char, made.into());
        }
        for char in known[&char].chars() {
            written.push(char, place);
        }
    }
    Ok(written)
}

/// BERT's steps, each by itself.
fn bert(step: &BertNormalizer, given: &Aligned) -> Result<Aligned> {
    let clean = BertNormalizer::new(
        step.clean_text,
        step.handle_chinese_chars,
        Some(false),
        false,
    );
    let mut written = each(&clean, given)?;
    if step.strip_accents.unwrap_or(step.lowercase) {
        written = written.changed(decomposed(&written, Form::Canonical));
        let strip = BertNormalizer::new(false, false, Some(true), false);
        written = each(&strip, &written)?;
    }
    if step.lowercase {
        written = each(&Lowercase, &written)?;
    }
    Ok(written)
}

/// What characters are decomposed to.
#[derive(Clone, Copy)]
enum Form {
    Canonical,
    Compatible,
}

/// Characters decomposed, and marks put in order.
fn decomposed(given: &Aligned, form: Form) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::with_capacity(given.text().len());
    // Where the marks begin that are not in order yet.
    let mut marks = 0;
    let class = |(char, _): &Change| canonical_combining_class(*char);
    for char in given.text().chars() {
        let mut change = 0;
        let mut write = |char: char| {
            if canonical_combining_class(char) == 0 {
                changes[marks..].sort_by_key(class);
                marks = changes.len() + 1;
            }
            changes.push((char, change));
            change = 1;
        };
        match form {
            Form::Canonical => decompose_canonical(char, &mut write),
            Form::Compatible => decompose_compatible(char, &mut write),
        }
    }
    changes[marks..].sort_by_key(class);
    changes
}

/// Characters composed that were decomposed (Unicode, chapter 3.11).
fn composed(decomposed: Vec<Change>) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::with_capacity(decomposed.len());
    // The character that others may join, and the class of the last one behind it that did not.
    let mut starter: Option<usize> = None;
    let mut between: Option<u8> = None;
    for (char, change) in decomposed {
        let class = canonical_combining_class(char);
        if let Some(starter) = starter
            && between.is_none_or(|between| between < class)
            && let Some(both) = compose(changes[starter].0, char)
        {
            changes[starter] = (both, changes[starter].1 + change - 1);
            continue;
        }
        match (class, starter) {
            (0, _) => (starter, between) = (Some(changes.len()), None),
            (_, Some(_)) => between = Some(class),
            (_, None) => {}
        }
        changes.push((char, change));
    }
    changes
}

/// What SentencePiece's table makes of a text: of each cluster of a few bytes, else of each character.
fn mapped(table: &Precompiled, text: &str) -> Vec<Change> {
    /// The longest cluster that is looked up, in bytes.
    const LONGEST: usize = 5;
    let mut changes = Vec::with_capacity(text.len());
    for cluster in text.graphemes(true) {
        if cluster.len() <= LONGEST
            && let Some(new) = table.transform(cluster)
        {
            map(&mut changes, cluster.chars().count(), new);
            continue;
        }
        for char in cluster.chars() {
            match table.transform(char.encode_utf8(&mut [0; 4])) {
                Some(new) => map(&mut changes, 1, new),
                None => changes.push((char, 0)),
            }
        }
    }
    changes
}

/// Writes what so many characters are mapped to. Of more than those the last are added; of fewer the last one
/// stands for those that go, even if it was there before.
fn map(changes: &mut Vec<Change>, old: usize, new: &str) {
    changes.extend(new.chars().map(|char| (char, 0)));
    let count = new.chars().count();
    if count > old {
        let added = changes.len() - (count - old);
        changes[added..]
            .iter_mut()
            .for_each(|(_, change)| *change = 1);
    } else if let Some((_, change)) = changes.last_mut() {
        *change -= (old - count) as isize;
    }
}

/// Matches replaced: what is written has the place of the last character of the match.
fn replaced(step: &Replace, given: &Aligned) -> Result<Option<Aligned>> {
    let text = given.text();
    let matches: Vec<(usize, usize)> = match step.pattern() {
        ReplacePattern::String(pattern) => text
            .match_indices(pattern.as_str())
            .map(|(start, found)| (start, start + found.len()))
            .collect(),
        ReplacePattern::Regex(pattern) => SysRegex::new(pattern)?.find_iter(text).collect(),
    };
    let mut matches = matches.into_iter().peekable();
    let mut written = Aligned::default();
    let mut at = 0;
    for (char, place) in given.chars() {
        at += char.len_utf8();
        match matches.peek() {
            Some((start, end)) if at > *start => {
                if at == *end {
                    for char in step.content.chars() {
                        written.push(char, place);
                    }
                    matches.next();
                }
            }
            _ => written.push(char, place),
        }
    }
    Ok(Some(written))
}

/// Spaces marked: a mark in the place of a space has its place, one that is added that of what follows.
fn metaspace(step: &MetaspaceNormalizer, given: &Aligned, offset: usize) -> Aligned {
    let mark = step.delimiter();
    let is_first = |at: usize| match step.prepend() {
        PrependBehavior::Always => true,
        PrependBehavior::First => at == 0,
        PrependBehavior::Never => false,
    };
    let mut written = Aligned::default();
    if !step.drop_whitespace() {
        for (index, (char, place)) in given.chars().enumerate() {
            if index == 0 && char != ' ' && char != mark && is_first(offset) {
                written.push(mark, place);
            }
            written.push(if char == ' ' { mark } else { char }, place);
        }
        return written;
    }
    let mut at = offset;
    let mut is_word = false;
    for (char, place) in given.chars() {
        if char.is_whitespace() {
            is_word = false;
        } else {
            if !is_word && char != mark && is_first(at) {
                written.push(mark, place);
            }
            is_word = true;
            written.push(char, place);
        }
        at += char.len_utf8();
    }
    written
}
