//! A model with smaller weights: [`Model::quantize`] reads one and writes another.
//!
//! First the model is loaded, and embeds a few texts (`samples`): what is wrong with it is said before
//! anything is written. What is written is what was read, no pooler and no second framework's
//! weights: the settings files as they are, and each tensor in its new form (`matrix`), one after the other,
//! into one file (`file`) in a folder that appears when it is complete (`new_folder`). Before it does,
//! the model in it is loaded and embeds the same texts.

mod file;
mod matrix;
mod new_folder;
mod samples;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::Dtype;

use self::new_folder::NewFolder;
use self::samples::Vectors;
use super::Model;
use super::ModelOptions;
use crate::executor::{Control, Executor, Hold, complete};
use crate::kernels::Precision;
use crate::model::checkpoint::fingerprint::Recorder;
use crate::model::checkpoint::weights::Weights;
use crate::model::files::folder::Folder;
use crate::model::files::{SINGLE, Source, join};
use crate::model::load::{Plan, Reader};
use crate::{Error, Result, quoted};

pub use self::samples::Likeness;

/// How the matrices of a model's weights are stored. Vectors, a thousandth of them, stay in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// IEEE 754 half precision: half the bytes of f32.
    F16,
    /// 8-bit integers with a scale an output ([`quantized`](crate::model::checkpoint::quantized)): a quarter.
    I8,
}

impl WeightFormat {
    /// All formats.
    pub const ALL: [WeightFormat; 2] = [WeightFormat::F16, WeightFormat::I8];

    /// The format a caller's word stands for.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) for any other word, naming those that would do.
    pub fn parse(word: &str) -> Result<WeightFormat> {
        let found = WeightFormat::ALL.into_iter().find(|one| one.word() == word);
        found.ok_or_else(|| {
            Error::invalid(format!(
                "weights: {} is not known; it is one of \"f16\", \"i8\"",
                quoted::text(word)
            ))
        })
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            WeightFormat::F16 => "f16",
            WeightFormat::I8 => "i8",
        }
    }

    /// The precisions its vectors are compared in.
    fn precisions(self) -> &'static [Precision] {
        match self {
            WeightFormat::F16 => &[Precision::F32],
            WeightFormat::I8 => &[Precision::F32, Precision::I8],
        }
    }
}

/// What came of [`Model::quantize`].
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// Bytes of the files of weights that were read.
    pub bytes_before: u64,
    /// Bytes of those that were written.
    pub bytes_after: u64,
    /// How near the new model's vectors are to those of the original in f32, computed in f32 and, of
    /// i8, in i8 as well.
    pub likenesses: Vec<Likeness>,
}

/// Names of files in a model's root that go with its weights wherever they go.
const COMPANIONS: [&str; 5] = ["readme", "license", "licence", "notice", "copying"];

impl Model {
    /// Writes the model at `from`, a folder or a `.safetensors` file as for [`Model::load_ram`], to the
    /// folder `into`, which is new or empty, with its weights in `format`: an immediate call.
    ///
    /// The folder has what a model is loaded from, and the model's card and licence. It
    /// appears when it is complete; after a failure nothing is left behind. One matrix is in
    /// memory at a time; before and after, the model is loaded in f32.
    ///
    /// # Errors
    /// Those of [`Model::load_ram`] for `from`; `InvalidArgument` when `into` has something in it or
    /// the model is quantized already; `Unsupported` for a weight that f16 cannot hold; `NotFound`
    /// when the folder around `into` is not there; `Io`; `Contended` when another call holds the executor.
    pub fn quantize(
        from: &Path,
        into: &Path,
        format: WeightFormat,
        executor: &Executor,
    ) -> Result<Quantization> {
        let plans = Plans::new(format, executor)?;
        executor.immediate(&Control::new(), |hold| {
            quantize(from, into, format, &plans, hold)
        })
    }

    /// [`quantize`](Self::quantize) as a deferred call: returns at once, and hands the outcome to
    /// `done`, exactly once. It can be given up between two tensors.
    pub fn quantize_deferred(
        from: PathBuf,
        into: PathBuf,
        format: WeightFormat,
        executor: &Executor,
        control: Arc<Control>,
        done: impl FnOnce(Result<Quantization>) + Send + 'static,
    ) {
        let plans = match Plans::new(format, executor) {
            Ok(plans) => plans,
            Err(error) => return done(Err(error)),
        };
        executor.deferred(
            control,
            move |hold| quantize(&from, &into, format, &plans, hold),
            done,
        );
    }
}

/// How the models are loaded that are compared.
struct Plans {
    original: Plan,
    quantized: Vec<Plan>,
}

impl Plans {
    fn new(format: WeightFormat, executor: &Executor) -> Result<Plans> {
        let plan = |precision: Precision| {
            let options = ModelOptions {
                precision: Some(precision),
                ..ModelOptions::default()
            };
            Plan::new(&options, executor)
        };
        let quantized = format.precisions().iter().copied().map(plan);
        Ok(Plans {
            original: plan(Precision::F32)?,
            quantized: quantized.collect::<Result<_>>()?,
        })
    }
}

fn quantize(
    from: &Path,
    into: &Path,
    format: WeightFormat,
    plans: &Plans,
    hold: &mut Hold<'_>,
) -> Result<Quantization> {
    let source = Folder::open(from)?;
    let recorder = Recorder::new(&source);
    // Before the work, which would be lost.
    let folder = NewFolder::create(into)?;
    let reader = Reader::open(&recorder, &plans.original)?;
    let original = Vectors::of(&complete(reader.read(hold.team, hold.control))?, hold)?;
    for weights in reader.files.all_weights() {
        refuse_quantized(&source, weights)?;
    }
    for name in recorder.files().keys() {
        copy(&source, name, &folder)?;
    }
    for name in source.names() {
        let lower = name.to_ascii_lowercase();
        if COMPANIONS.iter().any(|one| lower.starts_with(one)) && is_file(&source, &name) {
            copy(&source, &name, &folder)?;
        }
    }
    let settings = &reader.files.opened.settings;
    let heads = settings.dense.iter().map(|head| &*head.folder);
    let places = std::iter::once(&*settings.transformer).chain(heads);
    for (weights, place) in reader.files.all_weights().zip(places) {
        folder.file(&join(place, SINGLE), |file| {
            file::write(file, weights, format, hold.control)
        })?;
    }
    reader.files.check_unchanged()?;
    let bytes_before = reader.files.all_weights().map(Weights::bytes).sum();
    drop(reader);

    let written = Folder::open(folder.path())?;
    let (mut likenesses, mut bytes_after) = (Vec::new(), 0);
    for plan in &plans.quantized {
        let recorder = Recorder::new(&written);
        let reader = Reader::open(&recorder, plan)?;
        let model = complete(reader.read(hold.team, hold.control))?;
        bytes_after = reader.files.all_weights().map(Weights::bytes).sum();
        drop(reader);
        likenesses.push(original.likeness(&model, hold)?);
    }
    hold.control.check()?;
    folder.finish()?;
    Ok(Quantization {
        bytes_before,
        bytes_after,
        likenesses,
    })
}

/// What was rounded once is not rounded again.
fn refuse_quantized(source: &dyn Source, weights: &Weights) -> Result<()> {
    let digests = weights.digests();
    match digests.iter().find(|(_, digest)| digest.dtype == Dtype::I8) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(format!(
            "{}: is quantized already, as tensor {name} shows; start from the model it was made of",
            source.locate("")
        ))),
    }
}

fn is_file(source: &dyn Source, name: &str) -> bool {
    // What is not a regular file is an error there; nobody asked for this one.
    matches!(source.size(name), Ok(Some(_)))
}

fn copy(source: &dyn Source, name: &str, folder: &NewFolder) -> Result<()> {
    if let Some(bytes) = source.read(name)? {
        folder.file(name, |file| file.write(0, &bytes))?;
    }
    Ok(())
}
