//! A settings file: one JSON object, whose values are read by name and kind.
//!
//! Every complaint names the file, the key, the value found and what would do.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::{Bytes, LARGEST_SETTINGS, Source, fetch, require};
use crate::error::{Error, Result};

/// How much of a wrong value a message shows.
const SHOWN: usize = 80;

/// One JSON object read from a model's file. A `null` counts as absent.
pub struct Document {
    place: String,
    fields: Map<String, Value>,
}

impl Document {
    /// Reads a settings file that must be there; `expected` is what it holds.
    pub fn required(source: &dyn Source, name: &str, expected: &str) -> Result<Document> {
        let bytes = require(source, name, LARGEST_SETTINGS, expected)?;
        Document::parse(source.locate(name), &bytes)
    }

    /// Reads a settings file if it is there.
    pub fn optional(source: &dyn Source, name: &str) -> Result<Option<Document>> {
        let parse = |bytes: Bytes| Document::parse(source.locate(name), &bytes);
        fetch(source, name, LARGEST_SETTINGS)?
            .map(parse)
            .transpose()
    }

    fn parse(place: String, bytes: &[u8]) -> Result<Document> {
        match parse_json(&place, bytes)? {
            Value::Object(fields) => Ok(Document { place, fields }),
            other => Err(Error::corrupt(format!(
                "{place}: expected a JSON object, found {}",
                shown(&other)
            ))),
        }
    }

    /// An object inside another file.
    pub fn inside(place: String, fields: Map<String, Value>) -> Document {
        Document { place, fields }
    }

    /// What messages call the file.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// A value of any kind.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// A string.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A whole number within `range`.
    pub fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.typed(key, &expected, |value| {
            let count = usize::try_from(value.as_u64()?).ok()?;
            range.contains(&count).then_some(count)
        })
    }

    /// A whole number within `range` that must be there.
    pub fn required_count(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize> {
        self.count(key, range)?.ok_or_else(|| self.missing(key))
    }

    /// The complaint that a key is missing.
    pub fn missing(&self, key: &str) -> Error {
        Error::corrupt(format!("{}: {key} is missing", self.place))
    }

    /// The complaint that a key's value is not what was expected.
    pub fn wrong(&self, key: &str, expected: &str) -> Error {
        Error::corrupt(self.complaint(key, expected))
    }

    /// The complaint that a key's value is a known one which is not supported.
    pub fn unsupported(&self, key: &str, supported: &str) -> Error {
        Error::unsupported(self.complaint(key, supported))
    }

    fn complaint(&self, key: &str, expected: &str) -> String {
        let found = self.value(key).map_or("nothing".to_owned(), shown);
        format!("{}: {key} is {found}, expected {expected}", self.place)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.wrong(key, expected)),
            },
        }
    }
}

/// Parses any JSON; `place` is what messages call it.
pub fn parse_json(place: &str, bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt(format!("{place}: not valid JSON: {error}")).because(error))
}

/// A value as a message shows it: whole when short, else its beginning.
pub fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some((cut, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(cut);
        text.push('…');
    }
    text
}
