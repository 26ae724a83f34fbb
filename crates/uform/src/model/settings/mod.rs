//! Everything a model's files say about it apart from its sizes and numbers.

pub mod modules;
pub mod pooling_mode;
pub mod prompts;

use self::modules::{DenseSettings, Modules};
use self::pooling_mode::Pooling;
use self::prompts::Prompts;
use crate::error::Result;
use crate::model::architecture::bert::BertConfig;
use crate::model::files::document::Document;
use crate::model::files::{Source, join};

/// How a model wants to be used, in the words of its own files.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The folder of the encoder's `config.json`, weights and tokenizer; `""` is the root.
    pub transformer: String,
    /// How to pool; `None` when the model does not say.
    pub pooling: Option<Pooling>,
    /// Whether the tokens of a prompt take part in pooling.
    pub include_prompt: bool,
    /// The dense layers after pooling, in order.
    pub dense: Vec<DenseSettings>,
    /// Whether vectors are scaled to length one.
    pub normalize: bool,
    /// Its prompts.
    pub prompts: Prompts,
    /// How to make tokens of text.
    pub tokens: TokenSettings,
}

/// How a model wants text to become tokens, beyond what `tokenizer.json` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// The most tokens of a text that are embedded, special ones included.
    pub limit: usize,
    /// Whether text becomes lower case before anything else.
    pub lower_case: bool,
    /// Which end of a text is cut off; `None`: whichever `tokenizer.json` names.
    pub cut_left: Option<bool>,
    /// What `tokenizer_config.json` says over the normaliser of `tokenizer.json`.
    pub normalizer: NormalizerSettings,
}

/// Fields of a BERT normaliser; `None` keeps what `tokenizer.json` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormalizerSettings {
    /// Whether it makes letters lower case.
    pub lowercase: Option<bool>,
    /// Whether it takes accents off letters.
    pub strip_accents: Option<bool>,
    /// Whether it makes a word of each Chinese character.
    pub handle_chinese_chars: Option<bool>,
}

impl Settings {
    /// Reads the settings of a model whose steps and sizes are known.
    pub fn read(source: &dyn Source, modules: &Modules, config: &BertConfig) -> Result<Settings> {
        let pooling = modules.pooling(source, config)?;
        Ok(Settings {
            transformer: modules.transformer.clone(),
            pooling: pooling.map(|settings| settings.pooling),
            include_prompt: pooling.is_none_or(|settings| settings.include_prompt),
            dense: modules.dense(source, config)?,
            normalize: modules.normalize(source)?,
            prompts: Prompts::read(source)?,
            tokens: TokenSettings::read(source, &modules.transformer, config.positions)?,
        })
    }
}

impl TokenSettings {
    fn read(source: &dyn Source, folder: &str, positions: usize) -> Result<TokenSettings> {
        let sentence = Document::optional(source, &join(folder, "sentence_bert_config.json"))?;
        let tokenizer = Document::optional(source, &join(folder, "tokenizer_config.json"))?;
        let mut lower_case = false;
        let mut limit = None;
        if let Some(sentence) = &sentence {
            encoder_only(sentence)?;
            lower_case = sentence.flag("do_lower_case")?.unwrap_or(false);
            limit = token_limit(sentence, "max_seq_length")?;
        }
        // As in the reference, a limit of sentence-transformers replaces the
        // tokenizer's. Neither may exceed the positions there are.
        if let (None, Some(tokenizer)) = (limit, &tokenizer) {
            limit = token_limit(tokenizer, "model_max_length")?;
        }
        let (cut_left, normalizer) = match &tokenizer {
            Some(tokenizer) => (cut_left(tokenizer)?, NormalizerSettings::read(tokenizer)?),
            None => Default::default(),
        };
        Ok(TokenSettings {
            limit: limit.map_or(positions, |limit| limit.min(positions)),
            lower_case,
            cut_left,
            normalizer,
        })
    }
}

impl NormalizerSettings {
    /// The reference builds a `BertTokenizer` from these settings rather than from
    /// `tokenizer.json`; other classes take the file as it is.
    fn read(document: &Document) -> Result<NormalizerSettings> {
        let class = document.text("tokenizer_class")?;
        if !matches!(class, None | Some("BertTokenizer" | "BertTokenizerFast")) {
            return Ok(NormalizerSettings::default());
        }
        Ok(NormalizerSettings {
            lowercase: document.flag("do_lower_case")?,
            strip_accents: document.flag("strip_accents")?,
            handle_chinese_chars: document.flag("tokenize_chinese_chars")?,
        })
    }
}

/// A limit in tokens. Writers without one say null, -1, or a number like 1e30.
fn token_limit(document: &Document, key: &str) -> Result<Option<usize>> {
    let Some(limit) = document.number(key)? else {
        return Ok(None);
    };
    if limit == -1.0 || limit > f64::from(u32::MAX) {
        return Ok(None);
    }
    document.count(key, 1..=u32::MAX as usize)
}

fn cut_left(document: &Document) -> Result<Option<bool>> {
    match document.text("truncation_side")? {
        None => Ok(None),
        Some("left") => Ok(Some(true)),
        Some("right") => Ok(Some(false)),
        Some(_) => Err(document.wrong("truncation_side", "\"left\" or \"right\"")),
    }
}

/// Refuses an encoder that is used for something else than the vectors of its tokens.
fn encoder_only(document: &Document) -> Result<()> {
    if !matches!(
        document.text("transformer_task")?,
        None | Some("feature-extraction")
    ) {
        return Err(document.unsupported("transformer_task", "\"feature-extraction\""));
    }
    if !matches!(
        document.text("module_output_name")?,
        None | Some("token_embeddings")
    ) {
        return Err(document.unsupported("module_output_name", "\"token_embeddings\""));
    }
    if document.value("tokenizer_name_or_path").is_some() {
        return Err(document.unsupported(
            "tokenizer_name_or_path",
            "none: a tokenizer among the model's own files",
        ));
    }
    Ok(())
}
