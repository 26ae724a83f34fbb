//! Text to token ids, as the reference tokenizer makes them.

mod aligned;
mod division;
pub mod file;
mod located;
mod normalized;
mod pipeline;
mod punctuation;
mod regexes;
mod word_piece;

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::pipeline::{PipelineModel, PipelineToken, PipelineTokenizer};

use self::file::Surveyed;
use self::pipeline::{Encoding, Pipeline};
use crate::error::{Error, Result, Status};
use crate::executor::{complete, pause};
use crate::memory::with_room;
use crate::model::files::document::Document;
use crate::model::files::{LARGEST_TOKENIZER, Source, fetch, join};
use crate::model::settings::TokenSettings;

pub(in crate::model) const FILE: &str = "tokenizer.json";

/// Vocabularies without a tokenizer, to say what is there instead.
const FOREIGN: [&str; 4] = [
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
];

/// Tokenizers that cut words with a program of their language, and have no `tokenizer.json`.
const SLOW: [&str; 4] = [
    "BertJapaneseTokenizer",
    "BertweetTokenizer",
    "JumanppTokenizer",
    "PhobertTokenizer",
];

/// Texts, or parts of one, from this many bytes on are long enough for the tokenizer's own memory to matter.
const LONG: usize = 1 << 20;

/// What the tokenizer takes at most for each byte of a text: offsets, and ids as they grow.
const BYTES_A_BYTE: usize = 32;

/// The same where it says where tokens are: places of characters besides.
const BYTES_A_BYTE_LOCATED: usize = 96;

/// A model's tokenizer; one serves any number of threads at once.
pub struct Tokenizer {
    pipeline: Pipeline,
    /// What precedes every text, such as `[CLS]`.
    before: Vec<u32>,
    /// What follows every text, such as `[SEP]`.
    after: Vec<u32>,
    /// The ids of special tokens.
    special: Vec<u32>,
    /// The most tokens of a text, special ones included.
    limit: usize,
    cut_left: bool,
}

/// How a text is read where it spells a special token, such as `[SEP]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// As that token.
    #[default]
    Parse,
    /// As text like any other.
    Text,
}

/// The tokens of some texts, before any cut, those around each text included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The ids of all texts, one text after the other.
    pub ids: Vec<u32>,
    /// Where each text's ids begin, and, last, where all end.
    pub offsets: Vec<u32>,
    /// The start and the end of each token in its text, in UTF-16 units; 0 and 0 of those that are added
    /// around a text.
    pub spans: Vec<u32>,
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens {
            ids: Vec::new(),
            offsets: vec![0],
            spans: Vec::new(),
        }
    }
}

/// How many tokens a text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Before any cut, special ones included.
    pub tokens: u32,
    /// After it: how many ids there are.
    pub kept: u32,
}

impl Count {
    /// Whether some of the text's tokens were cut off.
    pub fn truncated(self) -> bool {
        self.kept < self.tokens
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` from a folder of the model, for an embedding table of `vocabulary` rows.
    ///
    /// The file's own truncation and padding are overridden by `settings` and by none.
    ///
    /// # Errors
    /// - `NotFound`: no `tokenizer.json`; `Unsupported`: only a bare vocabulary.
    /// - `CorruptModel`: the file is not a tokenizer, has ids beyond the table, or
    ///   adds more special tokens to a text than the limit admits.
    pub fn load(
        source: &dyn Source,
        folder: &str,
        settings: &TokenSettings,
        vocabulary: usize,
    ) -> Result<Tokenizer> {
        complete(Tokenizer::load_in_steps(
            source, folder, settings, vocabulary,
        ))
    }

    /// [`load`](Self::load), with a [`pause`] between reading the file and building what it describes.
    ///
    /// # Errors
    /// As there.
    pub async fn load_in_steps(
        source: &dyn Source,
        folder: &str,
        settings: &TokenSettings,
        vocabulary: usize,
    ) -> Result<Tokenizer> {
        let name = join(folder, FILE);
        let Some(bytes) = fetch(source, &name, LARGEST_TOKENIZER)? else {
            return Err(absent(source, folder));
        };
        let place = source.locate(&name);
        pause().await;
        let file = Surveyed::read(&place, &bytes)?;
        pause().await;
        let file = file.prepare(settings)?;
        pause().await;
        // Before anything is built: tables are as long as the largest id.
        check_id(&place, file.largest_id, vocabulary)?;
        let pipeline = build(&place, &file.canonical)?;
        let template = &pipeline.get_post_processor().single;
        let ids = |run: &[(PipelineToken, u8)]| run.iter().map(|(id, _)| id.id()).collect();
        let (before, after): (Vec<u32>, Vec<u32>) = (ids(&template.prefix), ids(&template.suffix));
        if template.has_type_ids() {
            return Err(Error::unsupported(format!(
                "{place}: its template gives a single text token types other than 0"
            )));
        }
        let added = pipeline.get_added_vocabulary().get_added_tokens_decoder();
        for id in before.iter().chain(&after).chain(added.keys()) {
            check_id(&place, *id, vocabulary)?;
        }
        if let PipelineModel::WordPiece(model) = pipeline.get_model()
            && model.unk_token().is_none()
        {
            return Err(Error::corrupt(format!(
                "{place}: model.unk_token is not in the vocabulary"
            )));
        }
        let around = before.len() + after.len();
        if settings.limit <= around {
            return Err(Error::corrupt(format!(
                "{place}: adds {around} tokens to a text, and the model's limit is {} tokens",
                settings.limit
            )));
        }
        Ok(Tokenizer {
            before,
            after,
            special: file.special,
            limit: settings.limit,
            cut_left: settings.cut_left.unwrap_or(file.cut_left),
            pipeline: Pipeline::new(pipeline, file.words, file.spelling).map_err(|error| {
                Error::unsupported(format!("{place}: {error}; it is not supported"))
            })?,
        })
    }

    /// Appends the ids of a text, cut to the limit: what the text has too many is
    /// cut off, and the special tokens around it stay.
    ///
    /// # Errors
    /// `CorruptModel` when the tokenizer itself fails on the text; `OutOfMemory`.
    pub fn encode(&self, text: &str, special: Special, out: &mut Vec<u32>) -> Result<Count> {
        complete(self.encode_in_steps(text, special, out))
    }

    /// [`encode`](Self::encode), with a [`pause`] between the parts of a long text.
    ///
    /// # Errors
    /// As there.
    pub async fn encode_in_steps(
        &self,
        text: &str,
        special: Special,
        out: &mut Vec<u32>,
    ) -> Result<Count> {
        let start = out.len();
        out.extend_from_slice(&self.before);
        let mut kept = Kept::new(out.len(), self.limit - self.around(), self.cut_left);
        let mut encoding = self.pipeline.begin(special);
        let mut parts = self.pipeline.parts(text).peekable();
        while let Some(part) = parts.next() {
            if let Err(error) = encode_part(&mut encoding, part, out) {
                out.truncate(start);
                return Err(error);
            }
            if parts.peek().is_some() {
                kept.cut(out);
                pause().await;
            }
        }
        encoding.end(out);
        kept.cut(out);
        out.extend_from_slice(&self.after);
        // A text has fewer tokens than bytes, and texts are below 4 GiB.
        Ok(Count {
            tokens: (self.around() + kept.tokens) as u32,
            kept: (out.len() - start) as u32,
        })
    }

    /// Appends the tokens of a text, uncut, and where they are in it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; `Unsupported` for more tokens than 32 bits count.
    pub fn locate(&self, text: &str, special: Special, tokens: &mut Tokens) -> Result<()> {
        if text.len() >= LONG {
            let bytes = text.len().saturating_mul(BYTES_A_BYTE_LOCATED);
            with_room::<u8>(bytes, "the tokens of a text")?;
        }
        let located = self.pipeline.locate(text, special).map_err(failed)?;
        let added = |id: &u32| (*id, (0, 0));
        let before = self.before.iter().map(added);
        let after = self.after.iter().map(added);
        for (id, (start, end)) in before.chain(located).chain(after) {
            tokens.ids.push(id);
            tokens.spans.extend([start, end]);
        }
        let count = u32::try_from(tokens.ids.len()).map_err(|_| {
            Error::unsupported("more tokens than 32 bits count: tokenize fewer texts at once")
        })?;
        tokens.offsets.push(count);
        Ok(())
    }

    /// How many special tokens there are around every text.
    fn around(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// How many tokens at the beginning of a prompted text belong to the prompt,
    /// as the reference counts them: all of the prompt's own, but for a special one at their end.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn prompt_tokens(&self, prompt: &str, special: Special) -> Result<usize> {
        let mut ids = Vec::new();
        self.encode(prompt, special, &mut ids)?;
        let ends_special = ids.last().is_some_and(|id| self.special.contains(id));
        Ok(ids.len() - usize::from(ends_special))
    }

    /// The most tokens of a text that are embedded, special ones included.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Appends the ids of a text's next part.
fn encode_part(encoding: &mut Encoding<'_>, part: &str, out: &mut Vec<u32>) -> Result<()> {
    if part.len() >= LONG {
        // The crate ends the process when it is refused memory. So it is asked for here
        // first, and given back at once.
        let bytes = part.len().saturating_mul(BYTES_A_BYTE);
        with_room::<u8>(bytes, "the tokens of a text")?;
    }
    encoding.part(part, out).map_err(failed)
}

/// The tokenizer itself failed on a text.
fn failed(error: tokenizers::Error) -> Error {
    Error::corrupt(format!("{FILE}: cannot encode a text: {error}")).because(error)
}

/// The tokens of a text that are under the limit, as more of them come.
struct Kept {
    /// Where they begin.
    first: usize,
    most: usize,
    cut_left: bool,
    /// How many there were before any cut.
    tokens: usize,
    /// How many of them are there.
    there: usize,
}

impl Kept {
    fn new(first: usize, most: usize, cut_left: bool) -> Kept {
        Kept {
            first,
            most,
            cut_left,
            tokens: 0,
            there: 0,
        }
    }

    /// Counts what came, and cuts off what is too much.
    fn cut(&mut self, ids: &mut Vec<u32>) {
        let there = ids.len() - self.first;
        self.tokens += there - self.there;
        self.there = there.min(self.most);
        let excess = there - self.there;
        match self.cut_left {
            true => drop(ids.drain(self.first..self.first + excess)),
            false => ids.truncate(self.first + self.there),
        }
    }
}

/// Builds the pipeline, whatever the file makes of it.
fn build(place: &str, canonical: &str) -> Result<PipelineTokenizer> {
    let not_valid =
        |reason: &str| Error::corrupt(format!("{place}: not a valid tokenizer: {reason}"));
    // Nothing is shared with the closure that a panic could leave half-changed.
    match catch_unwind(AssertUnwindSafe(|| tokenizers::from_json(canonical))) {
        Ok(built) => built.map_err(|error| {
            let reason = error.to_string();
            match unsupported(&reason) {
                Some(part) => Error::unsupported(format!(
                    "{place}: {part} is not supported; supported are WordPiece, BPE, Unigram and \
                     WordLevel models, and the steps of the tokenizers library before and after them"
                ))
                .because(error),
                None => not_valid(&reason).because(error),
            }
        }),
        Err(_) => Err(not_valid("building it failed")),
    }
}

/// The part of a file that the crate does not know, or cannot compile, by its message.
fn unsupported(reason: &str) -> Option<&str> {
    let named = reason.split_once("does not support ").map(|(_, part)| part);
    let named = named
        .and_then(|part| part.split_once(". "))
        .map(|(part, _)| part);
    let without = reason.split_once("reading ").map(|(_, part)| part);
    let without = without
        .and_then(|part| part.split_once(" needs the "))
        .map(|(part, _)| part);
    let is_model = reason.contains("is not a model type");
    let is_expression = reason.contains("regex") || reason.contains("Parsing error");
    named
        .or(without)
        .or(is_model.then_some("its kind of model"))
        .or(is_expression.then_some("one of its regular expressions"))
}

fn check_id(place: &str, id: u32, vocabulary: usize) -> Result<()> {
    if (id as usize) < vocabulary {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{place}: has the token id {id}, and the model's vocab_size is {vocabulary}: the tokenizer and \
         the weights are not of one model; take both from the same folder, or resize the embedding table \
         in Python (resize_token_embeddings) and save it again"
    )))
}

/// The complaint that there is no tokenizer, and what there is instead.
fn absent(source: &dyn Source, folder: &str) -> Error {
    let place = source.locate(&join(folder, FILE));
    let names = source.names();
    let Some(foreign) = names.iter().find(|name| FOREIGN.contains(&name.as_str())) else {
        return Error::new(
            Status::NotFound,
            format!("{place}: no such file; expected the model's tokenizer"),
        );
    };
    // Classes for which transformers has no other form.
    let settings = Document::optional(source, &join(folder, "tokenizer_config.json"));
    let class = settings.ok().flatten();
    let class = class
        .as_ref()
        .and_then(|settings| settings.text("tokenizer_class").ok()?);
    if let Some(class) = class.filter(|class| SLOW.contains(class)) {
        return Error::unsupported(format!(
            "{place}: no such file, only {foreign} of a {class}, which runs in Python alone; take a model \
             with a tokenizer.json, such as a multilingual one"
        ));
    }
    Error::unsupported(format!(
        "{place}: no such file, only {foreign}; make it in Python: load the folder with \
         transformers' AutoTokenizer and save it with save_pretrained"
    ))
}
