//! How a model's vectors are compared.

use super::prompts::FILE;
use crate::error::Result;
use crate::model::files::Source;
use crate::model::files::document::Document;

/// The comparison that a model was trained for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Similarity {
    /// The cosine of the angle between two vectors.
    Cosine,
    /// Their dot product.
    Dot,
    /// The negated length of their difference.
    Euclidean,
    /// The negated sum of what their numbers differ by.
    Manhattan,
}

impl Similarity {
    /// Every one there is.
    pub const ALL: [Similarity; 4] = [
        Similarity::Cosine,
        Similarity::Dot,
        Similarity::Euclidean,
        Similarity::Manhattan,
    ];

    /// The word that the model's files and a description say it with.
    pub const fn word(self) -> &'static str {
        match self {
            Similarity::Cosine => "cosine",
            Similarity::Dot => "dot",
            Similarity::Euclidean => "euclidean",
            Similarity::Manhattan => "manhattan",
        }
    }

    /// Reads what the model's files say, if they say anything.
    pub fn read(source: &dyn Source) -> Result<Option<Similarity>> {
        const KEY: &str = "similarity_fn_name";
        let Some(document) = Document::optional(source, FILE)? else {
            return Ok(None);
        };
        let Some(word) = document.text(KEY)? else {
            return Ok(None);
        };
        let found = Similarity::ALL.into_iter().find(|one| one.word() == word);
        let words = || Similarity::ALL.map(|one| format!("{:?}", one.word()));
        found
            .map(Some)
            .ok_or_else(|| document.unsupported(KEY, &format!("one of {}", words().join(", "))))
    }
}
