//! A call's options, resolved against the model.

use crate::model::settings::pooling_mode::Pooling;
use crate::model::{EncodeOptions, Parts, Truncate};
use crate::{Error, Result, quoted};

/// [`EncodeOptions`] as resolved against the model: nothing left to look up or to refuse.
pub(in crate::model) struct Request {
    pub(in crate::model) pooling: Pooling,
    pub(in crate::model) normalize: bool,
    pub(in crate::model) dimensions: usize,
    pub(in crate::model) prompt: String,
    /// Leading tokens of each text that belong to the prompt and are not pooled.
    pub(in crate::model) skip: usize,
    pub(in crate::model) refuse_long: bool,
}

impl Request {
    /// Checks a call's options against the model and fills in the model's defaults.
    pub(in crate::model) fn resolve(options: &EncodeOptions, parts: &Parts) -> Result<Request> {
        let settings = &parts.settings;
        let pooling = options.pooling.or(settings.pooling).ok_or_else(|| {
            Error::invalid(
                "the model's files do not say how to pool its token vectors: pass `pooling` \
                 (\"mean\", \"cls\", \"max\", \"last\", \"mean-sqrt\" or \"weighted-mean\")",
            )
        })?;
        let full = parts.dimensions();
        let dimensions = options.dimensions.unwrap_or(full as u64);
        if dimensions == 0 || dimensions > full as u64 {
            return Err(Error::invalid(format!(
                "`dimensions` is {dimensions}: this model takes 1 to {full}"
            )));
        }
        let prompt = prompt_text(options, parts)?.to_owned();
        let skip = if settings.include_prompt || prompt.is_empty() {
            0
        } else {
            parts.tokenizer.prompt_tokens(&prompt)?
        };
        Ok(Request {
            pooling,
            normalize: options.normalize.unwrap_or(settings.normalize),
            dimensions: dimensions as usize,
            prompt,
            skip,
            refuse_long: options.truncate == Truncate::Refuse,
        })
    }
}

/// The text that goes before each text: given, named, or the model's default.
pub(in crate::model) fn prompt_text<'a>(
    options: &'a EncodeOptions,
    parts: &'a Parts,
) -> Result<&'a str> {
    let settings = &parts.settings;
    let name = match (&options.prompt, &options.prompt_text) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid(
                "`prompt` and `promptText` were both given: pass the name of one of the model's \
                 prompts, or a prompt as it is",
            ));
        }
        (None, Some(text)) => return Ok(text),
        (Some(name), None) => name,
        (None, None) => match &settings.prompts.default {
            Some(name) => name,
            None => return Ok(""),
        },
    };
    match settings.prompts.named.get(name) {
        Some(text) => Ok(text),
        None => {
            let known = &settings.prompts.named;
            let known = if known.is_empty() {
                "it has none: pass `promptText`".to_owned()
            } else {
                let names = known.keys().map(String::as_str);
                format!("it has {}", quoted::names(names))
            };
            Err(Error::invalid(format!(
                "`prompt` is {}, which is not a prompt of this model: {known}",
                quoted::text(name)
            )))
        }
    }
}
