//! Models as JavaScript sees them.

use crate::{
    arrays::typed_array,
    call::{CompiledCall, control},
    environment::{Account, Environment},
    errors::{Result, internal, refusal},
    executor::{CompiledExecutor, class, gpu_class},
    files::CompiledFiles,
    outcome::{Outcome, Value, array},
};
use napi::{
    Env, JsValue,
    bindgen_prelude::{External, Unknown},
    check_status, sys,
};
use napi_derive::napi;
use std::{cell::RefCell, path::Path, ptr, rc::Rc};
use uform::model::{
    EncodeOptions as Encoding, Model, ModelOptions, Pooling, Special, Texts, Tokens, Truncate,
    VramModelOptions,
};
use uform::{Error, Status, kernels::Precision, memory::reserve};

/// A model and what the collector was told about it.
pub struct ModelHandle {
    model: RefCell<Option<Model>>,
    account: Account,
}

impl ModelHandle {
    /// A handle of the environment that asked for the model.
    pub fn new(model: Model, environment: Rc<Environment>) -> Self {
        let account = Account::new(environment);
        account.set_first(model.bytes());
        ModelHandle {
            model: RefCell::new(Some(model)),
            account,
        }
    }

    fn model(&self) -> Result<Model> {
        let model = self.model.borrow().clone();
        model.ok_or_else(|| refusal(Error::new(Status::Freed, "the model was freed")))
    }
}

/// A model's handle in JavaScript.
pub type CompiledModel = External<ModelHandle>;

/// How a model is loaded. Absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct LoadOptions {
    pub memory_domains: Option<Vec<u32>>,
    pub cpu_class: Option<String>,
    pub precision: Option<String>,
}

impl LoadOptions {
    fn parse(self) -> Result<ModelOptions> {
        let precision = self.precision.as_deref().unwrap_or("auto");
        Ok(ModelOptions {
            memory_domains: self.memory_domains.unwrap_or_default(),
            cpu_class: class(self.cpu_class)?,
            precision: Precision::parse(precision).map_err(refusal)?,
        })
    }
}

/// How a model is loaded into the memory of GPUs. Absent: the engine's default.
#[napi(object, object_to_js = false)]
pub struct VramLoadOptions {
    pub devices: Option<Vec<u32>>,
    pub gpu_class: Option<String>,
    pub precision: Option<String>,
}

impl VramLoadOptions {
    fn parse(self) -> Result<VramModelOptions> {
        let precision = self.precision.as_deref().unwrap_or("auto");
        Ok(VramModelOptions {
            devices: self.devices.unwrap_or_default(),
            gpu_class: gpu_class(self.gpu_class)?,
            precision: Precision::parse(precision).map_err(refusal)?,
        })
    }
}

/// How texts become vectors. Absent: what the model's own files say.
#[napi(object, object_to_js = false)]
pub struct EncodeOptions {
    pub pooling: Option<String>,
    pub normalize: Option<bool>,
    pub dimensions: Option<f64>,
    pub prompt: Option<String>,
    pub prompt_text: Option<String>,
    /// Whether a text over the limit is an error; absent: it is cut.
    pub refuse_long_texts: Option<bool>,
    /// Whether special tokens in a text are read as text.
    pub special_as_text: Option<bool>,
}

fn encoding(options: Option<EncodeOptions>) -> Result<Encoding> {
    options.map_or_else(|| Ok(Encoding::default()), EncodeOptions::parse)
}

impl EncodeOptions {
    fn parse(self) -> Result<Encoding> {
        let pooling = self.pooling.as_deref().map(Pooling::parse).transpose();
        Ok(Encoding {
            pooling: pooling.map_err(refusal)?,
            normalize: self.normalize,
            dimensions: self.dimensions.map(|count| count as u64),
            prompt: self.prompt,
            prompt_text: self.prompt_text,
            truncate: match self.refuse_long_texts {
                Some(true) => Truncate::Refuse,
                _ => Truncate::Cut,
            },
            special: special(self.special_as_text == Some(true)),
        })
    }
}

/// What a model is, and how it computes.
#[napi(object, object_from_js = false)]
pub struct ModelDescription {
    pub architecture: String,
    pub parameters: f64,
    pub dimensions: f64,
    pub token_limit: f64,
    /// Absent: the model's files do not say.
    pub pooling: Option<String>,
    pub normalize: bool,
    /// Absent: the model's files do not say.
    pub similarity: Option<String>,
    /// Pairs of a name and a text: a name may be one that an object treats specially.
    pub prompts: Vec<Vec<String>>,
    pub default_prompt: Option<String>,
    pub precision: String,
    pub residency: String,
    /// Absent: it resides on GPUs.
    pub cpu_class: Option<String>,
    /// Absent: it resides in host memory, or on GPUs of several classes.
    pub gpu_class: Option<String>,
    pub devices: Vec<u32>,
    pub bytes: f64,
    pub fingerprint: String,
    pub refused: Vec<String>,
}

/// What the model is, and how it computes.
#[napi(catch_unwind)]
pub fn model_describe(model: &CompiledModel) -> Result<ModelDescription> {
    let found = model.model()?.describe();
    let prompts = found.prompts.into_iter();
    Ok(ModelDescription {
        architecture: found.architecture.to_owned(),
        parameters: found.parameters as f64,
        dimensions: found.dimensions as f64,
        token_limit: found.token_limit as f64,
        pooling: found.pooling.map(|pooling| pooling.word().to_owned()),
        normalize: found.normalize,
        similarity: found.similarity.map(|one| one.word().to_owned()),
        prompts: prompts.map(|(name, text)| vec![name, text]).collect(),
        default_prompt: found.default_prompt,
        precision: found.precision.word().to_owned(),
        residency: found.residency.word().to_owned(),
        cpu_class: found.cpu_class.map(|class| class.word().to_owned()),
        gpu_class: found.gpu_class.map(|class| class.word().to_owned()),
        devices: found.devices,
        bytes: found.bytes as f64,
        fingerprint: found.fingerprint.to_string(),
        refused: found.refused,
    })
}

/// Loads a model into host memory while the caller waits.
#[napi(catch_unwind)]
pub fn model_load_ram(
    env: Env,
    path: String,
    options: LoadOptions,
    executor: &CompiledExecutor,
) -> Result<CompiledModel> {
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let model = Model::load_ram(Path::new(&path), &options.parse()?, &executor.executor)
        .map_err(refusal)?;
    Ok(External::new(ModelHandle::new(model, environment)))
}

/// The same without waiting: `settle(error, model)` is called when it is loaded.
#[napi(catch_unwind)]
pub fn model_open_ram(
    path: String,
    options: LoadOptions,
    executor: &CompiledExecutor,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let options = options.parse()?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    Model::open_ram(
        path.into(),
        options,
        &executor.executor,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Model));
        },
    );
    Ok(())
}

/// The same from files, which it takes.
#[napi(catch_unwind)]
pub fn model_open_files(
    files: &CompiledFiles,
    options: LoadOptions,
    executor: &CompiledExecutor,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let options = options.parse()?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    let source = Box::new(files.take());
    Model::open_from(
        source,
        options,
        &executor.executor,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Model));
        },
    );
    Ok(())
}

/// Loads a model into the memory of an executor's GPUs while the caller waits.
#[napi(catch_unwind)]
pub fn model_load_vram(
    env: Env,
    path: String,
    options: VramLoadOptions,
    executor: &CompiledExecutor,
) -> Result<CompiledModel> {
    let environment = Environment::of(env.raw()).map_err(internal)?;
    let model = Model::load_vram(Path::new(&path), &options.parse()?, &executor.executor)
        .map_err(refusal)?;
    Ok(External::new(ModelHandle::new(model, environment)))
}

/// The same without waiting: `settle(error, model)` is called when it is loaded.
#[napi(catch_unwind)]
pub fn model_open_vram(
    path: String,
    options: VramLoadOptions,
    executor: &CompiledExecutor,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let options = options.parse()?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    Model::open_vram(
        path.into(),
        options,
        &executor.executor,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Model));
        },
    );
    Ok(())
}

/// The same from files, which it takes.
#[napi(catch_unwind)]
pub fn model_open_files_vram(
    files: &CompiledFiles,
    options: VramLoadOptions,
    executor: &CompiledExecutor,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let options = options.parse()?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    let source = Box::new(files.take());
    Model::open_vram_from(
        source,
        options,
        &executor.executor,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Model));
        },
    );
    Ok(())
}

/// Vectors of the texts, an array of strings, while the caller waits.
#[napi(catch_unwind)]
pub fn model_encode_text(
    env: Env,
    model: &CompiledModel,
    executor: &CompiledExecutor,
    texts: Unknown<'_>,
    options: Option<EncodeOptions>,
) -> Result<Value> {
    let texts = read_texts(env.raw(), texts.raw())?;
    let found = model
        .model()?
        .encode_text(&executor.executor, &texts, &encoding(options)?);
    executor.account();
    let found = Outcome::Embeddings(found.map_err(refusal)?);
    found.into_value(env.raw()).map(Value).map_err(internal)
}

/// The same without waiting: `settle(error, embeddings)` is called when they are
/// there. The texts are copied before this returns.
#[napi(catch_unwind)]
pub fn model_encode_text_deferred(
    env: Env,
    model: &CompiledModel,
    executor: &CompiledExecutor,
    texts: Unknown<'_>,
    options: Option<EncodeOptions>,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let texts = read_texts(env.raw(), texts.raw())?;
    let options = encoding(options)?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    executor.account();
    model.model()?.encode_text_deferred(
        &executor.executor,
        texts,
        options,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::Embeddings));
        },
    );
    Ok(())
}

/// Vectors of the texts, which stay where the devices of the model and the executor compute them.
#[napi(catch_unwind)]
pub fn model_encode_text_vram(
    env: Env,
    model: &CompiledModel,
    executor: &CompiledExecutor,
    texts: Unknown<'_>,
    options: Option<EncodeOptions>,
) -> Result<Value> {
    let texts = read_texts(env.raw(), texts.raw())?;
    let found = model
        .model()?
        .encode_text_vram(&executor.executor, &texts, &encoding(options)?);
    executor.account();
    let found = Outcome::DeviceEmbeddings(found.map_err(refusal)?);
    found.into_value(env.raw()).map(Value).map_err(internal)
}

/// The same without waiting: `settle(error, embeddings)` is called when they are computed. The
/// texts are copied before this returns.
#[napi(catch_unwind)]
pub fn model_encode_text_vram_deferred(
    env: Env,
    model: &CompiledModel,
    executor: &CompiledExecutor,
    texts: Unknown<'_>,
    options: Option<EncodeOptions>,
    call: Option<&CompiledCall>,
    settle: Unknown<'_>,
) -> Result<()> {
    let texts = read_texts(env.raw(), texts.raw())?;
    let options = encoding(options)?;
    let ticket = executor.environment().ticket(settle.raw())?;
    let control = control(call);
    executor.account();
    model.model()?.encode_text_vram_deferred(
        &executor.executor,
        texts,
        options,
        control,
        move |outcome| {
            ticket.settle(outcome.map(Outcome::DeviceEmbeddings));
        },
    );
    Ok(())
}

/// The tokens of the texts, an array of strings, as `[ids, offsets, spans]`.
#[napi(catch_unwind)]
pub fn model_tokenize(
    env: Env,
    model: &CompiledModel,
    texts: Unknown<'_>,
    special_as_text: bool,
) -> Result<Value> {
    let model = model.model()?;
    let texts = read_texts(env.raw(), texts.raw())?;
    let found = model.tokenize(&texts, special(special_as_text));
    let Tokens {
        ids,
        offsets,
        spans,
    } = found.map_err(refusal)?;
    let parts = [ids, offsets, spans].map(|part| typed_array(env.raw(), part).map_err(internal));
    let [ids, offsets, spans] = parts;
    let parts = [ids?, offsets?, spans?];
    array(env.raw(), &parts).map(Value).map_err(internal)
}

/// How many tokens each of the texts has.
#[napi(catch_unwind)]
pub fn model_count_tokens(
    env: Env,
    model: &CompiledModel,
    texts: Unknown<'_>,
    special_as_text: bool,
) -> Result<Value> {
    let model = model.model()?;
    let texts = read_texts(env.raw(), texts.raw())?;
    let found = model.count_tokens(&texts, special(special_as_text));
    let counts = typed_array(env.raw(), found.map_err(refusal)?);
    counts.map(Value).map_err(internal)
}

fn special(as_text: bool) -> Special {
    match as_text {
        true => Special::Text,
        false => Special::Parse,
    }
}

/// Waits for the model's calls in flight and releases its weights. Again: nothing.
#[napi(catch_unwind)]
pub fn model_free(model: &CompiledModel) {
    if let Some(model) = model.model.take() {
        model.free();
    }
    model.account.set(0);
}

/// Copies an array of strings. Ill-formed UTF-16 becomes U+FFFD.
fn read_texts(env: sys::napi_env, array: sys::napi_value) -> Result<Texts> {
    let mut count = 0;
    // SAFETY: `array` is a value of the current scope.
    check_status!(unsafe { sys::napi_get_array_length(env, array, &mut count) })
        .map_err(internal)?;
    let mut texts = Texts::default();
    texts.reserve(count as usize, 0).map_err(refusal)?;
    let mut bytes = Vec::new();
    for index in 0..count {
        read_text(env, array, index, &mut bytes)?;
        // V8 writes well-formed UTF-8, so this borrows; were it not so, nothing worse than U+FFFD.
        let text = String::from_utf8_lossy(&bytes);
        texts.reserve(1, text.len()).map_err(refusal)?;
        texts.push(&text);
    }
    Ok(texts)
}

/// Copies one string of the array into `bytes`, within a scope of its own:
/// the handles of a long array would otherwise pile up.
fn read_text(
    env: sys::napi_env,
    array: sys::napi_value,
    index: u32,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let (mut scope, mut text) = (ptr::null_mut(), ptr::null_mut());
    let (mut length, mut written) = (0, 0);
    bytes.clear();
    let mut room = Ok(());
    // SAFETY: the scope is closed before its handles are forgotten; the second reading writes at
    // most `length` bytes and a NUL into room made for both, and `written` says how many.
    unsafe {
        check_status!(sys::napi_open_handle_scope(env, &mut scope)).map_err(internal)?;
        let status = sys::napi_get_element(env, array, index, &mut text);
        let status = first_failure(status, || {
            sys::napi_get_value_string_utf8(env, text, ptr::null_mut(), 0, &mut length)
        });
        let status = first_failure(status, || {
            room = reserve(bytes, length + 1, "a text");
            if room.is_err() {
                return sys::Status::napi_ok;
            }
            let to = bytes.as_mut_ptr().cast();
            sys::napi_get_value_string_utf8(env, text, to, length + 1, &mut written)
        });
        sys::napi_close_handle_scope(env, scope);
        check_status!(status).map_err(internal)?;
        bytes.set_len(written);
    }
    room.map_err(refusal)
}

fn first_failure(
    status: sys::napi_status,
    next: impl FnOnce() -> sys::napi_status,
) -> sys::napi_status {
    match status {
        sys::Status::napi_ok => next(),
        failure => failure,
    }
}
