//! One safetensors file: eight bytes of length, a JSON header, then numbers.
//!
//! The `safetensors` crate checks that the header's ranges fit its shapes, follow
//! each other without holes and end with the file. What is added here: a name
//! that is there twice is refused rather than silently read once, and complaints
//! name the file, the tensor and the bytes.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use safetensors::{SafeTensorError, SafeTensors, tensor::TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::shown;
use crate::error::{Error, Result};

/// How many bytes give the header's length.
const PREFIX: usize = 8;

/// What a file says of itself.
pub struct Header {
    /// Its tensors, in no order.
    pub tensors: Vec<Tensor>,
    /// Whatever else is said, under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

/// A tensor of a file: its name, kind and shape, and where the file has its bytes.
pub struct Tensor {
    /// Its name, prefix included.
    pub name: String,
    /// The kind of its values.
    pub dtype: safetensors::Dtype,
    /// Its sizes, outermost first.
    pub shape: Vec<usize>,
    /// The first byte, counted from the start of the file, and the one after the last.
    pub range: (usize, usize),
}

/// Reads and checks the header of a whole file; `place` is what messages call it.
pub fn read(place: &str, bytes: &[u8]) -> Result<Header> {
    let header = header(place, bytes)?;
    let entries: Entries<&RawValue> = serde_json::from_slice(header).map_err(|error| {
        Error::corrupt(format!(
            "{place}: its safetensors header is not valid: {error}"
        ))
        .because(error)
    })?;
    let (length, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| {
        explain(
            place,
            bytes.len() - PREFIX - header.len(),
            &entries.0,
            error,
        )
    })?;
    let start = PREFIX + length;
    let tensors = metadata.tensors().into_iter().map(|(name, info)| Tensor {
        name,
        dtype: info.dtype,
        shape: info.shape.clone(),
        range: (start + info.data_offsets.0, start + info.data_offsets.1),
    });
    let tensors = tensors.collect();
    let words = metadata.metadata().iter().flatten();
    let words = words.map(|(key, word)| (key.clone(), word.clone()));
    Ok(Header {
        tensors,
        metadata: words.collect(),
    })
}

/// The bytes of the header, if the file is long enough to have it.
fn header<'a>(place: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let Some((length, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(Error::corrupt(format!(
            "{place}: {} bytes, too short for a safetensors file; it may be truncated",
            bytes.len()
        )));
    };
    let length = u64::from_le_bytes(*length);
    usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| {
            Error::corrupt(format!(
                "{place}: its header claims {length} bytes and the file has {} after it begins; \
                 it is truncated, or not a safetensors file",
                rest.len()
            ))
        })
}

/// The crate's complaint, with the tensor and the numbers it leaves out.
fn explain(
    place: &str,
    data: usize,
    entries: &[(String, &RawValue)],
    error: SafeTensorError,
) -> Error {
    let tensors = || {
        let named = entries.iter().filter(|(name, _)| name != "__metadata__");
        named.map(|(name, raw)| (name, serde_json::from_str::<TensorInfo>(raw.get())))
    };
    let reason = match &error {
        SafeTensorError::InvalidHeaderDeserialization(_) => tensors().find_map(|(name, info)| {
            info.err()
                .map(|error| format!("tensor {name:?} is not described validly: {error}"))
        }),
        SafeTensorError::InvalidOffset(name) => Some(format!(
            "tensor {name:?} does not begin where the one before it ends"
        )),
        SafeTensorError::TensorInvalidInfo | SafeTensorError::ValidationOverflow => tensors()
            .find_map(|(name, info)| {
                let info = info.ok().filter(|info| !fits(info))?;
                Some(format!(
                    "tensor {name:?}: {} values of shape {:?} do not fill bytes {} to {}",
                    info.dtype, info.shape, info.data_offsets.0, info.data_offsets.1
                ))
            }),
        SafeTensorError::MetadataIncompleteBuffer => {
            let ends = tensors().filter_map(|(_, info)| Some(info.ok()?.data_offsets.1));
            Some(format!(
                "its tensors take {} bytes and {data} follow the header; it is truncated, or \
                 something was appended",
                ends.max().unwrap_or(0)
            ))
        }
        _ => None,
    };
    let reason = reason.unwrap_or_else(|| error.to_string());
    Error::corrupt(format!("{place}: {reason}")).because(error)
}

/// Whether a tensor's shape and kind fill its range.
fn fits(info: &TensorInfo) -> bool {
    let values = info
        .shape
        .iter()
        .try_fold(1usize, |all, size| all.checked_mul(*size));
    let bits = values.and_then(|values| values.checked_mul(info.dtype.bitsize()));
    let bytes = info.data_offsets.1.checked_sub(info.data_offsets.0);
    bits.is_some_and(|bits| bits % 8 == 0 && Some(bits / 8) == bytes)
}

/// The entries of a JSON object in order, each key once.
pub struct Entries<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Collect<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Collect<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                let mut seen = std::collections::HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, T>()? {
                    if !seen.insert(key.clone()) {
                        let key = shown(&serde_json::Value::String(key));
                        return Err(A::Error::custom(format!("{key} is there twice")));
                    }
                    entries.push((key, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Collect(PhantomData))
    }
}
