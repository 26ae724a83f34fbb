//! `config_sentence_transformers.json`: the prompts a model was trained with.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::files::Source;
use crate::model::files::document::Document;
use crate::quoted;

/// A model's prompts, which are put before a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Each prompt by its name.
    pub named: BTreeMap<String, String>,
    /// The name of the prompt that is used when the caller says nothing.
    pub default: Option<String>,
}

impl Prompts {
    /// Reads the prompts; without the file there are none.
    pub fn read(source: &dyn Source) -> Result<Prompts> {
        let name = "config_sentence_transformers.json";
        let Some(document) = Document::optional(source, name)? else {
            return Ok(Prompts::default());
        };
        if !matches!(
            document.text("model_type")?,
            None | Some("SentenceTransformer")
        ) {
            return Err(document.unsupported("model_type", "\"SentenceTransformer\""));
        }
        let mut named = BTreeMap::new();
        match document.value("prompts") {
            None => {}
            Some(Value::Object(prompts)) => {
                for (name, prompt) in prompts {
                    let prompt = match prompt {
                        Value::String(prompt) => prompt.clone(),
                        Value::Null => String::new(),
                        _ => return Err(document.wrong("prompts", "a text for each name")),
                    };
                    named.insert(name.clone(), prompt);
                }
            }
            Some(_) => return Err(document.wrong("prompts", "an object of texts")),
        }
        let default = document.text("default_prompt_name")?.map(str::to_owned);
        if let Some(default) = &default
            && !named.contains_key(default)
        {
            return Err(Error::corrupt(format!(
                "{}: default_prompt_name is {}, which is none of its prompts: {}",
                document.place(),
                quoted::text(default),
                if named.is_empty() {
                    "there are none".to_owned()
                } else {
                    quoted::names(named.keys().map(String::as_str))
                }
            )));
        }
        Ok(Prompts { named, default })
    }
}
