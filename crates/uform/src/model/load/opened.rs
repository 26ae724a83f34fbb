//! A model's files, opened and checked as far as that goes without their contents.

use crate::error::{Error, Result};
use crate::model::architecture::bert::BertConfig;
use crate::model::checkpoint::weights::Weights;
use crate::model::files::{Source, join};
use crate::model::settings::Settings;
use crate::model::settings::modules::Modules;

/// The tensor by which a BERT encoder's weights are recognised.
const ENCODER: &str = "embeddings.word_embeddings.weight";

/// The tensor by which a dense head's weights are recognised.
const HEAD: &str = "linear.weight";

/// What a model's small files say, and where its large ones have what.
pub struct Opened {
    /// The encoder's sizes.
    pub config: BertConfig,
    /// How the model wants to be used.
    pub settings: Settings,
    /// The encoder's weights.
    pub weights: Weights,
    /// The weights of each of `settings.dense`.
    pub heads: Vec<Weights>,
}

impl Opened {
    /// Reads a model's settings and the headers of its weights: what is wrong
    /// with them is said before anything large is read.
    ///
    /// # Errors
    /// `NotFound`, `CorruptModel`, `Unsupported` and `Io`, each naming the file.
    pub fn open(source: &dyn Source) -> Result<Opened> {
        let modules = Modules::read(source)?;
        let folder = &modules.transformer;
        let config = BertConfig::read(source, folder)?;
        let settings = Settings::read(source, &modules, &config)?;
        let weights = Weights::open(source, folder, ENCODER)?;
        refuse_adapter(source, folder)?;
        let heads = settings.dense.iter();
        let heads = heads.map(|head| Weights::open(source, &head.folder, HEAD));
        let heads = heads.collect::<Result<_>>()?;
        Ok(Opened {
            config,
            settings,
            weights,
            heads,
        })
    }
}

/// Refuses weights that the reference would change by an adapter beside them. A server that lists nothing is
/// not asked.
fn refuse_adapter(source: &dyn Source, folder: &str) -> Result<()> {
    const ADAPTER: &str = "adapter_config.json";
    if !source.names_in(folder).iter().any(|name| name == ADAPTER) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{}: an adapter, which changes the weights beside it, is not supported; merge it in Python (peft's \
         merge_and_unload) and save the model with save_pretrained, or remove the file to use the weights \
         as they are",
        source.locate(&join(folder, ADAPTER))
    )))
}
