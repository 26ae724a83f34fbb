//! Files to weights, texts to vectors.
//!
//! A [`Model`] is read once and never changes. From the ground up:
//!
//! | folder | what it answers |
//! | --- | --- |
//! | [`files`] | where bytes come from: a folder, memory |
//! | [`checkpoint`] | names to tensors: safetensors, shards, stored types, the fingerprint |
//! | [`settings`] | how the model wants to be used: `modules.json`, pooling, prompts, limits |
//! | [`architecture`] | what `config.json` says of the encoder |
//! | [`tokenizer`] | text to token ids |
//! | `ram`, `vram` | the encoder and its heads in host memory, or on GPUs |
//! | [`load`] | all of the files, read in order: an error names the file before anything is computed |
//! | `encode` | calls: texts to tokens, tokens to blocks, blocks over lanes, vectors |
//! | [`quantize`] | a model's files written again with smaller weights |
//!
//! A model *resides* in host memory or in the memory of GPUs, where its results stay as well. An
//! executor computes models of one residency ([`Residency`]).

pub mod architecture;
pub mod checkpoint;
mod description;
mod encode;
pub mod files;
pub mod load;
mod options;
#[cfg(feature = "native")]
pub mod quantize;
mod ram;
mod residency;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod tokenizer;
#[cfg(feature = "native")]
mod vram;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::encode::call::Call;
use self::ram::Ram;
use self::settings::Settings;
use self::tokenizer::Tokenizer;
#[cfg(feature = "native")]
use self::vram::Vram;
#[cfg(not(feature = "native"))]
use crate::executor::Turns;
use crate::executor::{Control, Executor};
use crate::hardware::{CpuClass, GpuClass};
use crate::kernels::Precision;
use crate::{Error, Result};

pub use self::checkpoint::fingerprint::Fingerprint;
pub use self::description::Description;
pub use self::encode::embeddings::Embeddings;
pub use self::encode::texts::{Lender, Texts};
pub use self::options::{EncodeOptions, ModelOptions, Truncate};
pub use self::residency::Residency;
pub use self::settings::pooling_mode::Pooling;
#[cfg(feature = "native")]
pub use self::vram::{DeviceEmbeddings, DevicePart, DeviceShare, VramModelOptions};

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
