//! `config.json`: which architecture a model has, and its sizes.

use serde_json::Value;

use crate::error::{Error, Result, Status};
use crate::kernels::Activation;
use crate::model::files::document::{Document, shown};
use crate::model::files::{Source, join};

/// What `model_type` calls the architecture that is supported.
pub(in crate::model) const ARCHITECTURE: &str = "bert";

/// The architectures whose encoder is a BERT encoder. Heads that sit on top of
/// it (for masked words or sentence pairs) are left unread.
pub const SUPPORTED: [&str; 4] = [
    "BertModel",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
];

/// The sizes of a BERT encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct BertConfig {
    /// How wide a token's vector is.
    pub hidden_size: usize,
    /// How many encoder layers there are.
    pub layers: usize,
    /// How many attention heads a layer has; divides `hidden_size`.
    pub heads: usize,
    /// How wide a layer's feed-forward part is.
    pub intermediate_size: usize,
    /// How many tokens of one text have a position: the hard limit on a text's length.
    pub positions: usize,
    /// How many token types (sentences of a pair) there are.
    pub token_types: usize,
    /// How many rows the embedding table has.
    pub vocabulary: usize,
    /// What layer norm adds to the variance.
    pub layer_norm_eps: f32,
    /// The function between a layer's two feed-forward matrices.
    pub activation: Activation,
}

impl BertConfig {
    /// Reads `config.json` in the given folder of the model.
    ///
    /// # Errors
    /// `Unsupported` for another architecture, and `CorruptModel` for a file that
    /// contradicts itself; each names the key and the value.
    pub fn read(source: &dyn Source, folder: &str) -> Result<BertConfig> {
        let name = join(folder, "config.json");
        let document = Document::optional(source, &name)?.ok_or_else(|| absent(source, &name))?;
        check_architecture(&document)?;
        check_variant(&document)?;
        let config = BertConfig {
            hidden_size: document.required_count("hidden_size", 1..=1 << 16)?,
            layers: document.required_count("num_hidden_layers", 1..=1 << 10)?,
            heads: document.required_count("num_attention_heads", 1..=1 << 16)?,
            intermediate_size: document.required_count("intermediate_size", 1..=1 << 18)?,
            positions: document.required_count("max_position_embeddings", 1..=1 << 20)?,
            token_types: document.count("type_vocab_size", 1..=1 << 10)?.unwrap_or(2),
            vocabulary: document.required_count("vocab_size", 1..=1 << 24)?,
            layer_norm_eps: layer_norm_eps(&document)?,
            activation: hidden_act(&document)?,
        };
        if !config.hidden_size.is_multiple_of(config.heads) {
            return Err(Error::corrupt(format!(
                "{}: hidden_size {} is not a multiple of num_attention_heads {}",
                document.place(),
                config.hidden_size,
                config.heads
            )));
        }
        Ok(config)
    }
}

/// The complaint that there is no `config.json`, and what there is instead.
fn absent(source: &dyn Source, name: &str) -> Error {
    let place = source.locate(name);
    let names = source.names();
    if names.iter().any(|name| name == "snapshots") {
        return Error::new(
            Status::NotFound,
            format!("{place}: no such file; in a hub cache, give one of the folders in snapshots"),
        );
    }
    match names.iter().find(|name| name.ends_with(".gguf")) {
        Some(gguf) => Error::unsupported(format!(
            "{place}: no such file, only {gguf}, which cannot be read; take the model in the \
             Hugging Face layout, with safetensors weights"
        )),
        None => Error::new(
            Status::NotFound,
            format!("{place}: no such file; expected a model in the Hugging Face layout"),
        ),
    }
}

/// Refuses every architecture but the BERT encoder, by the name the file gives it.
fn check_architecture(document: &Document) -> Result<()> {
    let kind = document.text("model_type")?;
    let name = match document.value("architectures") {
        None => None,
        Some(value) => {
            let names = value
                .as_array()
                .filter(|names| names.iter().all(Value::is_string));
            let names = names.ok_or_else(|| document.wrong("architectures", "a list of names"))?;
            names.first().and_then(Value::as_str)
        }
    };
    if kind.is_none() && name.is_none() {
        return Err(document.missing("model_type"));
    }
    if kind.is_none_or(|kind| kind == ARCHITECTURE)
        && name.is_none_or(|name| SUPPORTED.contains(&name))
    {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{}: the architecture {} (model_type {}) is not supported; supported is the BERT family: {}",
        document.place(),
        name.unwrap_or("that is not named"),
        kind.unwrap_or("absent"),
        SUPPORTED.join(", ")
    )))
}

/// Refuses variants of BERT that compute something else with the same weights.
fn check_variant(document: &Document) -> Result<()> {
    match document.text("position_embedding_type")? {
        None | Some("absolute") => {}
        Some(_) => return Err(document.unsupported("position_embedding_type", "\"absolute\"")),
    }
    for key in ["is_decoder", "add_cross_attention"] {
        if document.flag(key)? == Some(true) {
            return Err(document.unsupported(key, "false: only encoders are supported"));
        }
    }
    if let Some(pruned) = document.value("pruned_heads")
        && !pruned.as_object().is_some_and(|heads| heads.is_empty())
    {
        return Err(document.unsupported("pruned_heads", "no heads pruned"));
    }
    if document.value("quantization_config").is_some() {
        return Err(
            document.unsupported("quantization_config", "none: weights in f32, f16 or bf16")
        );
    }
    Ok(())
}

fn layer_norm_eps(document: &Document) -> Result<f32> {
    let eps = document.number("layer_norm_eps")?.unwrap_or(1e-12);
    // Zero would divide by zero on a constant row.
    if eps as f32 > 0.0 && eps < 1.0 {
        Ok(eps as f32)
    } else {
        Err(document.wrong("layer_norm_eps", "a number above 0 and below 1"))
    }
}

fn hidden_act(document: &Document) -> Result<Activation> {
    match document.text("hidden_act")? {
        None | Some("gelu" | "gelu_python") => Ok(Activation::Gelu),
        // Three spellings of one formula.
        Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some("relu") => Ok(Activation::Relu),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some(_) => Err(document.unsupported(
            "hidden_act",
            "\"gelu\", \"gelu_new\", \"gelu_fast\", \"gelu_pytorch_tanh\", \"relu\" or \"silu\"",
        )),
    }
}

/// The function of a dense head, by the path of its class in PyTorch; absent: tanh.
pub(in crate::model) fn head_activation(document: &Document) -> Result<Activation> {
    let key = "activation_function";
    let Some(path) = document.text(key)? else {
        return Ok(Activation::Tanh);
    };
    let name = path
        .strip_prefix("torch.nn.")
        .and_then(|path| path.rsplit('.').next());
    match name {
        Some("Identity") => Ok(Activation::Identity),
        Some("GELU") => Ok(Activation::Gelu),
        Some("ReLU") => Ok(Activation::Relu),
        Some("SiLU") => Ok(Activation::Silu),
        Some("Tanh") => Ok(Activation::Tanh),
        _ => Err(document.unsupported(key, "Tanh, Identity, ReLU, GELU or SiLU of torch.nn")),
    }
}

/// Checks that two places agree on a size.
pub(in crate::model) fn agree(
    document: &Document,
    key: &str,
    size: usize,
    expected: usize,
    whose: &str,
) -> Result<()> {
    if size == expected {
        return Ok(());
    }
    let found = document.value(key).map_or("nothing".to_owned(), shown);
    Err(Error::corrupt(format!(
        "{}: {key} is {found}, but {whose} is {expected}",
        document.place()
    )))
}
