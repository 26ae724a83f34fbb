//! Files to weights, texts to vectors.
//!
//! A [`Model`] is read once and never changes. Its files come from a
//! [`files::Source`]: a [`folder::Folder`] or bytes in memory ([`wanted`]: which of them, where none is listed). `modules.json` says
//! which steps lead from text to vector ([`modules`]), `config.json` how large the
//! encoder is ([`config`]), and a handful of small files how the model wants to be
//! used ([`settings`], [`prompts`]). The numbers are in safetensors files
//! ([`blob`], [`tensors`], [`weights`], and of 8 bits [`quantized`]), the vocabulary in `tokenizer.json`
//! ([`tokenizer_file`], [`tokenizer`], `pipeline`, `words`, `division`). `load` reads all of it in order; what is wrong
//! with a file is said there, by name, before anything is computed. On the way it takes the
//! model's [`Fingerprint`], and a loaded model can tell what it is ([`Description`]). `quantize`
//! writes a model's files again, with smaller weights.
//!
//! A deferred call and its neighbours of one kind (`call`), or an immediate one, go
//! through `encode` (texts to tokens, tokens to blocks, blocks to vectors), `plan` (which lane computes which block), `bert` (the layers),
//! `pooling`, and the optional heads in `dense`.
//!
//! A model *resides* in host memory, or in the memory of GPUs (`vram`), where its results stay as
//! well; an executor computes models of one residency ([`Residency`]).

mod bert;
pub mod blob;
mod call;
pub mod config;
mod dense;
mod description;
mod division;
pub mod document;
mod embeddings;
mod encode;
pub mod files;
mod fingerprint;
#[cfg(feature = "native")]
pub mod folder;
mod load;
pub mod modules;
pub mod nearest;
pub mod opened;
mod pipeline;
mod plan;
mod pooling;
pub mod pooling_mode;
pub mod prompts;
#[cfg(feature = "native")]
pub mod quantize;
pub mod quantized;
mod request;
mod residency;
pub mod settings;
pub mod tensors;
#[cfg(test)]
mod tests;
mod texts;
mod tokenized;
pub mod tokenizer;
pub mod tokenizer_file;
#[cfg(feature = "native")]
mod vram;
pub mod wanted;
pub mod weights;
mod words;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::bert::Bert;
use self::call::Call;
use self::dense::Head;
use self::settings::Settings;
use self::tokenizer::Tokenizer;
#[cfg(feature = "native")]
use self::vram::Vram;
#[cfg(not(feature = "native"))]
use crate::executor::Turns;
use crate::executor::{Control, Executor};
use crate::hardware::{CpuClass, GpuClass};
use crate::kernels::{Kernels, Precision};
use crate::{Error, Result};

pub use self::description::Description;
pub use self::embeddings::Embeddings;
pub use self::fingerprint::Fingerprint;
pub use self::pooling_mode::Pooling;
pub use self::residency::Residency;
pub use self::texts::{Lender, Texts};
#[cfg(feature = "native")]
pub use self::vram::{DeviceEmbeddings, DevicePart, DeviceShare, VramModelOptions};

/// Options of loading a model. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// Ids of the memory domains the weights lie in, by turns where there are several; empty:
    /// absent, those of the executor that loads, else wherever the system puts them.
    pub memory_domains: Vec<u32>,
    /// The kernels' class; absent: the executor's where it is pinned, else the CPU's own.
    pub cpu_class: Option<CpuClass>,
    /// What the encoder's dense layers multiply in; absent: [`Precision::auto`] of the class.
    pub precision: Option<Precision>,
}

/// Options of encoding text. `None` is "what the model's files say".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodeOptions {
    /// How token vectors become one vector.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length one.
    pub normalize: Option<bool>,
    /// How many leading dimensions to keep (Matryoshka), cut before normalising; absent: all.
    pub dimensions: Option<u64>,
    /// Name of a prompt in the model's files to put before each text.
    pub prompt: Option<String>,
    /// A prompt to put before each text. Not together with `prompt`.
    pub prompt_text: Option<String>,
    /// What happens to a text over the model's token limit.
    pub truncate: Truncate,
}

/// What happens to a text over the model's token limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truncate {
    /// It is cut, and `truncated` says so.
    #[default]
    Cut,
    /// The call fails with [`InvalidArgument`](crate::Status::InvalidArgument).
    Refuse,
}

/// A loaded model: weights, tokenizer and settings. Clones share them.
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    calls: Mutex<Calls>,
    /// Told when none is left and somebody waits for that.
    idle: Condvar,
}

/// What a model consists of.
struct Parts {
    network: Network,
    tokenizer: Tokenizer,
    settings: Settings,
    precision: Precision,
    /// Weights that were read.
    parameters: u64,
    fingerprint: Fingerprint,
    /// What was asked of the system while loading and refused, a sentence each.
    refused: Vec<String>,
}

/// What computes, and where it resides.
enum Network {
    Ram(Box<Ram>),
    #[cfg(feature = "native")]
    Vram(Vram),
}

/// An encoder and its heads in host memory.
struct Ram {
    bert: Bert,
    heads: Vec<Head>,
    head_kernels: &'static Kernels,
    class: CpuClass,
}

impl Ram {
    fn hidden(&self) -> usize {
        self.bert.hidden_size()
    }

    /// Length of a full vector.
    fn dimensions(&self) -> usize {
        self.heads.last().map_or(self.hidden(), Head::outputs)
    }

    /// Floats a text takes on its way from pooling through the heads.
    fn widths(&self) -> usize {
        self.hidden() + self.heads.iter().map(Head::outputs).sum::<usize>()
    }

    fn bytes(&self) -> usize {
        self.bert.bytes() + self.heads.iter().map(Head::bytes).sum::<usize>()
    }
}

impl Parts {
    /// Length of a full vector.
    fn dimensions(&self) -> usize {
        match &self.network {
            Network::Ram(ram) => ram.dimensions(),
            #[cfg(feature = "native")]
            Network::Vram(vram) => vram.dimensions(),
        }
    }

    fn residency(&self) -> Residency {
        match self.network {
            Network::Ram(_) => Residency::Ram,
            #[cfg(feature = "native")]
            Network::Vram(_) => Residency::Vram,
        }
    }

    /// What resides in host memory.
    ///
    /// # Errors
    /// `InvalidArgument` where nothing does.
    fn ram(&self) -> Result<&Ram> {
        match &self.network {
            Network::Ram(ram) => Ok(ram),
            #[cfg(feature = "native")]
            Network::Vram(_) => Err(Error::invalid(
                "the model resides in the memory of GPUs, and its vectors as well: encode_text_vram \
                 is the call for it",
            )),
        }
    }
}

impl Model {
    fn new(parts: Parts) -> Self {
        let (calls, idle) = Default::default();
        Model {
            shared: Arc::new(Shared { parts, calls, idle }),
        }
    }

    /// Encodes texts while the caller waits: an immediate call on `executor`.
    ///
    /// # Errors
    /// `InvalidArgument` for options the model cannot serve, for an executor pinned to
    /// another class, and for a text over the limit with [`Truncate::Refuse`];
    /// `Contended` when another call holds the executor; `OutOfMemory` for scratch.
    pub fn encode_text(
        &self,
        executor: &Executor,
        texts: &Texts,
        options: &EncodeOptions,
    ) -> Result<Embeddings> {
        self.fits(executor)?;
        let call = InFlight::new(&self.shared);
        executor.immediate(&Control::new(), |hold| {
            encode::encode_alone(&call.0.parts, texts, options, hold)
        })
    }

    /// Encodes texts as a deferred call on `executor`: returns at once, and hands the
    /// outcome to `done`, exactly once. Short calls next to each other in the queue, on one
    /// model with equal options, are computed together. Errors are those of [`encode_text`](Self::encode_text),
    /// `DeferredLimit`, and `Aborted` after [`Control::cancel`].
    pub fn encode_text_deferred(
        &self,
        executor: &Executor,
        texts: Texts,
        options: EncodeOptions,
        control: Arc<Control>,
        done: impl FnOnce(Result<Embeddings>) + Send + 'static,
    ) {
        let lanes = executor.threads();
        let call = |model| Call::new(model, texts, options, lanes);
        self.defer(executor, call, control, done);
    }

    /// [`encode_text_deferred`](Self::encode_text_deferred) of texts that are copied when the call's turn
    /// comes: too many, or too long, to be copied at once.
    pub fn encode_lent_deferred(
        &self,
        executor: &Executor,
        lender: Box<dyn Lender>,
        options: EncodeOptions,
        control: Arc<Control>,
        done: impl FnOnce(Result<Embeddings>) + Send + 'static,
    ) {
        let call = |model| Call::lent(model, lender, options);
        self.defer(executor, call, control, done);
    }

    fn defer(
        &self,
        executor: &Executor,
        call: impl FnOnce(InFlight) -> Call,
        control: Arc<Control>,
        done: impl FnOnce(Result<Embeddings>) + Send + 'static,
    ) {
        if let Err(error) = self.fits(executor) {
            return done(Err(error));
        }
        #[cfg(feature = "native")]
        let model = InFlight::new(&self.shared);
        #[cfg(not(feature = "native"))]
        let model = InFlight::deferred(&self.shared, Turns::of(executor));
        executor.deferred_work(control, call(model), done);
    }

    /// Token ids of a text after any cut, special tokens included, without a prompt.
    ///
    /// # Errors
    /// What the tokenizer refuses.
    pub fn token_ids(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.shared.parts.tokenizer.encode(text, &mut ids)?;
        Ok(ids)
    }

    /// Where its weights are.
    pub fn residency(&self) -> Residency {
        self.shared.parts.residency()
    }

    /// The class whose kernels compute, of a model in host memory.
    pub fn cpu_class(&self) -> Option<CpuClass> {
        match &self.shared.parts.network {
            Network::Ram(ram) => Some(ram.class),
            #[cfg(feature = "native")]
            Network::Vram(_) => None,
        }
    }

    /// The class whose kernels compute, of a model on GPUs that are of one.
    pub fn gpu_class(&self) -> Option<GpuClass> {
        match &self.shared.parts.network {
            Network::Ram(_) => None,
            #[cfg(feature = "native")]
            Network::Vram(vram) => vram.gpu_class(),
        }
    }

    /// Ordinals of the devices that have its weights; none of a model in host memory.
    pub fn device_ordinals(&self) -> Vec<u32> {
        match &self.shared.parts.network {
            Network::Ram(_) => Vec::new(),
            #[cfg(feature = "native")]
            Network::Vram(vram) => vram.ordinals(),
        }
    }

    /// What the encoder's dense layers multiply in.
    pub fn precision(&self) -> Precision {
        self.shared.parts.precision
    }

    /// Length of a full vector.
    pub fn dimensions(&self) -> usize {
        self.shared.parts.dimensions()
    }

    /// Bytes of weights in memory, on all devices together: `docs/memory.md` has the formula for host memory.
    pub fn bytes(&self) -> usize {
        match &self.shared.parts.network {
            Network::Ram(ram) => ram.bytes(),
            #[cfg(feature = "native")]
            Network::Vram(vram) => vram.bytes(),
        }
    }

    /// Lets go of the model once its calls in flight have ended. Without threads they are computed here and
    /// now, with what is queued before them.
    pub fn free(self) {
        let mut calls = self.shared.lock();
        calls.awaited = true;
        #[cfg(feature = "native")]
        while calls.in_flight > 0 {
            calls = self
                .shared
                .idle
                .wait(calls)
                .unwrap_or_else(PoisonError::into_inner);
        }
        #[cfg(not(feature = "native"))]
        while let Some(turns) = calls.deferred.first().cloned() {
            drop(calls);
            let is_computed = turns.next();
            calls = self.shared.lock();
            if !is_computed {
                // From within a call of that executor: it ends later.
                calls.deferred.retain(|other| *other != turns);
            }
        }
    }

    /// Whether an executor computes it. One without a class of its own takes any model of its residency.
    fn fits(&self, executor: &Executor) -> Result<()> {
        self.residency().fits(executor)?;
        match (&self.shared.parts.network, executor.cpu_class()) {
            (Network::Ram(ram), Some(class)) if class != ram.class => Err(Error::invalid(format!(
                "the executor is pinned to cpuClass {:?} and the model was loaded for {:?}: \
                 load the model with the executor, or pin both alike",
                class.word(),
                ram.class.word()
            ))),
            (Network::Ram(_), _) => Ok(()),
            #[cfg(feature = "native")]
            (Network::Vram(vram), _) => vram.fits(executor),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        // Counts are valid whatever a panicking thread was doing.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls that use a model.
#[derive(Default)]
struct Calls {
    in_flight: usize,
    /// Whether [`Model::free`] waits for their end.
    awaited: bool,
    /// Who computes those that are deferred.
    #[cfg(not(feature = "native"))]
    deferred: Vec<Turns>,
}

/// A call that uses the model: [`Model::free`] waits for it.
struct InFlight(Arc<Shared>, #[cfg(not(feature = "native"))] Option<Turns>);

impl InFlight {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().in_flight += 1;
        InFlight(
            Arc::clone(shared),
            #[cfg(not(feature = "native"))]
            None,
        )
    }

    /// A deferred one, and who computes it.
    #[cfg(not(feature = "native"))]
    fn deferred(shared: &Arc<Shared>, turns: Turns) -> Self {
        let mut call = InFlight::new(shared);
        shared.lock().deferred.push(turns.clone());
        call.1 = Some(turns);
        call
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut calls = self.0.lock();
        calls.in_flight -= 1;
        #[cfg(not(feature = "native"))]
        if let Some(at) = calls
            .deferred
            .iter()
            .position(|turns| Some(turns) == self.1.as_ref())
        {
            calls.deferred.remove(at);
        }
        // Telling is a system call, and a short call ends often.
        if calls.awaited && calls.in_flight == 0 {
            self.0.idle.notify_all();
        }
    }
}
