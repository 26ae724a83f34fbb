//! Models in the memory of GPUs: the same files, the same options, the same vectors within rounding.
//!
//! Loading (`load`) copies the weights to each device, laid out as `weights` says and in the numbers
//! that `format` says: f32, or bf16 where tensor cores multiply. A call is tokenized by the executor's host
//! threads; `split` gives each device texts of its own, by their tokens, and cuts them into blocks; `encode`
//! submits the blocks of all devices by turns, layer by layer (`forward`), and waits. The results
//! stay where they were computed (`embeddings`).
//!
//! A row is computed by the same instructions on every device and in any company, so how a
//! batch is split and cut shows in no vector.

mod embeddings;
mod encode;
mod format;
mod forward;
mod load;
mod split;
mod weights;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::forward::Encoder;
use self::load::Plan;
use super::EncodeOptions;
use super::InFlight;
use super::Model;
use super::Network;
use super::Parts;
use super::Texts;
use crate::device::{Buffer, kernels::Kernels};
use crate::executor::{Control, Driven, Executor};
use crate::hardware::GpuClass;
use crate::kernels::Precision;
use crate::model::encode::call::{Call, DeviceCall};
use crate::model::files::Source;
use crate::model::files::folder::Folder;
use crate::{Error, Result, Status};

pub use self::embeddings::{DeviceEmbeddings, DevicePart, DeviceShare};
pub(super) use self::encode::{encode, encode_alone};

/// Options of loading a model into the memory of GPUs. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct VramModelOptions {
    /// Ordinals of the devices, a subset of the executor's; empty: absent, all of them.
    pub devices: Vec<u32>,
    /// The class whose kernels compute; absent: the executor's where it is pinned, else each
    /// device's own.
    pub gpu_class: Option<GpuClass>,
    /// What the encoder's dense layers multiply in; absent: bf16 where every device has tensor cores and the
    /// model's sizes suit them, else f32.
    pub precision: Option<Precision>,
}

/// A model's weights on one device, and the kernels that compute with them.
struct Replica {
    place: Driven,
    kernels: Arc<Kernels>,
    weights: Buffer,
}

/// A model in the memory of GPUs.
pub(super) struct Vram {
    encoder: Box<dyn Encoder>,
    replicas: Vec<Replica>,
    dimensions: usize,
}

impl Vram {
    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(super) fn bytes(&self) -> usize {
        let weights = self.replicas.iter().map(|replica| replica.weights.bytes());
        weights.sum()
    }

    pub(super) fn ordinals(&self) -> Vec<u32> {
        let places = self.replicas.iter().map(|replica| replica.place.ordinal);
        places.collect()
    }

    pub(super) fn gpu_class(&self) -> Option<GpuClass> {
        let mut classes = self.replicas.iter().map(|replica| replica.place.class);
        let first = classes.next()?;
        classes.all(|class| class == first).then_some(first)
    }

    /// Whether an executor drives a device that has the weights, by the kernels they were loaded for.
    pub(super) fn fits(&self, executor: &Executor) -> Result<()> {
        let devices = executor.driving()?;
        let driven = devices.places();
        let pinned = devices.pinned();
        if let (Some(pinned), Some(other)) = (
            pinned,
            self.replicas
                .iter()
                .map(|replica| replica.place.class)
                .find(|class| Some(*class) != pinned),
        ) {
            return Err(Error::invalid(format!(
                "the executor is pinned to gpuClass {:?} and the model was loaded for {:?}: load the \
                 model with the executor, or pin both alike",
                pinned.word(),
                other.word()
            )));
        }
        let has = |ordinal: u32| self.replicas.iter().any(|one| one.place.ordinal == ordinal);
        if driven.iter().any(|place| has(place.ordinal)) {
            return Ok(());
        }
        let driven: Vec<_> = driven.iter().map(|place| place.ordinal).collect();
        Err(Error::invalid(format!(
            "the model resides on devices {:?} and the executor drives {driven:?}: load the model with \
             the executor, or make one that drives one of the model's devices",
            self.ordinals()
        )))
    }
}

impl Parts {
    /// What resides on GPUs.
    ///
    /// # Errors
    /// `Internal` where nothing does: the residency was looked at before.
    pub(super) fn vram(&self) -> Result<&Vram> {
        match &self.network {
            Network::Vram(vram) => Ok(vram),
            Network::Ram(_) => Err(Error::new(
                Status::Internal,
                "a model in host memory was to be computed by GPUs",
            )),
        }
    }
}

impl Model {
    /// Loads the model at `path` into the memory of an executor's GPUs while the caller waits: an immediate
    /// call, whose host threads share the reading. Each of the devices gets all of the weights. For
    /// `path` see [`load_ram`](Self::load_ram).
    ///
    /// # Errors
    /// Those of [`load_ram`](Self::load_ram) for the files; `InvalidArgument` for an executor that drives no
    /// device, for devices that are not its, and for a class they cannot run or the executor is not
    /// pinned to; `Unsupported` for a precision or a model that the kernels cannot compute;
    /// `OutOfMemory` and `DeviceFault`.
    pub fn load_vram(
        path: &Path,
        options: &VramModelOptions,
        executor: &Executor,
    ) -> Result<Model> {
        Model::load_vram_from(&Folder::open(path)?, options, executor)
    }

    /// [`load_vram`](Self::load_vram) of a model whose files come from anywhere. Errors are the same.
    pub fn load_vram_from(
        source: &dyn Source,
        options: &VramModelOptions,
        executor: &Executor,
    ) -> Result<Model> {
        let plan = Plan::new(options, executor)?;
        executor.immediate(&Control::new(), |hold| {
            plan.read(source, hold.team, hold.control)
        })
    }

    /// [`load_vram`](Self::load_vram) as a deferred call: returns at once, and hands the outcome to `done`,
    /// exactly once. Progress is in bytes of weights.
    pub fn open_vram(
        path: PathBuf,
        options: VramModelOptions,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Model>) + Send + 'static,
    ) {
        let folder = move || Ok(Box::new(Folder::open(&path)?) as Box<dyn Source>);
        open(folder, options, executor, control, done);
    }

    /// [`load_vram_from`](Self::load_vram_from) as a deferred call, as [`open_vram`](Self::open_vram) is of
    /// [`load_vram`](Self::load_vram).
    pub fn open_vram_from(
        source: Box<dyn Source>,
        options: VramModelOptions,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Model>) + Send + 'static,
    ) {
        open(|| Ok(source), options, executor, control, done);
    }

    /// Encodes texts with a model on GPUs while the caller waits: an immediate call on `executor`. The vectors stay
    /// on the devices.
    ///
    /// # Errors
    /// `InvalidArgument` for options the model cannot serve, for an executor of another residency, without
    /// one of the model's devices or pinned to another class, and for a text over the limit with
    /// [`Truncate::Refuse`](super::Truncate::Refuse); `Contended` when another call holds the executor;
    /// `OutOfMemory` for scratch above the executor's limit, and for memory; `DeviceFault`.
    pub fn encode_text_vram(
        &self,
        executor: &Executor,
        texts: &Texts,
        options: &EncodeOptions,
    ) -> Result<DeviceEmbeddings> {
        let devices = self.on(executor)?;
        let call = InFlight::new(&self.shared);
        executor.immediate(&Control::new(), |hold| {
            encode_alone(&call.0.parts, texts, options, hold, devices)
        })
    }

    /// The same as a deferred call on `executor`: returns at once, and hands the outcome to `done`, exactly
    /// once. Short calls next to each other in the queue, on one model with equal options, are computed
    /// together. Errors are those of [`encode_text_vram`](Self::encode_text_vram), `DeferredLimit`, and
    /// `Aborted` after [`Control::cancel`].
    pub fn encode_text_vram_deferred(
        &self,
        executor: &Executor,
        texts: Texts,
        options: EncodeOptions,
        control: Arc<Control>,
        done: impl FnOnce(Result<DeviceEmbeddings>) + Send + 'static,
    ) {
        let devices = match self.on(executor) {
            Ok(devices) => Arc::clone(devices),
            Err(error) => return done(Err(error)),
        };
        let call = InFlight::new(&self.shared);
        let call = Call::on_devices(call, texts, options, devices.places().len());
        executor.deferred_work(control, DeviceCall::new(call, devices), done);
    }

    /// The devices of an executor that computes this model on GPUs.
    fn on<'a>(&self, executor: &'a Executor) -> Result<&'a Arc<crate::executor::Devices>> {
        self.fits(executor)?;
        if let Network::Ram(_) = self.shared.parts.network {
            return Err(Error::invalid(
                "the model resides in host memory, and its vectors as well: encode_text is the \
                 call for it",
            ));
        }
        executor.driving()
    }
}

/// Reads a model in a deferred call, whose first act is to open the source.
fn open(
    source: impl FnOnce() -> Result<Box<dyn Source>> + Send + 'static,
    options: VramModelOptions,
    executor: &Executor,
    control: Arc<Control>,
    done: impl FnOnce(Result<Model>) + Send + 'static,
) {
    let plan = match Plan::new(&options, executor) {
        Ok(plan) => plan,
        Err(error) => return done(Err(error)),
    };
    executor.deferred(
        control,
        move |hold| plan.read(&*source()?, hold.team, hold.control),
        done,
    );
}
