//! A model's numbers, by the names its training gave them.
//!
//! They come from one safetensors file or several, as f32, f16, bf16 or i8
//! ([`quantized`](super::quantized)), under whatever prefix the model was saved with, and leave as
//! finite f32, or as the numbers of i8 for whoever computes in them. Where the file has f32, they are
//! its bytes as they were read.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use half::{bf16, f16, slice::HalfFloatSliceExt};
use safetensors::Dtype;
use twox_hash::XxHash3_128;

use super::fingerprint::Digest;
use super::quantized::{self, Quantized, balance_of, scale_of};
use super::tensors::{self, Entries, Header, Tensor};
use crate::error::{Error, Result, Status};
use crate::executor::complete;
use crate::memory::with_room;
use crate::model::files::blob::{Blob, Piece};
use crate::model::files::document::parse_json;
use crate::model::files::nearest::nearest;
use crate::model::files::{LARGEST_SETTINGS, SINGLE, Source, fetch, join, open, stays_inside};

/// The name of the list that says which of several files has which tensor.
pub(in crate::model) const INDEX: &str = "model.safetensors.index.json";

/// Weights as other frameworks name them, to say what is there instead.
const FOREIGN: [&str; 9] = [
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    "flax_model.msgpack",
    "model.onnx",
    "onnx",
    "rust_model.ot",
    "openvino_model.xml",
    "openvino",
];

// The format is little-endian, and values are read where they lie.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "big-endian targets are not supported"
);

/// All tensors of a model, or of one of its modules.
pub struct Weights {
    place: String,
    files: Vec<File>,
    tensors: HashMap<String, Located>,
    prefix: String,
    read: AtomicU64,
    /// The tensors that were read, under the names they were asked for.
    digests: Mutex<BTreeMap<String, Digest>>,
}

/// The values of one tensor: those in the file, or converted from them.
pub struct Values<'a>(Held<'a>);

enum Held<'a> {
    /// The bytes of f32, which lie as such must.
    Read(Piece<'a>),
    Converted(Vec<f32>),
}

impl<'a> Values<'a> {
    /// The f32 that these are the bytes of.
    fn of(bytes: Piece<'a>) -> Self {
        Values(match bytes.floats() {
            Some(_) => Held::Read(bytes),
            None => Held::Converted(bytemuck::pod_collect_to_vec(&bytes)),
        })
    }

    /// The values in memory of their own.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses that memory.
    pub fn into_vec(self) -> Result<Vec<f32>> {
        let piece = match self.0 {
            Held::Converted(values) => return Ok(values),
            Held::Read(piece) => piece,
        };
        piece.into_floats().or_else(|piece| {
            let values = piece.floats().unwrap_or_default();
            let mut copy = with_room(values.len(), "a model's weights")?;
            copy.extend_from_slice(values);
            Ok(copy)
        })
    }
}

impl Deref for Values<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Held::Converted(values) => values,
            // Whoever made it looked whether they lie as they must.
            Held::Read(piece) => piece.floats().unwrap_or_default(),
        }
    }
}

/// A file of weights.
struct File {
    blob: Blob,
    /// Whether it says what its I8 tensors mean.
    quantized: bool,
}

/// A tensor and the file it is in.
struct Located {
    file: usize,
    tensor: Tensor,
}

impl Weights {
    /// Opens the weights in a folder of the model, `""` for its root.
    ///
    /// `anchor` is the name of one tensor that must be there. What precedes it
    /// in the file, as in `bert.embeddings.word_embeddings.weight`, is taken to precede every name.
    ///
    /// # Errors
    /// - `NotFound`: there are no weights at all.
    /// - `Unsupported`: there are only another framework's.
    /// - `CorruptModel`: a file contradicts its format or its index, or the anchor is not there.
    pub fn open(source: &dyn Source, folder: &str, anchor: &str) -> Result<Weights> {
        let single = join(folder, SINGLE);
        let index = join(folder, INDEX);
        let mut weights = Weights {
            place: source.locate(&single),
            files: Vec::new(),
            tensors: HashMap::new(),
            prefix: String::new(),
            read: AtomicU64::new(0),
            digests: Mutex::default(),
        };
        if let Some(file) = open(source, &single)? {
            weights.add(&source.locate(&single), file)?;
        } else if let Some(bytes) = fetch(source, &index, LARGEST_SETTINGS)? {
            weights.place = source.locate(&index);
            weights.add_shards(source, folder, &bytes)?;
        } else {
            return Err(absent(source, folder));
        }
        weights.prefix = weights.prefix_of(anchor)?;
        Ok(weights)
    }

    /// The values of a tensor in row-major order, all of them finite.
    ///
    /// # Errors
    /// `CorruptModel` when it is missing (naming the nearest names), of another
    /// shape, or has a value that is not finite; `Unsupported` for a kind other than f32, f16 and
    /// bf16, and, of matrices, i8; and those of [`Blob::piece`]. Of i8 also the errors of
    /// [`quantized`](Self::quantized), and `OutOfMemory`.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Values<'_>> {
        complete(self.tensor_in_steps(name, shape))
    }

    /// [`tensor`](Self::tensor), with pauses in one of many megabytes.
    ///
    /// # Errors
    /// As there.
    pub async fn tensor_in_steps(&self, name: &str, shape: &[usize]) -> Result<Values<'_>> {
        let located = self.locate(name, shape)?;
        let tensor = &located.tensor;
        let (full, place) = (&tensor.name, &self.place);
        if let (Dtype::I8, [outputs, inputs]) = (tensor.dtype, shape) {
            let matrix = self.matrix(name, located, *outputs, *inputs)?;
            return Ok(Values(Held::Converted(matrix.weights()?)));
        }
        let all_finite = match tensor.dtype {
            Dtype::F32 => all_finite,
            Dtype::F16 => halves_finite::<{ f16::INFINITY.to_bits() }>,
            Dtype::BF16 => halves_finite::<{ bf16::INFINITY.to_bits() }>,
            other => {
                return Err(Error::unsupported(format!(
                    "{place}: tensor {full} holds {other} values; supported are F32, F16 and BF16, \
                     and I8 for matrices"
                )));
            }
        };
        let (mut hash, mut finite) = (XxHash3_128::new(), true);
        let look = |chunk: &[u8]| {
            hash.write(chunk);
            finite &= all_finite(chunk);
        };
        let bytes = self.piece_in_steps(located, look).await?;
        let values = match tensor.dtype {
            Dtype::F16 => Values(Held::Converted(cast::<f16>(&bytes).to_f32_vec())),
            Dtype::BF16 => Values(Held::Converted(cast::<bf16>(&bytes).to_f32_vec())),
            _ => Values::of(bytes),
        };
        if !finite && let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let value = values[at];
            return Err(Error::corrupt(format!(
                "{place}: tensor {full} has {value} at value {at}; every weight must be finite"
            )));
        }
        self.record(name, tensor, hash.finish_128());
        Ok(values)
    }

    /// A matrix that the file has in i8, as it is there; `None` when it has it otherwise. Its
    /// shape is `[outputs][inputs]`.
    ///
    /// # Errors
    /// As for [`tensor`](Self::tensor); `CorruptModel` when its scales or balance are missing, of
    /// another kind or shape, or have values that the layout does not have; `Unsupported` when the
    /// file does not say what its I8 tensors mean.
    pub fn quantized(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Option<Quantized<'_>>> {
        let located = self.locate(name, &[outputs, inputs])?;
        match located.tensor.dtype {
            Dtype::I8 => self.matrix(name, located, outputs, inputs).map(Some),
            _ => Ok(None),
        }
    }

    /// The I8 matrix that was located.
    fn matrix(
        &self,
        name: &str,
        located: &Located,
        outputs: usize,
        inputs: usize,
    ) -> Result<Quantized<'_>> {
        let tensor = &located.tensor;
        if !self.files[located.file].quantized {
            return Err(Error::unsupported(format!(
                "{}: tensor {} holds I8 values, and the file's metadata does not say in which \
                 layout; I8 is read from files that `npx uform quantize` wrote",
                self.place, tensor.name
            )));
        }
        let scales = self.factors(&scale_of(name), outputs)?;
        let balance = balance_of(name);
        let balance = match self.contains(&balance) {
            true => Some(self.factors(&balance, inputs)?),
            false => None,
        };
        let mut hash = XxHash3_128::new();
        let numbers = self.piece(located, |chunk| hash.write(chunk))?;
        hash.write(bytemuck::cast_slice(&scales));
        hash.write(bytemuck::cast_slice(balance.as_deref().unwrap_or_default()));
        let called = (&*self.place, &*tensor.name);
        let quantized = Quantized::new(called, numbers, scales, balance)?;
        self.record(name, tensor, hash.finish_128());
        Ok(quantized)
    }

    /// What goes with a matrix in i8: as many f32 as are expected.
    fn factors(&self, name: &str, count: usize) -> Result<Values<'_>> {
        let located = self.locate(name, &[count])?;
        match located.tensor.dtype {
            Dtype::F32 => Ok(Values::of(self.piece(located, |_| ())?)),
            other => Err(Error::corrupt(format!(
                "{}: tensor {} holds {other} values; beside an I8 tensor it holds F32",
                self.place, located.tensor.name
            ))),
        }
    }

    /// The tensor of a name and shape.
    fn locate(&self, name: &str, shape: &[usize]) -> Result<&Located> {
        let located = self.find(name).ok_or_else(|| self.missing(name))?;
        let Tensor {
            name, shape: found, ..
        } = &located.tensor;
        if found != shape {
            return Err(Error::corrupt(format!(
                "{}: tensor {name} has shape {found:?}, expected {shape:?}",
                self.place
            )));
        }
        Ok(located)
    }

    /// The bytes of a tensor, which count as read; `look` sees them as of [`Blob::piece`].
    fn piece(&self, located: &Located, look: impl FnMut(&[u8])) -> Result<Piece<'_>> {
        complete(self.piece_in_steps(located, look))
    }

    async fn piece_in_steps(
        &self,
        located: &Located,
        look: impl FnMut(&[u8]),
    ) -> Result<Piece<'_>> {
        // `tensors::read` checked the range against the file.
        let (start, end) = located.tensor.range;
        let blob = &self.files[located.file].blob;
        let bytes = blob.piece_in_steps(start..end, look).await?;
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Notes that a tensor was read.
    fn record(&self, name: &str, tensor: &Tensor, hash: u128) {
        let digest = Digest {
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            hash,
        };
        self.digests().insert(name.to_owned(), digest);
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// What precedes every name in the file, such as `"bert."`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How many bytes the files have.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.blob.size()).sum()
    }

    /// Whether all that was read so far is of the files as they were opened. To be asked after the last tensor.
    ///
    /// # Errors
    /// `CorruptModel` when a file was written to in the meantime.
    pub fn check_unchanged(&self) -> Result<()> {
        self.files
            .iter()
            .try_for_each(|file| file.blob.check_unchanged())
    }

    /// How many bytes of tensors were asked for so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// What was read so far.
    pub(in crate::model) fn digests(&self) -> MutexGuard<'_, BTreeMap<String, Digest>> {
        // A map is valid whatever a panicking thread was doing.
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Option<&Located> {
        let full = format!("{}{name}", self.prefix);
        self.tensors.get(&full).or_else(|| {
            // Checkpoints as old as BERT itself.
            let old = match full.rsplit_once(".LayerNorm.") {
                Some((before, "weight")) => format!("{before}.LayerNorm.gamma"),
                Some((before, "bias")) => format!("{before}.LayerNorm.beta"),
                _ => return None,
            };
            self.tensors.get(&old)
        })
    }

    /// Adds the tensors of one file.
    fn add(&mut self, place: &str, blob: Blob) -> Result<()> {
        let file = self.files.len();
        let Header { tensors, metadata } = tensors::read(place, &blob)?;
        let quantized = match metadata.get(quantized::KEY).map(String::as_str) {
            None => false,
            Some(quantized::VERSION) => true,
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{place}: its i8 layout has version {other:?}, and this build of uform reads \
                     {:?}; update uform, or quantize the model again with this one",
                    quantized::VERSION
                )));
            }
        };
        for tensor in tensors {
            let name = tensor.name.clone();
            if self
                .tensors
                .insert(name.clone(), Located { file, tensor })
                .is_some()
            {
                return Err(Error::corrupt(format!(
                    "{}: tensor {name} is in {place} and in another shard as well",
                    self.place
                )));
            }
        }
        self.files.push(File { blob, quantized });
        Ok(())
    }

    /// Adds every file that an index names, and checks that each has what the index says.
    fn add_shards(&mut self, source: &dyn Source, folder: &str, index: &[u8]) -> Result<()> {
        let place = self.place.clone();
        let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tensor, shard) in weight_map(&place, index)? {
            if !stays_inside(&shard) {
                return Err(Error::corrupt(format!(
                    "{place}: {tensor} is said to be in {shard:?}, outside the model's folder"
                )));
            }
            shards.entry(shard).or_default().push(tensor);
        }
        for (shard, tensors) in shards {
            let name = join(folder, &shard);
            let blob = open(source, &name)?.ok_or_else(|| {
                Error::corrupt(format!(
                    "{place}: names the shard {shard}, which is not there; the download may be \
                     incomplete"
                ))
            })?;
            self.add(&source.locate(&name), blob)?;
            let file = self.files.len() - 1;
            for tensor in tensors {
                if self
                    .tensors
                    .get(&tensor)
                    .is_none_or(|found| found.file != file)
                {
                    return Err(Error::corrupt(format!(
                        "{place}: {tensor} is said to be in {shard}, which lacks it"
                    )));
                }
            }
        }
        Ok(())
    }

    /// What precedes the one tensor whose name ends with `anchor`.
    fn prefix_of(&self, anchor: &str) -> Result<String> {
        let names = self.tensors.keys();
        let mut prefixes: Vec<&str> = names
            .filter_map(|name| name.strip_suffix(anchor))
            .filter(|prefix| prefix.is_empty() || prefix.ends_with('.'))
            .collect();
        prefixes.sort_unstable_by_key(|prefix| (prefix.len(), *prefix));
        match prefixes[..] {
            [] => Err(self.missing(anchor)),
            // The plain name wins over longer ones that happen to end alike.
            [prefix] | [prefix @ "", ..] => Ok(prefix.to_owned()),
            _ => Err(Error::unsupported(format!(
                "{}: holds several models ({} under each of {:?}); one is supported",
                self.place, anchor, prefixes
            ))),
        }
    }

    fn missing(&self, name: &str) -> Error {
        let full = format!("{}{name}", self.prefix);
        let near = nearest(&full, self.tensors.keys().map(String::as_str), 3);
        let near = if near.is_empty() {
            "it has no tensors".to_owned()
        } else {
            format!("the nearest names are {}", near.join(", "))
        };
        Error::corrupt(format!("{}: has no tensor {full}; {near}", self.place))
    }
}

/// Which file the index says each tensor is in.
fn weight_map(place: &str, index: &[u8]) -> Result<Vec<(String, String)>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: Entries<String>,
    }
    // Said apart: a missing key would be all that the second complaint can name.
    parse_json(place, index)?;
    let index: Index = serde_json::from_slice(index).map_err(|error| {
        Error::corrupt(format!("{place}: not an index of shards: {error}")).because(error)
    })?;
    Ok(index.weight_map.0)
}

/// The complaint that there are no weights, and what there is instead.
fn absent(source: &dyn Source, folder: &str) -> Error {
    let place = source.locate(&join(folder, SINGLE));
    // Of the folder alone, where the model has several.
    let within = format!("{folder}/");
    let names = source.names_in(folder);
    let named = |is: &dyn Fn(&str) -> bool| {
        let names = names
            .iter()
            .map(|name| name.strip_prefix(&within).unwrap_or(name));
        names
            .filter(|name| !name.contains('/'))
            .find(|name| is(name))
            .map(str::to_owned)
    };
    if let Some(adapter) = named(&|name| name.starts_with("adapter_model.")) {
        return Error::unsupported(format!(
            "{place}: no such file, only {adapter}, which changes the weights of another model; merge them \
             in Python (peft's merge_and_unload) and save the whole with save_pretrained"
        ));
    }
    if let Some(foreign) = named(&|name| FOREIGN.contains(&name) || name.ends_with(".gguf")) {
        return Error::unsupported(format!(
            "{place}: no safetensors weights, only {foreign}, which cannot be read; take a \
             revision of the model with safetensors, or convert it: load it in Python with \
             transformers and save it with save_pretrained"
        ));
    }
    if let Some(variant) = named(&|name| name.ends_with(".safetensors")) {
        return Error::new(
            Status::NotFound,
            format!(
                "{place}: no such file, only {variant}; pass the path of that file, or rename it to {SINGLE}"
            ),
        );
    }
    Error::new(
        Status::NotFound,
        format!("{place}: no such file, and no {INDEX} either; expected the model's weights"),
    )
}

/// Values where they lie, or a copy where they lie unaligned.
fn cast<T: bytemuck::Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

/// Whether no f32 of these is infinite or not a number: what is added to a magnitude carries into the sign
/// where it is infinity or more. Written to be vectorised, in blocks of several vectors: it runs over every
/// weight, and then costs less than fetching it from memory.
fn all_finite(bytes: &[u8]) -> bool {
    const CARRY: u32 = (1 << 31) - f32::INFINITY.to_bits();
    let carried = |value: &[u8; 4]| (u32::from_le_bytes(*value) & 0x7fff_ffff) + CARRY;
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut all = [0; 16];
    for block in blocks {
        for (all, value) in all.iter_mut().zip(block.as_chunks().0) {
            *all |= carried(value);
        }
    }
    let rest = rest.as_chunks().0.iter().map(carried);
    all.into_iter()
        .chain(rest)
        .all(|carried| carried >> 31 == 0)
}

/// The same of f16 or bf16, whose infinity has the bits `INFINITY`.
fn halves_finite<const INFINITY: u16>(bytes: &[u8]) -> bool {
    let carried = |value: &[u8; 2]| (u16::from_le_bytes(*value) & 0x7fff) + ((1 << 15) - INFINITY);
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut all = [0; 32];
    for block in blocks {
        for (all, value) in all.iter_mut().zip(block.as_chunks().0) {
            *all |= carried(value);
        }
    }
    let rest = rest.as_chunks().0.iter().map(carried);
    all.into_iter()
        .chain(rest)
        .all(|carried| carried >> 15 == 0)
}

#[cfg(test)]
mod tests {
    use super::{all_finite, halves_finite};
    use half::{bf16, f16};

    /// Whether each of 70 numbers, of which one is `value`, counts as finite wherever it is.
    fn finite<const BYTES: usize>(
        ordinary: [u8; BYTES],
        value: [u8; BYTES],
        all: fn(&[u8]) -> bool,
    ) -> bool {
        let found = (0..70).map(|at| {
            let mut numbers = [ordinary; 70];
            numbers[at] = value;
            all(numbers.as_flattened())
        });
        let found: Vec<bool> = found.collect();
        assert!(found.iter().all(|one| *one == found[0]), "{value:?}");
        found[0]
    }

    #[test]
    fn what_is_not_finite_is_found_wherever_it_is() {
        let numbers = [
            0.0,
            -0.0,
            1.0,
            f32::MAX,
            f32::MIN,
            1e-40,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            -f32::NAN,
            f32::from_bits(0x7f80_0001),
        ];
        for number in numbers {
            let one = 1f32.to_le_bytes();
            let found = finite(one, number.to_le_bytes(), all_finite);
            assert_eq!(found, number.is_finite(), "{number}");
        }
        for bits in 0..=u16::MAX {
            let (one, two) = (f16::from_bits(bits), bf16::from_bits(bits));
            let bytes = bits.to_le_bytes();
            assert_eq!(
                halves_finite::<{ f16::INFINITY.to_bits() }>(&bytes),
                one.is_finite(),
                "{one}"
            );
            assert_eq!(
                halves_finite::<{ bf16::INFINITY.to_bits() }>(&bytes),
                two.is_finite(),
                "{two}"
            );
        }
        for bits in [0x7bff, 0x7c00, 0xfc01] {
            let all = halves_finite::<{ f16::INFINITY.to_bits() }>;
            let found = finite([0; 2], u16::to_le_bytes(bits), all);
            assert_eq!(found, f16::from_bits(bits).is_finite(), "{bits:x}");
        }
        assert!(all_finite(&[]) && halves_finite::<{ f16::INFINITY.to_bits() }>(&[]));
    }
}
