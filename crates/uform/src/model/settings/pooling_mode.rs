//! The ways to make one vector of a text's tokens.

use std::fmt;

use crate::error::{Error, Result};
use crate::quoted;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The mean over the tokens.
    Mean,
    /// The first token.
    Cls,
    /// The maximum over the tokens, for each component by itself.
    Max,
    /// The last token.
    Last,
    /// The sum over the tokens, divided by the square root of their number.
    MeanSqrt,
    /// The mean weighted by position: 1 for the first token, 2 for the second, and so on.
    WeightedMean,
}

impl Pooling {
    /// Every way there is.
    pub const ALL: [Pooling; 6] = [
        Pooling::Mean,
        Pooling::Cls,
        Pooling::Max,
        Pooling::Last,
        Pooling::MeanSqrt,
        Pooling::WeightedMean,
    ];

    /// The word an option says it with, such as `"weighted-mean"`.
    pub const fn word(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Max => "max",
            Pooling::Last => "last",
            Pooling::MeanSqrt => "mean-sqrt",
            Pooling::WeightedMean => "weighted-mean",
        }
    }

    /// The way an option's word names.
    ///
    /// # Errors
    /// `InvalidArgument` listing the words that are known.
    pub fn parse(word: &str) -> Result<Pooling> {
        let found = Pooling::ALL
            .into_iter()
            .find(|pooling| pooling.word() == word);
        found.ok_or_else(|| {
            let words = Pooling::ALL.map(|pooling| format!("\"{}\"", pooling.word()));
            Error::invalid(format!(
                "pooling: {} is unknown; expected one of {}",
                quoted::text(word),
                words.join(", ")
            ))
        })
    }

    /// The way that sentence-transformers calls `name`.
    pub(in crate::model) fn of_reference(name: &str) -> Option<Pooling> {
        Some(match name {
            "mean" => Pooling::Mean,
            "cls" => Pooling::Cls,
            "max" => Pooling::Max,
            "lasttoken" => Pooling::Last,
            "mean_sqrt_len_tokens" => Pooling::MeanSqrt,
            "weightedmean" => Pooling::WeightedMean,
            _ => return None,
        })
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back() {
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::parse(pooling.word()).ok(), Some(pooling));
        }
    }

    #[test]
    fn an_unknown_word_names_the_known_ones() {
        let error = Pooling::parse("average").expect_err("unknown");
        for pooling in Pooling::ALL {
            assert!(error.message().contains(pooling.word()), "{error}");
        }
    }
}
