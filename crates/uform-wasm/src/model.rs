//! Models as JavaScript sees them.

use crate::{
    call::CompiledCall,
    errors::{Result, internal, refusal},
    executor::{CompiledExecutor, class},
    files::CompiledFiles,
    hardware::described,
    outcome::{self, Outcome, embeddings_value},
};
use js_sys::{Array, Function, Uint8Array, Uint32Array};
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, sync::Arc};
use uform::model::{
    EncodeOptions as Encoding, Lender, Model, ModelOptions, Pooling, Special, Texts, Truncate,
    settings::similarity::Similarity,
};
use uform::{Error, Status, kernels::Precision, memory::with_room};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

/// A model's handle in JavaScript.
#[wasm_bindgen]
pub struct CompiledModel(RefCell<Option<Model>>);

impl CompiledModel {
    /// A handle of a model.
    pub fn new(model: Model) -> Self {
        CompiledModel(RefCell::new(Some(model)))
    }

    fn model(&self) -> Result<Model> {
        let model = self.0.borrow().clone();
        model.ok_or_else(|| refusal(Error::new(Status::Freed, "the model was freed")))
    }
}

/// How a model is loaded. Absent: the engine's default.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoadOptions {
    memory_domains: Option<Vec<u32>>,
    cpu_class: Option<String>,
    precision: Option<String>,
}

impl LoadOptions {
    fn parse(options: JsValue) -> Result<ModelOptions> {
        let given: LoadOptions = serde_wasm_bindgen::from_value(options).map_err(internal)?;
        let precision = given.precision.as_deref().unwrap_or("auto");
        Ok(ModelOptions {
            memory_domains: given.memory_domains.unwrap_or_default(),
            cpu_class: class(given.cpu_class)?,
            precision: Precision::parse(precision).map_err(refusal)?,
        })
    }
}

/// How texts become vectors. Absent: what the model's own files say.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EncodeOptions {
    pooling: Option<String>,
    normalize: Option<bool>,
    dimensions: Option<f64>,
    prompt: Option<String>,
    prompt_text: Option<String>,
    /// Whether a text over the limit is an error; absent: it is cut.
    refuse_long_texts: Option<bool>,
    /// Whether special tokens in a text are read as text.
    special_as_text: Option<bool>,
}

impl EncodeOptions {
    fn parse(options: JsValue) -> Result<Encoding> {
        let given: EncodeOptions = serde_wasm_bindgen::from_value(options).map_err(internal)?;
        let pooling = given.pooling.as_deref().map(Pooling::parse).transpose();
        Ok(Encoding {
            pooling: pooling.map_err(refusal)?,
            normalize: given.normalize,
            dimensions: given.dimensions.map(|count| count as u64),
            prompt: given.prompt,
            prompt_text: given.prompt_text,
            truncate: match given.refuse_long_texts {
                Some(true) => Truncate::Refuse,
                _ => Truncate::Cut,
            },
            special: special(given.special_as_text == Some(true)),
        })
    }
}

/// What a model is, and how it computes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelDescription {
    architecture: &'static str,
    parameters: f64,
    dimensions: f64,
    token_limit: f64,
    /// Absent: the model's files do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pooling: Option<&'static str>,
    normalize: bool,
    /// Absent: the model's files do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    similarity: Option<&'static str>,
    /// Pairs of a name and a text: a name may be one that an object treats specially.
    prompts: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_prompt: Option<String>,
    precision: &'static str,
    cpu_class: &'static str,
    bytes: f64,
    fingerprint: String,
    refused: Vec<String>,
}

/// What the model is, and how it computes.
#[wasm_bindgen(js_name = modelDescribe)]
pub fn model_describe(model: &CompiledModel) -> Result<JsValue> {
    let found = model.model()?.describe();
    described(&ModelDescription {
        architecture: found.architecture,
        parameters: found.parameters as f64,
        dimensions: found.dimensions as f64,
        token_limit: found.token_limit as f64,
        pooling: found.pooling.map(Pooling::word),
        normalize: found.normalize,
        similarity: found.similarity.map(Similarity::word),
        prompts: found.prompts.into_iter().collect(),
        default_prompt: found.default_prompt,
        precision: found.precision.word(),
        cpu_class: found.cpu_class.map_or("", |class| class.word()),
        bytes: found.bytes as f64,
        fingerprint: found.fingerprint.to_string(),
        refused: found.refused,
    })
}

/// Loads a model from its files, which it takes, while the caller waits.
#[wasm_bindgen(js_name = modelLoadFiles)]
pub fn model_load_files(
    files: &CompiledFiles,
    options: JsValue,
    executor: &CompiledExecutor,
) -> Result<CompiledModel> {
    let options = LoadOptions::parse(options)?;
    let loaded = Model::load_from(&files.0.take(), &options, &executor.0);
    loaded.map(CompiledModel::new).map_err(refusal)
}

/// The same as the event loop turns: the outcome of `ticket` is there when it is loaded.
#[wasm_bindgen(js_name = modelOpenFiles)]
pub fn model_open_files(
    files: &CompiledFiles,
    options: JsValue,
    executor: &CompiledExecutor,
    call: &CompiledCall,
    ticket: u32,
) -> Result<()> {
    let options = LoadOptions::parse(options)?;
    let source = Box::new(files.0.take());
    let control = Arc::clone(&call.0);
    Model::open_from(source, options, &executor.0, control, move |loaded| {
        outcome::keep(ticket, loaded.map(Outcome::Model));
    });
    Ok(())
}

/// Vectors of the texts, `utf8` cut at `ends`, while the caller waits.
#[wasm_bindgen(js_name = modelEncodeText)]
pub fn model_encode_text(
    model: &CompiledModel,
    executor: &CompiledExecutor,
    utf8: &Uint8Array,
    ends: &[u32],
    options: JsValue,
) -> Result<JsValue> {
    let texts = read_texts(utf8, ends)?;
    let options = EncodeOptions::parse(options)?;
    let found = model.model()?.encode_text(&executor.0, &texts, &options);
    found.map(embeddings_value).map_err(refusal)
}

/// The same as the event loop turns: the outcome of `ticket` is there when they are.
#[wasm_bindgen(js_name = modelEncodeTextDeferred)]
pub fn model_encode_text_deferred(
    model: &CompiledModel,
    executor: &CompiledExecutor,
    utf8: &Uint8Array,
    ends: &[u32],
    options: JsValue,
    call: &CompiledCall,
    ticket: u32,
) -> Result<()> {
    let texts = read_texts(utf8, ends)?;
    let options = EncodeOptions::parse(options)?;
    let control = Arc::clone(&call.0);
    let done = move |found: uform::Result<_>| outcome::keep(ticket, found.map(Outcome::Embeddings));
    let model = model.model()?;
    model.encode_text_deferred(&executor.0, texts, options, control, done);
    Ok(())
}

/// The tokens of the texts, `utf8` cut at `ends`, as `[ids, offsets, spans]`, which are copies.
#[wasm_bindgen(js_name = modelTokenize)]
pub fn model_tokenize(
    model: &CompiledModel,
    utf8: &Uint8Array,
    ends: &[u32],
    special_as_text: bool,
) -> Result<Array> {
    let model = model.model()?;
    let texts = read_texts(utf8, ends)?;
    let found = model.tokenize(&texts, special(special_as_text));
    let found = found.map_err(refusal)?;
    let parts = [found.ids, found.offsets, found.spans];
    Ok(parts
        .iter()
        .map(|part| Uint32Array::from(&part[..]))
        .collect())
}

/// How many tokens each of the texts has.
#[wasm_bindgen(js_name = modelCountTokens)]
pub fn model_count_tokens(
    model: &CompiledModel,
    utf8: &Uint8Array,
    ends: &[u32],
    special_as_text: bool,
) -> Result<Uint32Array> {
    let model = model.model()?;
    let texts = read_texts(utf8, ends)?;
    let found = model.count_tokens(&texts, special(special_as_text));
    found
        .map(|counts| Uint32Array::from(&counts[..]))
        .map_err(refusal)
}

fn special(as_text: bool) -> Special {
    match as_text {
        true => Special::Text,
        false => Special::Parse,
    }
}

/// Releases the weights once the model's calls have ended. Again: nothing.
#[wasm_bindgen(js_name = modelFree)]
pub fn model_free(model: &CompiledModel) {
    if let Some(model) = model.0.take() {
        model.free();
    }
}

/// The same of texts that stay in JavaScript's memory until the call's turn comes. `read()` returns the next of
/// them as `[utf8, ends]`, where what is behind the last end goes on with the next piece; `undefined`: none
/// is left.
#[wasm_bindgen(js_name = modelEncodeLentDeferred)]
pub fn model_encode_lent_deferred(
    model: &CompiledModel,
    executor: &CompiledExecutor,
    read: Function,
    options: JsValue,
    call: &CompiledCall,
    ticket: u32,
) -> Result<()> {
    let options = EncodeOptions::parse(options)?;
    let control = Arc::clone(&call.0);
    let done = move |found: uform::Result<_>| outcome::keep(ticket, found.map(Outcome::Embeddings));
    let lender = Box::new(LentTexts(read));
    let model = model.model()?;
    model.encode_lent_deferred(&executor.0, lender, options, control, done);
    Ok(())
}

/// Texts in JavaScript's memory.
struct LentTexts(Function);

// SAFETY: the module has one thread.
unsafe impl Send for LentTexts {}

impl Lender for LentTexts {
    fn next(&mut self, texts: &mut Texts) -> uform::Result<bool> {
        let gone = || {
            Error::new(
                Status::Internal,
                "the texts of a call are not there any more",
            )
        };
        let piece = self.0.call0(&JsValue::UNDEFINED).map_err(|_| gone())?;
        if piece.is_undefined() {
            return Ok(false);
        }
        let piece = piece.dyn_into::<Array>().map_err(|_| gone())?;
        let utf8 = piece.get(0).dyn_into::<Uint8Array>().map_err(|_| gone())?;
        let ends = piece.get(1).dyn_into::<Uint32Array>().map_err(|_| gone())?;
        texts.append(&utf8.to_vec(), &ends.to_vec())?;
        Ok(true)
    }
}

/// Copies texts that lie end to end.
fn read_texts(utf8: &Uint8Array, ends: &[u32]) -> Result<Texts> {
    let mut bytes = with_room(utf8.length() as usize, "a call's texts").map_err(refusal)?;
    bytes.resize(utf8.length() as usize, 0);
    utf8.copy_to(&mut bytes);
    let mut texts = Texts::default();
    texts.append(&bytes, ends).map_err(refusal)?;
    Ok(texts)
}
