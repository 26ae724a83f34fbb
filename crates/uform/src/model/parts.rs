//! A model's files, read and checked as far as that goes without computing.

use super::{
    config::BertConfig, files::Source, modules::Modules, settings::Settings, tokenizer::Tokenizer,
    weights::Weights,
};
use crate::error::Result;

/// The tensor by which a BERT encoder's weights are recognised.
pub const ANCHOR: &str = "embeddings.word_embeddings.weight";

/// The tensor by which a dense layer's weights are recognised.
pub const DENSE_ANCHOR: &str = "linear.weight";

/// What a model's files hold.
pub struct Parts {
    /// The encoder's sizes.
    pub config: BertConfig,
    /// How the model wants to be used.
    pub settings: Settings,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// The encoder's weights.
    pub weights: Weights,
    /// The weights of each of `settings.dense`.
    pub dense: Vec<Weights>,
}

impl Parts {
    /// Reads all of a model's files.
    ///
    /// Settings come first, then the headers of the weights, and the tokenizer,
    /// which takes longest, last: what is wrong is said at once.
    pub fn open(source: &dyn Source) -> Result<Parts> {
        let modules = Modules::read(source)?;
        let folder = &modules.transformer;
        let config = BertConfig::read(source, folder)?;
        let settings = Settings::read(source, &modules, &config)?;
        let weights = Weights::open(source, folder, ANCHOR)?;
        let dense = settings.dense.iter();
        let dense = dense
            .map(|layer| Weights::open(source, &layer.folder, DENSE_ANCHOR))
            .collect::<Result<_>>()?;
        let tokenizer = Tokenizer::load(source, folder, &settings.tokens, config.vocabulary)?;
        Ok(Parts {
            config,
            settings,
            tokenizer,
            weights,
            dense,
        })
    }
}
