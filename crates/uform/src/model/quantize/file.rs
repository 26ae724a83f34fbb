//! A safetensors file, written tensor by tensor: the header first, since kinds and shapes are
//! known, then the bytes of each where the header says they are.
//!
//! The `safetensors` crate writes files too, but takes tensors that cannot fail to be read.

use safetensors::tensor::{Metadata, TensorInfo};

use super::matrix::{self, Planned};
use super::new_folder::NewFile;
use super::{Control, WeightFormat};
use crate::model::checkpoint::quantized;
use crate::model::checkpoint::weights::Weights;
use crate::{Error, Result, Status};

/// Writes every tensor that was read of some weights to a new file.
///
/// # Errors
/// `Aborted` between two tensors; `Io`; and what making a tensor refuses.
pub(super) fn write(
    file: &mut NewFile,
    weights: &Weights,
    format: WeightFormat,
    control: &Control,
) -> Result<()> {
    let read: Vec<(String, Vec<usize>)> = {
        let digests = weights.digests();
        let tensors = digests.iter();
        tensors
            .map(|(name, digest)| (name.clone(), digest.shape.clone()))
            .collect()
    };
    let planned: Vec<Vec<Planned>> = read
        .iter()
        .map(|(name, shape)| matrix::plan(name, shape, format))
        .collect();
    let header = header(planned.concat(), format)?;

    file.write(0, &header.bytes)?;
    for ((name, shape), planned) in read.iter().zip(&planned) {
        control.check()?;
        let made = matrix::make(weights, name, shape, format)?;
        for ((part, ..), bytes) in planned.iter().zip(made) {
            file.write(header.start_of(part)?, &bytes)?;
        }
    }
    Ok(())
}

/// How a file begins.
struct Header {
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl Header {
    /// Where in the file a tensor begins.
    fn start_of(&self, name: &str) -> Result<u64> {
        let info = self.metadata.info(name).ok_or_else(|| {
            Error::new(Status::Internal, format!("tensor {name} was not planned"))
        })?;
        Ok((self.bytes.len() + info.data_offsets.0) as u64)
    }
}

/// The header of a file with these tensors, those of wider values first, so that all are aligned.
fn header(mut tensors: Vec<Planned>, format: WeightFormat) -> Result<Header> {
    tensors.sort_by(|(left, one, _), (right, other, _)| other.cmp(one).then(left.cmp(right)));
    let mut end = 0;
    let tensors = tensors.into_iter().map(|(name, dtype, shape)| {
        let bits = shape.iter().product::<usize>() * dtype.bitsize();
        let start = end;
        end += bits / 8;
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets: (start, end),
        };
        (name, info)
    });
    let (key, word) = match format {
        // What other readers look for: they may take the file, too.
        WeightFormat::F16 => ("format", "pt"),
        WeightFormat::I8 => (quantized::KEY, quantized::VERSION),
    };
    let words = [(key.to_owned(), word.to_owned())];
    let internal = |error: &dyn std::error::Error| {
        Error::new(Status::Internal, format!("a header of weights: {error}"))
    };
    let metadata = Metadata::new(Some(words.into_iter().collect()), tensors.collect())
        .map_err(|error| internal(&error))?;
    let mut json = serde_json::to_vec(&metadata).map_err(|error| internal(&error))?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let length = json.len() as u64;
    let bytes = [&length.to_le_bytes()[..], &json].concat();
    Ok(Header { bytes, metadata })
}
