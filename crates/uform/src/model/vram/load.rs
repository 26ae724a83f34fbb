//! Reading a model into the memory of GPUs.
//!
//! The executor's host threads read items of the files side by side, and each copies what it read to
//! every device: at no time is more of the model in host memory than one item a thread.

use std::future;
use std::sync::{Arc, Mutex};

use half::bf16;

use super::super::Model;
use super::super::Network;
use super::super::Parts;
use super::super::Residency;
use super::format::Format;
use super::forward::{Bert, Encoder};
use super::weights::{Places, Targets};
use super::{Replica, Vram, VramModelOptions};
use crate::device::Layout;
use crate::device::kernels::MOST_HEAD;
use crate::executor::{Control, Devices, Driven, DrivenDevice, Executor, complete, load_kernels};
use crate::kernels::{ForkJoin, Precision};
use crate::model::architecture::bert::BertConfig;
use crate::model::checkpoint::fingerprint::Recorder;
use crate::model::files::Source;
use crate::model::load::opened::Opened;
use crate::model::load::{Files, Item};
use crate::model::settings::modules::DenseSettings;
use crate::model::tokenizer::Tokenizer;
use crate::{Error, Result};

/// Options that met the executor that loads.
pub(super) struct Plan {
    devices: Arc<Devices>,
    /// The devices, and the class whose kernels compute on each.
    places: Vec<Driven>,
    precision: Option<Precision>,
}

impl Plan {
    pub(super) fn new(options: &VramModelOptions, executor: &Executor) -> Result<Plan> {
        Residency::Vram.fits(executor)?;
        if options.precision == Some(Precision::I8) {
            return Err(Error::unsupported(
                "precision \"i8\" is not computed on GPUs: use \"auto\", \"bf16\" or \"f32\"; weights \
                 that are in i8 in the files can be loaded in any of them",
            ));
        }
        let devices = executor.driving()?;
        Ok(Plan {
            places: devices.subset(&options.devices, options.gpu_class)?,
            devices: Arc::clone(devices),
            precision: options.precision,
        })
    }

    /// Reads a model from wherever its files are, on the executor, which is held.
    pub(super) fn read(
        &self,
        source: &dyn Source,
        team: &dyn ForkJoin,
        control: &Control,
    ) -> Result<Model> {
        let recorder = Recorder::new(source);
        let files = Files::open(&recorder)?;
        let Opened {
            config, settings, ..
        } = &files.opened;
        check(config)?;
        let precision = self.precision(config)?;
        self.devices.lend(|driven| {
            let driven: Vec<_> = self
                .places
                .iter()
                .filter_map(|place| {
                    let own = driven.iter().find(|one| one.place.ordinal == place.ordinal);
                    own.map(|driven| (*place, driven))
                })
                .collect();
            let job = Job {
                files: &files,
                config,
                heads: &settings.dense,
                driven,
            };
            match precision {
                Precision::Bf16 => job.read::<bf16>(team, control),
                _ => job.read::<f32>(team, control),
            }
        })
    }

    /// What to multiply in, as was asked or as suits model and devices.
    fn precision(&self, config: &BertConfig) -> Result<Precision> {
        let without = self.places.iter().find(|place| !place.has_tensor_cores());
        let size = config.hidden_size / config.heads;
        let reason = match without {
            Some(place) => Some(format!(
                "it is multiplied by NVIDIA's tensor cores, which device {} has not",
                place.ordinal
            )),
            None if !size.is_multiple_of(bf16::MULTIPLE) => Some(format!(
                "its kernels take attention heads of a multiple of {}, and the model's are of {size}",
                bf16::MULTIPLE
            )),
            None => None,
        };
        match (self.precision, reason) {
            (Some(Precision::Bf16), Some(reason)) => Err(Error::unsupported(format!(
                "precision \"bf16\" cannot be computed here: {reason}; use \"f32\" or \"auto\""
            ))),
            (Some(precision), _) => Ok(precision),
            (None, Some(_)) => Ok(Precision::F32),
            (None, None) => Ok(Precision::Bf16),
        }
    }
}

/// Refuses sizes that no kernel takes.
fn check(config: &BertConfig) -> Result<()> {
    let (hidden, size) = (config.hidden_size, config.hidden_size / config.heads);
    if size > MOST_HEAD {
        return Err(Error::unsupported(format!(
            "the model's attention heads are of {size}, and the kernels for GPUs take up to \
             {MOST_HEAD}: load it with Model.loadRam"
        )));
    }
    if !hidden.is_multiple_of(f32::MULTIPLE) {
        return Err(Error::unsupported(format!(
            "the model's hidden size is {hidden}, and the kernels for GPUs take even ones: load it with \
             Model.loadRam"
        )));
    }
    Ok(())
}

/// A model that is being read.
struct Job<'a> {
    files: &'a Files<'a>,
    config: &'a BertConfig,
    heads: &'a [DenseSettings],
    driven: Vec<(Driven, &'a DrivenDevice)>,
}

impl Job<'_> {
    fn read<T: Format>(&self, team: &dyn ForkJoin, control: &Control) -> Result<Model> {
        let mut layout = Layout::new();
        let places = Places::<T>::new(self.config, self.heads, &mut layout);
        // A configuration may promise more than the files can hold: such a model fails for what is
        // missing, not for memory.
        let files = self.files.all_weights().map(|weights| weights.bytes());
        let most = files.sum::<u64>().saturating_mul(8);
        if layout.bytes() as u64 > most {
            self.copy(&places, &Targets(Vec::new()), team, control)?;
        }
        let mut replicas = Vec::with_capacity(self.driven.len());
        for (place, driven) in &self.driven {
            replicas.push(Replica {
                place: *place,
                kernels: load_kernels(driven, place.class)?,
                weights: driven.allocate(layout.bytes(), "a model's weights")?,
            });
        }
        let targets = replicas.iter_mut().zip(&self.driven);
        let targets = targets
            .map(|(replica, (_, driven))| (&*driven.stream, Mutex::new(&mut replica.weights)));
        let tokenizer = self.copy(&places, &Targets(targets.collect()), team, control)?;
        let (parameters, fingerprint) = self.files.identify(T::PRECISION);
        let encoder = Bert::new(self.config.clone(), places);
        let heads = self.heads.last();
        Ok(Model::new(Parts {
            network: Network::Vram(Vram {
                dimensions: heads.map_or(self.config.hidden_size, |head| head.out_features),
                encoder: Box::new(encoder) as Box<dyn Encoder>,
                replicas,
            }),
            tokenizer,
            settings: self.files.opened.settings.clone(),
            precision: T::PRECISION,
            parameters,
            fingerprint,
            refused: Vec::new(),
        }))
    }

    /// Copies all weights to where they go.
    fn copy<T: Format>(
        &self,
        places: &Places<T>,
        targets: &Targets<'_>,
        team: &dyn ForkJoin,
        control: &Control,
    ) -> Result<Tokenizer> {
        let Opened { weights, heads, .. } = &self.files.opened;
        let load = |item| {
            match item {
                Item::Tokenizer => return complete(self.files.tokenizer()).map(Some),
                Item::Embeddings => places.read_tables(weights, self.config, targets)?,
                Item::Layer(index) => places.read_layer(weights, self.config, index, targets)?,
                Item::Head(index) => {
                    places.read_head(&heads[index], &self.heads[index], index, targets)?;
                }
            }
            Ok(None)
        };
        let load = |item| future::ready(load(item));
        let loaded = complete(self.files.load(team, control, load))?;
        let tokenizer = loaded.into_iter().flatten().next();
        let Some(tokenizer) = tokenizer else {
            unreachable!("every item was read, or its error returned");
        };
        Ok(*tokenizer)
    }
}
