//! What sentence-transformers says of an encoder: `sentence_bert_config.json`, or the name that an
//! older version gave the same file.
//!
//! Its limits in the reference's order (sentence-transformers 6.2, `Transformer.load`): a
//! `max_length` of `processing_kwargs` beats `model_max_length` of `tokenizer_args`, which beats
//! `max_seq_length`. Arguments that would change a text's tokens, and are not heeded here, are refused
//! by name.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::files::document::Document;
use crate::model::files::{Source, join};
use crate::model::settings::token_limit;

/// The file's names, newest first. The first that is there counts.
const NAMES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Arguments of a tokenizer that leave a text's tokens as they are: how it is found and loaded, and how
/// a batch is padded.
const HARMLESS: [&str; 16] = [
    "cache_dir",
    "clean_up_tokenization_spaces",
    "fix_mistral_regex",
    "local_files_only",
    "max_length",
    "model_max_length",
    "pad_to_multiple_of",
    "padding",
    "padding_side",
    "return_attention_mask",
    "return_tensors",
    "return_token_type_ids",
    "revision",
    "token",
    "trust_remote_code",
    "use_fast",
];

/// What the file says, as far as it concerns vectors.
#[derive(Default)]
pub(super) struct Sentence {
    /// The most tokens of a text; `None`: the tokenizer's own limit.
    pub limit: Option<usize>,
    /// Whether text becomes lower case before anything else.
    pub lower_case: bool,
}

impl Sentence {
    /// Reads the file in the encoder's folder. The older names are looked for only where `modules.json`
    /// says that sentence-transformers wrote the model.
    pub fn read(source: &dyn Source, folder: &str, is_listed: bool) -> Result<Sentence> {
        let names = if is_listed { &NAMES[..] } else { &NAMES[..1] };
        for name in names {
            if let Some(document) = Document::optional(source, &join(folder, name))? {
                return Sentence::of(&document);
            }
        }
        Ok(Sentence::default())
    }

    fn of(document: &Document) -> Result<Sentence> {
        encoder_only(document)?;
        refuse_overrides(document)?;
        let mut limit = token_limit(document, "max_seq_length")?;
        for key in ["tokenizer_args", "processor_kwargs"] {
            if let Some(arguments) = section(document, key)? {
                only_harmless(&arguments)?;
                limit = token_limit(&arguments, "model_max_length")?.or(limit);
            }
        }
        if let Some(processing) = section(document, "processing_kwargs")? {
            // Those of text come last.
            for key in ["common", "text"] {
                if let Some(arguments) = section(&processing, key)? {
                    cuts(&arguments)?;
                    only_harmless(&arguments)?;
                    limit = token_limit(&arguments, "max_length")?.or(limit);
                }
            }
        }
        Ok(Sentence {
            limit,
            lower_case: document.flag("do_lower_case")?.unwrap_or(false),
        })
    }
}

/// An object within the file.
fn section(document: &Document, key: &str) -> Result<Option<Document>> {
    match document.value(key) {
        None => Ok(None),
        Some(Value::Object(fields)) => {
            let place = format!("{}, {key}", document.place());
            Ok(Some(Document::inside(place, fields.clone())))
        }
        Some(_) => Err(document.wrong(key, "an object of arguments")),
    }
}

/// Refuses arguments that would make other tokens of a text.
fn only_harmless(arguments: &Document) -> Result<()> {
    let is_harmless = |key: &&str| HARMLESS.contains(key) || *key == "truncation";
    match arguments.keys().find(|key| !is_harmless(key)) {
        None => Ok(()),
        Some(key) => Err(arguments.unsupported(
            key,
            "nothing: this argument of the tokenizer is not supported, and without it a text could \
             have other tokens",
        )),
    }
}

/// Refuses texts of any length: here they are always cut at the limit.
fn cuts(arguments: &Document) -> Result<()> {
    match arguments.value("truncation") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(Value::String(way)) if way == "longest_first" || way == "only_first" => Ok(()),
        Some(_) => Err(arguments.unsupported("truncation", "true: texts are cut at the limit")),
    }
}

/// Refuses arguments that would replace what `config.json` says of the encoder.
fn refuse_overrides(document: &Document) -> Result<()> {
    const SIZES: [&str; 6] = [
        "hidden_act",
        "hidden_size",
        "is_decoder",
        "layer_norm_eps",
        "num_hidden_layers",
        "position_embedding_type",
    ];
    for key in ["config_args", "config_kwargs"] {
        let Some(arguments) = section(document, key)? else {
            continue;
        };
        if let Some(size) = SIZES
            .into_iter()
            .find(|size| arguments.value(size).is_some())
        {
            return Err(Error::unsupported(format!(
                "{}: {size} replaces what config.json says; write it there instead",
                arguments.place()
            )));
        }
    }
    Ok(())
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
