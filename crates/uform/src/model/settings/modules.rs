//! `modules.json`: the steps from text to vector, as sentence-transformers lists them.
//!
//! The steps that are known are Transformer, Pooling, Dense (any number) and
//! Normalize, in this order. Anything else, and any other order, computes
//! something this engine does not, and is refused by its name.

use serde_json::Value;

use super::pooling_mode::Pooling;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::model::architecture::bert::{BertConfig, agree, head_activation};
use crate::model::files::document::{Document, parse_json};
use crate::model::files::{LARGEST_SETTINGS, Source, fetch, join, stays_inside};

const LIST: &str = "modules.json";

/// A dense layer after pooling; its weights are `linear.weight` and `linear.bias`.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseSettings {
    /// The folder that holds its weights.
    pub folder: String,
    /// The width of its input.
    pub in_features: usize,
    /// The width of its output.
    pub out_features: usize,
    /// Whether it adds a bias.
    pub bias: bool,
    /// What follows the product.
    pub activation: Activation,
}

/// The steps of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modules {
    /// The folder of the encoder's own files; `""` is the root.
    pub transformer: String,
    /// The folder of the pooling's settings, when there is that step.
    pub(in crate::model) pooling: Option<String>,
    pub(in crate::model) dense: Vec<String>,
    /// The folder of the normalisation's settings, when there is that step; `""`: it has none.
    normalize: Option<String>,
}

/// What pooling a model asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolingSettings {
    /// The way to pool.
    pub pooling: Pooling,
    /// Whether the tokens of a prompt take part.
    pub include_prompt: bool,
}

impl Modules {
    /// Reads `modules.json`. Without one there is an encoder in the root and nothing else.
    pub fn read(source: &dyn Source) -> Result<Modules> {
        let Some(bytes) = fetch(source, LIST, LARGEST_SETTINGS)? else {
            return Ok(Modules::default());
        };
        let place = source.locate(LIST);
        let Value::Array(entries) = parse_json(&place, &bytes)? else {
            return Err(Error::corrupt(format!(
                "{place}: expected a list of modules"
            )));
        };
        let mut modules = Modules::default();
        let mut before = "";
        for (index, entry) in entries.into_iter().enumerate() {
            let Value::Object(fields) = entry else {
                return Err(Error::corrupt(format!(
                    "{place}: module {index} is not an object"
                )));
            };
            let entry = Document::inside(format!("{place}, module {index}"), fields);
            before = modules.add(&entry, before)?;
        }
        if before.is_empty() {
            return Err(Error::corrupt(format!("{place}: lists no modules")));
        }
        Ok(modules)
    }

    /// Adds the next step after the one called `before`, and returns its name.
    fn add(&mut self, entry: &Document, before: &str) -> Result<&'static str> {
        let kind = entry.text("type")?.ok_or_else(|| entry.missing("type"))?;
        let folder = entry
            .text("path")?
            .unwrap_or("")
            .trim_end_matches('/')
            .to_owned();
        if !folder.is_empty() && !stays_inside(&folder) {
            return Err(entry.wrong("path", "a folder inside the model's"));
        }
        // Classes outside the package are code that comes with a model.
        let name = kind
            .strip_prefix("sentence_transformers.")
            .and_then(|path| path.rsplit('.').next());
        let (name, follows) = match name {
            Some("Transformer") => ("Transformer", before.is_empty()),
            Some("Pooling") => ("Pooling", before == "Transformer"),
            Some("Dense") => ("Dense", matches!(before, "Pooling" | "Dense")),
            Some("Normalize") => ("Normalize", matches!(before, "Pooling" | "Dense")),
            _ => {
                return Err(entry.unsupported(
                    "type",
                    "Transformer, Pooling, Dense or Normalize of sentence_transformers",
                ));
            }
        };
        if !follows {
            let place = if before.is_empty() {
                "comes first".to_owned()
            } else {
                format!("follows {before}")
            };
            return Err(Error::unsupported(format!(
                "{}: {name} {place}; supported is the order Transformer, Pooling, Dense, Normalize",
                entry.place()
            )));
        }
        match name {
            "Transformer" => self.transformer = folder,
            "Pooling" => self.pooling = Some(folder),
            "Dense" => self.dense.push(folder),
            // Whoever wrote this older type wrote no settings.
            _ if kind == "sentence_transformers.models.Normalize" => {
                self.normalize = Some(String::new());
            }
            _ => self.normalize = Some(folder),
        }
        Ok(name)
    }

    /// Reads what the model says about pooling, if it says anything.
    pub fn pooling(
        &self,
        source: &dyn Source,
        config: &BertConfig,
    ) -> Result<Option<PoolingSettings>> {
        let Some(folder) = &self.pooling else {
            return Ok(None);
        };
        let file = join(folder, "config.json");
        let document = Document::required(source, &file, "how to pool")?;
        for key in ["embedding_dimension", "word_embedding_dimension"] {
            if let Some(size) = document.count(key, 1..=1 << 20)? {
                agree(
                    &document,
                    key,
                    size,
                    config.hidden_size,
                    "the encoder's hidden_size",
                )?;
            }
        }
        Ok(Some(PoolingSettings {
            pooling: pooling_mode(&document)?,
            include_prompt: document.flag("include_prompt")?.unwrap_or(true),
        }))
    }

    /// Reads the dense layers, and checks that each takes what the one before gives.
    pub fn dense(&self, source: &dyn Source, config: &BertConfig) -> Result<Vec<DenseSettings>> {
        let mut width = config.hidden_size;
        let mut layers = Vec::with_capacity(self.dense.len());
        for folder in &self.dense {
            let file = join(folder, "config.json");
            let document = Document::required(source, &file, "the sizes of a dense layer")?;
            pooled_vectors_only(&document)?;
            if document.flag("use_residual")? == Some(true) {
                return Err(document.unsupported("use_residual", "false"));
            }
            let layer = DenseSettings {
                folder: folder.clone(),
                in_features: document.required_count("in_features", 1..=1 << 20)?,
                out_features: document.required_count("out_features", 1..=1 << 20)?,
                bias: document.flag("bias")?.unwrap_or(true),
                activation: head_activation(&document)?,
            };
            let whose = "the width of the vectors it is given";
            agree(&document, "in_features", layer.in_features, width, whose)?;
            width = layer.out_features;
            layers.push(layer);
        }
        Ok(layers)
    }

    /// Whether vectors are scaled to length one.
    pub fn normalize(&self, source: &dyn Source) -> Result<bool> {
        let Some(folder) = &self.normalize else {
            return Ok(false);
        };
        // And at the root, config.json is the encoder's.
        if !folder.is_empty()
            && let Some(document) = Document::optional(source, &join(folder, "config.json"))?
        {
            pooled_vectors_only(&document)?;
        }
        Ok(true)
    }
}

/// The flags of older files, each with the mode that newer ones name.
const FLAGS: [(&str, &str); 6] = [
    ("pooling_mode_cls_token", "cls"),
    ("pooling_mode_max_tokens", "max"),
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    ("pooling_mode_weightedmean_tokens", "weightedmean"),
    ("pooling_mode_lasttoken", "lasttoken"),
];

/// The one mode of a pooling's settings: `pooling_mode`, or one flag a mode.
fn pooling_mode(document: &Document) -> Result<Pooling> {
    let mut named = Vec::new();
    match document.value("pooling_mode") {
        Some(Value::String(name)) => named.push(name.as_str()),
        Some(Value::Array(names)) => {
            for name in names {
                let name = name.as_str();
                named.push(name.ok_or_else(|| document.wrong("pooling_mode", "names of modes"))?);
            }
        }
        Some(_) => return Err(document.wrong("pooling_mode", "the name of a mode")),
        None => {
            for (flag, name) in FLAGS {
                if document.flag(flag)? == Some(true) {
                    named.push(name);
                }
            }
        }
    }
    match named[..] {
        [] => Err(Error::corrupt(format!(
            "{}: names no pooling mode; expected pooling_mode, or one of {} to be true",
            document.place(),
            FLAGS.map(|(flag, _)| flag).join(", ")
        ))),
        [name] => Pooling::of_reference(name).ok_or_else(|| {
            document.unsupported("pooling_mode", &FLAGS.map(|(_, name)| name).join(", "))
        }),
        _ => Err(Error::unsupported(format!(
            "{}: pools in several ways at once ({}); one is supported",
            document.place(),
            named.join(", ")
        ))),
    }
}

/// Refuses a step that is told to work on something else than the pooled vector.
fn pooled_vectors_only(document: &Document) -> Result<()> {
    for key in ["module_input_name", "module_output_name"] {
        if !matches!(document.text(key)?, None | Some("sentence_embedding")) {
            return Err(document.unsupported(key, "\"sentence_embedding\""));
        }
    }
    Ok(())
}
