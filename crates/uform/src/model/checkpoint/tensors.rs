//! One safetensors file: eight bytes of length, a JSON header, then numbers.
//!
//! The `safetensors` crate checks that the header's ranges fit its shapes, follow
//! each other without holes and end with the file. What is added here: a name
//! that is there twice is refused rather than silently read once, and complaints
//! name the file, the tensor and the bytes.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use safetensors::{
    SafeTensorError,
    tensor::{Metadata, TensorInfo},
};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::model::files::blob::Blob;
use crate::model::files::document::shown;

/// How many bytes give the header's length.
const PREFIX: usize = 8;

/// What a file says of itself.
pub struct Header {
    /// Its tensors, in no order.
    pub tensors: Vec<Tensor>,
    /// Whatever else is said, under `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

/// The longest header that is read, which is also the format's limit.
const LARGEST_HEADER: usize = 100_000_000;

/// The key of a header that is no tensor.
const METADATA: &str = "__metadata__";

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

/// Reads and checks the header of a file; `place` is what messages call it.
pub fn read(place: &str, file: &Blob) -> Result<Header> {
    let size = usize::try_from(file.size()).unwrap_or(usize::MAX);
    let length = header_length(place, file, size)?;
    let start = PREFIX + length;
    let header = file.piece(PREFIX..start, |_| ())?;
    let invalid = |error: serde_json::Error| {
        Error::corrupt(format!(
            "{place}: its safetensors header is not valid: {error}"
        ))
        .because(error)
    };
    let entries: Entries<&RawValue> = serde_json::from_slice(&header).map_err(invalid)?;
    let metadata = metadata(&entries.0, size - start)
        .map_err(|error| explain(place, size - start, &entries.0, error))?;
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

/// The length of the header, if the file is long enough to have it.
fn header_length(place: &str, file: &Blob, size: usize) -> Result<usize> {
    let Some(rest) = size.checked_sub(PREFIX) else {
        return Err(Error::corrupt(format!(
            "{place}: {size} bytes, too short for a safetensors file; it may be truncated"
        )));
    };
    let prefix = file.piece(0..PREFIX, |_| ())?;
    let length = prefix.first_chunk().copied().map_or(0, u64::from_le_bytes);
    match usize::try_from(length)
        .ok()
        .filter(|length| *length <= rest)
    {
        Some(length) if length <= LARGEST_HEADER => Ok(length),
        Some(length) => Err(Error::corrupt(format!(
            "{place}: its header has {length} bytes; at most {LARGEST_HEADER} are read"
        ))),
        None => Err(Error::corrupt(format!(
            "{place}: its header claims {length} bytes and the file has {rest} after it begins; \
             it is truncated, or not a safetensors file"
        ))),
    }
}

/// What a header says, checked by the crate of the format: tensors fill `data` bytes without gaps
/// or overlaps.
fn metadata(
    entries: &[(String, &RawValue)],
    data: usize,
) -> std::result::Result<Metadata, SafeTensorError> {
    let mut words = None;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, raw) in entries {
        let raw = raw.get();
        if name == METADATA {
            words = serde_json::from_str(raw).map_err(invalid)?;
        } else {
            let info: TensorInfo = serde_json::from_str(raw).map_err(invalid)?;
            tensors.push((name.clone(), info));
        }
    }
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let metadata = Metadata::new(words, tensors)?;
    match metadata.data_len() == data {
        true => Ok(metadata),
        false => Err(SafeTensorError::MetadataIncompleteBuffer),
    }
}

fn invalid(error: serde_json::Error) -> SafeTensorError {
    SafeTensorError::InvalidHeaderDeserialization(error)
}

/// The crate's complaint, with the tensor and the numbers it leaves out.
fn explain(
    place: &str,
    data: usize,
    entries: &[(String, &RawValue)],
    error: SafeTensorError,
) -> Error {
    let tensors = || {
        let named = entries.iter().filter(|(name, _)| name != METADATA);
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
