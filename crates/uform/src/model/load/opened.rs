//! A model's files, opened and checked as far as that goes without their contents.

use crate::error::Result;
use crate::model::architecture::bert::BertConfig;
use crate::model::checkpoint::weights::Weights;
use crate::model::files::Source;
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
