//! Text to token ids, as the reference tokenizer makes them.

mod division;
pub mod file;
mod pipeline;
mod word_piece;

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::pipeline::{PipelineModel, PipelineToken, PipelineTokenizer};

use self::file::Surveyed;
use self::pipeline::{Encoding, Pipeline};
use crate::error::{Error, Result, Status};
use crate::executor::{complete, pause};
use crate::memory::with_room;
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

/// Texts, or parts of one, from this many bytes on are long enough for the tokenizer's own memory to matter.
const LONG: usize = 1 << 20;

/// What the tokenizer takes at most for each byte of a text: offsets, and ids as they grow.
const BYTES_A_BYTE: usize = 32;

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
            return Err(absent(source, &name));
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
            pipeline: Pipeline::new(pipeline, file.words),
        })
    }

    /// Appends the ids of a text, cut to the limit: what the text has too many is
    /// cut off, and the special tokens around it stay.
    ///
    /// # Errors
    /// `CorruptModel` when the tokenizer itself fails on the text; `OutOfMemory`.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<Count> {
        complete(self.encode_in_steps(text, out))
    }

    /// [`encode`](Self::encode), with a [`pause`] between the parts of a long text.
    ///
    /// # Errors
    /// As there.
    pub async fn encode_in_steps(&self, text: &str, out: &mut Vec<u32>) -> Result<Count> {
        let start = out.len();
        out.extend_from_slice(&self.before);
        let mut kept = Kept::new(out.len(), self.limit - self.around(), self.cut_left);
        let mut encoding = self.pipeline.begin();
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

    /// How many special tokens there are around every text.
    fn around(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// How many tokens at the beginning of a prompted text belong to the prompt,
    /// as the reference counts them: all of the prompt's own, but for a special one at their end.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn prompt_tokens(&self, prompt: &str) -> Result<usize> {
        let mut ids = Vec::new();
        self.encode(prompt, &mut ids)?;
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
    encoding.part(part, out).map_err(|error| {
        Error::corrupt(format!("{FILE}: cannot encode a text: {error}")).because(error)
    })
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
            // The crate's words for what it was compiled without, or never knew.
            if reason.contains("feature") {
                return Error::unsupported(format!(
                    "{place}: uses a part that is not supported; supported are WordPiece, BPE, \
                     Unigram and WordLevel models, without regular expressions (its reader \
                     says: {reason})"
                ))
                .because(error);
            }
            not_valid(&reason).because(error)
        }),
        Err(_) => Err(not_valid("building it failed")),
    }
}

fn check_id(place: &str, id: u32, vocabulary: usize) -> Result<()> {
    if (id as usize) < vocabulary {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{place}: has the token id {id}, and the model's vocab_size is {vocabulary}"
    )))
}

/// The complaint that there is no tokenizer, and what there is instead.
fn absent(source: &dyn Source, name: &str) -> Error {
    let place = source.locate(name);
    let names = source.names();
    match names.iter().find(|name| FOREIGN.contains(&name.as_str())) {
        Some(foreign) => Error::unsupported(format!(
            "{place}: no such file, only {foreign}; make it in Python: load the folder with \
             transformers' AutoTokenizer and save it with save_pretrained"
        )),
        None => Error::new(
            Status::NotFound,
            format!("{place}: no such file; expected the model's tokenizer"),
        ),
    }
}
