//! Cutting text by the regular expressions of a `tokenizer.json`.
//!
//! The crate has machines for the expressions of well-known models, and its reader leaves others for later,
//! where they fail with the first text. Here they are compiled while the file is read. An expression that gives up
//! on a text is an error, where the crate would leave the rest of the text uncut.
//!
//! The engine that runs them, with its tables of Unicode, would add more than half to what a page downloads. So
//! WebAssembly has none, and refuses the file.

#[cfg(feature = "native")]
use fancy_regex::Regex;
use tokenizers::SplitDelimiterBehavior;
use tokenizers::pipeline::{
    PipelinePreTokenizer, PreTokenizer, PreTokenizerScratch, Span, split_matches,
};
use tokenizers::pre_tokenizers::split::{Search, Split, SplitPattern};

/// What cuts texts: steps, each of which cuts further what the one before it left.
pub struct Cutter {
    steps: Vec<Step>,
}

enum Step {
    /// One that the crate runs.
    Crate(Box<PipelinePreTokenizer>),
    Regex {
        regex: Box<Regex>,
        behavior: SplitDelimiterBehavior,
        /// Whether the expression is of what is between.
        invert: bool,
    },
}

impl Cutter {
    /// What cuts as `pre_tokenizer` should; `None`: it does so itself.
    ///
    /// # Errors
    /// An expression that cannot be compiled, and why.
    pub fn of(pre_tokenizer: &PipelinePreTokenizer) -> Result<Option<Cutter>, String> {
        let steps = match pre_tokenizer {
            PipelinePreTokenizer::Sequence(sequence) if !sequence.is_deepseek() => {
                sequence.pre_tokenizers()
            }
            other => std::slice::from_ref(other),
        };
        if !steps.iter().any(|step| uncompiled(step).is_some()) {
            return Ok(None);
        }
        let compile = |step: &PipelinePreTokenizer| match uncompiled(step) {
            Some((pattern, split)) => Ok(Step::Regex {
                regex: Box::new(compiled(pattern)?),
                behavior: split.behavior,
                invert: split.invert,
            }),
            None => Ok(Step::Crate(Box::new(step.clone()))),
        };
        let steps = steps.iter().map(compile).collect::<Result<_, String>>()?;
        Ok(Some(Cutter { steps }))
    }

    /// Cuts a text.
    ///
    /// # Errors
    /// Those of the crate; an expression that takes too many steps.
    pub fn cut(
        &self,
        text: &str,
        scratch: &mut PreTokenizerScratch,
        words: &mut Vec<Span>,
    ) -> tokenizers::Result<()> {
        words.clear();
        if text.is_empty() {
            return Ok(());
        }
        words.push(Span::new(0, text.len() as u32));
        let mut parts = Vec::new();
        for step in &self.steps {
            parts.clear();
            for word in &*words {
                let from = parts.len();
                step.cut(&text[word.range()], scratch, &mut parts)?;
                for part in &mut parts[from..] {
                    part.start += word.start;
                    part.end += word.start;
                }
            }
            std::mem::swap(words, &mut parts);
        }
        Ok(())
    }
}

impl Step {
    fn cut(
        &self,
        text: &str,
        scratch: &mut PreTokenizerScratch,
        parts: &mut Vec<Span>,
    ) -> tokenizers::Result<()> {
        let (regex, behavior, invert) = match self {
            Step::Crate(step) => return step.pre_tokenize(text, scratch, parts),
            Step::Regex {
                regex,
                behavior,
                invert,
            } => (regex, *behavior, *invert),
        };
        let mut matches = Vec::new();
        let mut end = 0;
        for found in regex.find_iter(text) {
            let found = found?.range();
            if end < found.start {
                matches.push(((end, found.start), invert));
            }
            matches.push(((found.start, found.end), !invert));
            end = found.end;
        }
        if end < text.len() {
            matches.push(((end, text.len()), invert));
        }
        split_matches(parts, matches, behavior);
        Ok(())
    }
}

/// The expression of a step that the crate's reader has not compiled, and will not need a machine for.
fn uncompiled(step: &PipelinePreTokenizer) -> Option<(&str, &Split)> {
    let PipelinePreTokenizer::Split(split) = step else {
        return None;
    };
    let is_known = split.grammar().is_some()
        && !split.invert
        && split.behavior == SplitDelimiterBehavior::Isolated;
    match (&split.pattern, &split.search) {
        (SplitPattern::Regex(pattern), Search::Unavailable) if !is_known => Some((pattern, split)),
        _ => None,
    }
}

#[cfg(feature = "native")]
fn compiled(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| format!("the regular expression {pattern:?}: {error}"))
}

#[cfg(not(feature = "native"))]
fn compiled(pattern: &str) -> Result<Regex, String> {
    Err(format!(
        "the regular expression {pattern:?}: the native addon runs it, the WebAssembly build cannot"
    ))
}

/// There is none.
#[cfg(not(feature = "native"))]
enum Regex {}

#[cfg(not(feature = "native"))]
impl Regex {
    fn find_iter(&self, _text: &str) -> std::iter::Empty<tokenizers::Result<Found>> {
        match *self {}
    }
}

/// Of what there is none.
#[cfg(not(feature = "native"))]
struct Found(std::ops::Range<usize>);

#[cfg(not(feature = "native"))]
impl Found {
    fn range(self) -> std::ops::Range<usize> {
        self.0
    }
}
