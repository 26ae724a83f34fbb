//! Which model this is: a hash of the files and settings its vectors follow from.
//!
//! It is taken while they are read, since afterwards the files may be gone or others: small files as
//! they pass the [`Recorder`], each tensor by the lane that reads it, in the pass that checks its
//! values. The hash is XXH3 (<https://github.com/Cyan4973/xxHash>), which is faster than weights
//! come from memory.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use safetensors::Dtype;
use twox_hash::XxHash3_128;

use crate::error::Result;
use crate::kernels::Precision;
use crate::model::files::blob::Blob;
use crate::model::files::{Bytes, Source};

/// Which model this is, in 128 bits, shown as 32 hexadecimal digits.
///
/// It covers every settings file that was read, byte for byte; the tokenizer; every tensor that
/// was read, with its kind and shape; and the precision. It does not cover where the files lie,
/// what nobody reads (a README, a pooler), how tensors are prefixed or spread over files, or who
/// computes: threads, executor, machine and class. So vectors of models with one fingerprint
/// differ in rounding at most, and on one class in nothing.
///
/// It tells models apart; it does not resist somebody who forges one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint of settings files by name, of the tensors of each of a model's modules,
    /// and of a precision.
    pub(in crate::model) fn of<'a>(
        files: &BTreeMap<String, u128>,
        modules: impl Iterator<Item = &'a BTreeMap<String, Digest>>,
        precision: Precision,
    ) -> Fingerprint {
        // What a list line says is quoted, so that no two lists read alike.
        let mut list = format!("uform 1\nprecision {}\n", precision.word());
        for (name, digest) in files {
            line(&mut list, format_args!("file {name:?} {digest:032x}"));
        }
        for (module, tensors) in modules.enumerate() {
            for (name, Digest { dtype, shape, hash }) in tensors {
                line(
                    &mut list,
                    format_args!("tensor {module} {name:?} {dtype} {shape:?} {hash:032x}"),
                );
            }
        }
        Fingerprint(XxHash3_128::oneshot(list.as_bytes()))
    }
}

fn line(list: &mut String, line: fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = writeln!(list, "{line}");
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One tensor as it was read.
pub(in crate::model) struct Digest {
    pub(in crate::model) dtype: Dtype,
    pub(in crate::model) shape: Vec<usize>,
    /// The hash of its bytes.
    pub(in crate::model) hash: u128,
}

impl Digest {
    /// How many values the tensor has.
    pub(in crate::model) fn values(&self) -> u64 {
        self.shape.iter().map(|size| *size as u64).product()
    }
}

/// A source that remembers what was read through it, but for the weights: those count tensor by
/// tensor, whichever file they come from.
pub(in crate::model) struct Recorder<'a> {
    source: &'a dyn Source,
    files: Mutex<BTreeMap<String, u128>>,
}

impl<'a> Recorder<'a> {
    pub(in crate::model) fn new(source: &'a dyn Source) -> Self {
        Recorder {
            source,
            files: Mutex::default(),
        }
    }

    /// The hash of each file read so far.
    pub(in crate::model) fn files(&self) -> MutexGuard<'_, BTreeMap<String, u128>> {
        // A map is valid whatever a panicking thread was doing.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Recorder<'_> {
    fn locate(&self, name: &str) -> String {
        self.source.locate(name)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        self.source.size(name)
    }

    fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let bytes = self.source.read(name)?;
        // The index of shards is among the weights.
        if let Some(bytes) = &bytes
            && !name.contains(".safetensors")
        {
            let hash = XxHash3_128::oneshot(bytes);
            self.files().insert(name.to_owned(), hash);
        }
        Ok(bytes)
    }

    fn open(&self, name: &str) -> Result<Option<Blob>> {
        self.source.open(name)
    }

    fn names(&self) -> Vec<String> {
        self.source.names()
    }
}
