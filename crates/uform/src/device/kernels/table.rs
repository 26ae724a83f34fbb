//! The kernels as functions: what each is launched with, checked against what it will touch.
//!
//! A launch is safe when all memory that the kernel reaches is there. So every function here takes
//! [`View`]s, which lie within their buffers, and checks that they are as large as the shapes say.
//! What indexes memory, the ids and places of a [`Batch`], is checked on the host before it
//! is copied. A buffer may be dropped while it is in use: the driver frees it after what was submitted before.
//!
//! A failed check is a mistake of the caller's, and panics.

use std::sync::Arc;

use half::bf16;

use super::super::Runtime;
use super::super::layout::{Layout, Place, View};
use super::super::memory::Buffer;
use super::super::module::{Argument, Kernel, Module, Shape};
use super::super::owned::Device;
use super::super::staging::Staging;
use super::super::stream::Stream;
use crate::Result;
use crate::kernels::Activation;

/// The largest head that attention is compiled for.
pub const MOST_HEAD: usize = 128;

/// What sizes are a multiple of where tensor cores multiply.
pub const TENSOR_MULTIPLE: usize = 8;

/// Rows of a block of the kernels that work on rows.
const ROWS: usize = 4;
/// Rows and columns of a block of `dense_f32` and `dense_bf16`.
const TILE: usize = 64;
/// Those of `dense_bf16_large`.
const LARGE_TILE: usize = 128;
/// Dynamic shared memory of both.
const TILE_BYTES: u32 = 30_720;
const LARGE_TILE_BYTES: u32 = 67_584;
/// Queries of a block of `attend_f32`.
const F32_QUERIES: usize = 16;
/// Queries of a block of `attend_bf16`, and rows of each of its three tiles.
const BF16_QUERIES: usize = 64;
/// The head sizes attention is compiled for.
const HEADS: [usize; 3] = [32, 64, MOST_HEAD];

/// The kernels, loaded for a device.
pub struct Kernels {
    device: Arc<Device>,
    embed: Kernel,
    layer_norm: Kernel,
    dense_f32: Kernel,
    attend_f32: [Kernel; 3],
    pool: Kernel,
    finish: Kernel,
    tensor_cores: Option<TensorCores>,
}

/// Those that multiply by tensor cores.
struct TensorCores {
    dense: Kernel,
    dense_large: Kernel,
    attend: [Kernel; 3],
}

/// What a layer norm multiplies by and adds, and what it adds to the variance.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// `[hidden]`
    pub gain: View<'a, f32>,
    /// `[hidden]`
    pub bias: View<'a, f32>,
    /// Above zero.
    pub epsilon: f32,
}

/// The tables a token's first state is summed from.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// `[vocabulary][hidden]`
    pub words: View<'a, f32>,
    /// `[positions][hidden]`
    pub places: View<'a, f32>,
    /// `[hidden]`
    pub kind: View<'a, f32>,
}

/// A dense layer's weights, `[width][depth]`, with what follows its products.
#[derive(Clone, Copy)]
pub struct Dense<'a, T> {
    /// `[width][depth]`
    pub weights: View<'a, T>,
    /// `[width]`
    pub bias: Option<View<'a, f32>>,
    /// After the bias.
    pub activation: Activation,
    /// `[rows][width]`, added last; may be where the results go.
    pub residual: Option<View<'a, f32>>,
}

/// How large the parts of a ragged batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Tokens of all texts.
    pub tokens: usize,
    /// Texts.
    pub texts: usize,
    /// Pieces that attention is cut into.
    pieces: usize,
    /// Queries of each, at most.
    queries: usize,
}

/// Where a ragged batch lies.
#[derive(Clone, Copy)]
pub struct BatchPlace {
    extent: Extent,
    /// Everything, end to end: see [`Batch`].
    words: Place<u32>,
}

/// A ragged batch in a device's memory: the tokens of some texts, end to end.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    extent: Extent,
    /// The largest id and the largest position, and one more; zero without tokens.
    above: [usize; 2],
    ids: View<'a, u32>,
    positions: View<'a, u32>,
    starts: View<'a, u32>,
    skip: View<'a, u32>,
    pieces: View<'a, u32>,
}

impl Extent {
    /// That of texts of these lengths in tokens, for attention in f32 or by tensor cores.
    pub fn of(lengths: &[usize], by_tensor_cores: bool) -> Extent {
        let queries = match by_tensor_cores {
            true => BF16_QUERIES,
            false => F32_QUERIES,
        };
        Extent {
            tokens: lengths.iter().sum(),
            texts: lengths.len(),
            pieces: lengths.iter().map(|length| length.div_ceil(queries)).sum(),
            queries,
        }
    }

    /// Words of a batch's ids, positions, starts, skips and pieces.
    fn parts(&self) -> [usize; 5] {
        let Extent {
            tokens,
            texts,
            pieces,
            ..
        } = *self;
        [tokens, tokens, texts + 1, texts, 3 * pieces]
    }

    /// Whether texts of these lengths are so large.
    fn is_of(&self, lengths: &[usize]) -> bool {
        *self == Extent::of(lengths, self.queries == BF16_QUERIES)
    }
}

impl BatchPlace {
    /// Room for a batch.
    pub fn add(layout: &mut Layout, extent: Extent) -> BatchPlace {
        let words = extent.parts().into_iter().sum();
        BatchPlace {
            extent,
            words: layout.add(words),
        }
    }
}

impl<'a> Batch<'a> {
    /// Submits copying a batch to its place in a buffer.
    ///
    /// `ids` and `positions` are those of all tokens, `lengths` the tokens of each text, and `skip` the leading
    /// ones that are not pooled, of every text.
    ///
    /// # Errors
    /// Those of [`Staging::upload`].
    pub fn upload(
        staging: &mut Staging,
        buffer: &'a Buffer,
        place: BatchPlace,
        (ids, positions): (&[u32], &[u32]),
        lengths: &[usize],
        skip: usize,
    ) -> Result<Batch<'a>> {
        let extent = place.extent;
        assert!(extent.is_of(lengths), "the batch is another one");
        let above = [ids, positions].map(|words| {
            let most = words.iter().max();
            most.map_or(0, |most| *most as usize + 1)
        });
        let (starts, pieces) = cut(lengths, extent.queries);
        let skip = u32::try_from(skip).unwrap_or(u32::MAX);
        // Where a text begins and this are added up in 32 bits.
        let skip = vec![skip.min(word(extent.tokens)); lengths.len()];
        let words = [ids, positions, &starts, &skip, &pieces].concat();
        let all = buffer.view(place.words)?;
        staging.upload(all, &words)?;
        let mut from = 0;
        let [ids, positions, starts, skip, pieces] = extent.parts().map(|count| {
            from += count;
            all.part(from - count, count)
        });
        Ok(Batch {
            extent,
            above,
            ids,
            positions,
            starts,
            skip,
            pieces,
        })
    }

    /// How large it is.
    pub fn extent(&self) -> Extent {
        self.extent
    }
}

/// Where each text begins, and the end; and of each piece its text's first row and length, and its first query.
fn cut(lengths: &[usize], queries: usize) -> (Vec<u32>, Vec<u32>) {
    let mut first = 0;
    let (mut starts, mut pieces) = (vec![0], Vec::new());
    for &length in lengths {
        for start in (0..length).step_by(queries) {
            pieces.extend([first, length, start].map(word));
        }
        first += length;
        starts.push(word(first));
    }
    (starts, pieces)
}

/// A count as kernels take it.
///
/// # Panics
/// For more than 32 bits, of what is in memory and indexes it.
fn word(count: usize) -> u32 {
    u32::try_from(count).unwrap_or_else(|_| panic!("{count} is more than a kernel counts to"))
}

fn count(value: usize) -> Argument {
    Argument::U32(word(value))
}

fn at<T: bytemuck::Pod>(view: View<'_, T>) -> Argument {
    Argument::Address(view.address())
}

fn maybe_at<T: bytemuck::Pod>(view: Option<View<'_, T>>) -> Argument {
    Argument::Address(view.map_or(0, View::address))
}

/// The number that kernels know an activation by.
fn code(activation: Activation) -> Argument {
    Argument::U32(match activation {
        Activation::Identity => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
        Activation::Relu => 3,
        Activation::Tanh => 4,
        Activation::Silu => 5,
    })
}

impl Kernels {
    /// Loads them for a device. With `lowest`, those of the lowest class, which every device has that has any.
    ///
    /// # Errors
    /// Those of [`load`](super::load).
    pub fn load(device: &Arc<Device>, lowest: bool) -> Result<Kernels> {
        let module = match lowest {
            true => super::load_lowest(device)?,
            false => super::load(device)?,
        };
        let tensor_cores = match device.properties().runtime {
            Runtime::Cuda => Some(TensorCores::of(&module)?),
            // AMD's matrix instructions are others.
            Runtime::Hip => None,
        };
        Ok(Kernels {
            device: device.clone(),
            embed: module.kernel("embed")?,
            layer_norm: module.kernel("layer_norm")?,
            dense_f32: module.kernel("dense_f32")?,
            attend_f32: each_head(&module, "attend_f32")?,
            pool: module.kernel("pool")?,
            finish: module.kernel("finish")?,
            tensor_cores,
        })
    }

    /// Whether they multiply bf16 by tensor cores.
    pub fn has_tensor_cores(&self) -> bool {
        self.tensor_cores.is_some()
    }

    /// Whose kernels they are.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The first states of a batch's tokens: the sum of their rows of the tables, normed; also in
    /// bf16 where that is asked for. `[tokens][hidden]` each.
    ///
    /// # Errors
    /// Those of [`Stream::launch`], here and in all that follow.
    pub fn embed(
        &self,
        stream: &Stream,
        batch: &Batch<'_>,
        tables: Tables<'_>,
        norm: Norm<'_>,
        states: View<'_, f32>,
        operand: Option<View<'_, bf16>>,
    ) -> Result<()> {
        let (tokens, hidden) = (batch.extent.tokens, norm.gain.count());
        let [ids_above, positions_above] = batch.above;
        assert!(ids_above * hidden <= tables.words.count(), "an id");
        assert!(
            positions_above * hidden <= tables.places.count(),
            "a position"
        );
        assert_eq!((tables.kind.count(), norm.bias.count()), (hidden, hidden));
        check_rows(tokens, hidden, states, operand);
        self.submit(
            stream,
            &self.embed,
            [tokens.div_ceil(ROWS), 1],
            (128, 0),
            &[
                at(batch.ids),
                at(batch.positions),
                at(tables.words),
                at(tables.places),
                at(tables.kind),
                at(norm.gain),
                at(norm.bias),
                Argument::F32(norm.epsilon),
                count(tokens),
                count(hidden),
                at(states),
                maybe_at(operand),
            ],
        )
    }

    /// Norms rows, `[tokens][hidden]`, in place; also to bf16 where that is asked for.
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn layer_norm(
        &self,
        stream: &Stream,
        tokens: usize,
        norm: Norm<'_>,
        states: View<'_, f32>,
        operand: Option<View<'_, bf16>>,
    ) -> Result<()> {
        let hidden = norm.gain.count();
        assert_eq!(norm.bias.count(), hidden);
        check_rows(tokens, hidden, states, operand);
        self.submit(
            stream,
            &self.layer_norm,
            [tokens.div_ceil(ROWS), 1],
            (128, 0),
            &[
                at(states),
                at(norm.gain),
                at(norm.bias),
                Argument::F32(norm.epsilon),
                count(tokens),
                count(hidden),
                maybe_at(operand),
            ],
        )
    }

    /// A dense layer in f32: `out = activation(rows · weightsᵀ + bias) + residual`, of rows
    /// `[rows][depth]` and results `[rows][width]`. The width is even.
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn dense_f32(
        &self,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, f32>,
        dense: Dense<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        let [lines, width, depth] = shape;
        check_dense(shape, rows, &dense, 2);
        assert!(out.count() >= lines * width);
        self.submit(
            stream,
            &self.dense_f32,
            [width.div_ceil(TILE), lines.div_ceil(TILE)],
            (256, 0),
            &[
                at(rows),
                at(dense.weights),
                maybe_at(dense.bias),
                maybe_at(dense.residual),
                code(dense.activation),
                count(lines),
                count(width),
                count(depth),
                at(out),
            ],
        )
    }

    /// The same in bf16 by tensor cores, with results in f32, in bf16, or both. Width and depth are multiples of
    /// [`TENSOR_MULTIPLE`].
    ///
    /// # Panics
    /// Also on a device [without](Self::has_tensor_cores).
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn dense_bf16(
        &self,
        stream: &Stream,
        shape: [usize; 3],
        rows: View<'_, bf16>,
        dense: Dense<'_, bf16>,
        out: Option<View<'_, f32>>,
        operand: Option<View<'_, bf16>>,
    ) -> Result<()> {
        let [lines, width, depth] = shape;
        check_dense(shape, rows, &dense, TENSOR_MULTIPLE);
        assert_eq!(depth % TENSOR_MULTIPLE, 0);
        assert!(out.is_none_or(|out| out.count() >= lines * width));
        assert!(operand.is_none_or(|operand| operand.count() >= lines * width));
        let tensor_cores = self.tensor_cores();
        let grid = |tile: usize| [width.div_ceil(tile), lines.div_ceil(tile)];
        let [across, down] = grid(LARGE_TILE);
        // Larger blocks read less, once there are enough of them for the whole device.
        // Both sizes give the same bits.
        let units = self.device.properties().compute_units as usize;
        let (kernel, grid, shape) = match across * down >= units {
            true => (
                &tensor_cores.dense_large,
                [across, down],
                (256, LARGE_TILE_BYTES),
            ),
            false => (&tensor_cores.dense, grid(TILE), (128, TILE_BYTES)),
        };
        self.submit(
            stream,
            kernel,
            grid,
            shape,
            &[
                at(rows),
                at(dense.weights),
                maybe_at(dense.bias),
                maybe_at(dense.residual),
                code(dense.activation),
                count(lines),
                count(width),
                count(depth),
                maybe_at(out),
                maybe_at(operand),
            ],
        )
    }

    /// Attention within each text of a batch that was cut for f32, of queries, keys and values beside
    /// each other: `[tokens][3][heads][size]` to `[tokens][heads][size]`. Size is at most [`MOST_HEAD`].
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn attend_f32(
        &self,
        stream: &Stream,
        batch: &Batch<'_>,
        [heads, size]: [usize; 2],
        projected: View<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        check_attention(batch, F32_QUERIES, [heads, size], projected, out);
        self.submit(
            stream,
            &self.attend_f32[class_of(size)],
            [batch.extent.pieces, heads],
            (256, 0),
            &[
                at(projected),
                at(batch.pieces),
                count(heads * size),
                count(size),
                at(out),
            ],
        )
    }

    /// The same in bf16 by tensor cores, of a batch that was cut for them. Size is a multiple of
    /// [`TENSOR_MULTIPLE`].
    ///
    /// # Panics
    /// Also on a device [without](Self::has_tensor_cores).
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn attend_bf16(
        &self,
        stream: &Stream,
        batch: &Batch<'_>,
        [heads, size]: [usize; 2],
        projected: View<'_, bf16>,
        out: View<'_, bf16>,
    ) -> Result<()> {
        check_attention(batch, BF16_QUERIES, [heads, size], projected, out);
        assert_eq!(size % TENSOR_MULTIPLE, 0);
        let class = class_of(size);
        self.submit(
            stream,
            &self.tensor_cores().attend[class],
            [batch.extent.pieces, heads],
            (128, attention_bytes(HEADS[class])),
            &[
                at(projected),
                at(batch.pieces),
                count(heads * size),
                count(size),
                at(out),
            ],
        )
    }

    /// Token vectors `[tokens][hidden]` to one vector a text, `[texts][hidden]`, in the
    /// mode of a number that the kernel knows.
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn pool(
        &self,
        stream: &Stream,
        batch: &Batch<'_>,
        mode: u32,
        hidden: usize,
        states: View<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        let Extent { tokens, texts, .. } = batch.extent;
        assert!(states.count() >= tokens * hidden && out.count() >= texts * hidden);
        self.submit(
            stream,
            &self.pool,
            [texts, 1],
            (256, 0),
            &[
                at(states),
                at(batch.starts),
                at(batch.skip),
                Argument::U32(mode),
                count(hidden),
                at(out),
            ],
        )
    }

    /// The first numbers of each of some vectors, `[texts][width]` to `[texts][dimensions]`, scaled to length
    /// one if asked.
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn finish(
        &self,
        stream: &Stream,
        [texts, width, dimensions]: [usize; 3],
        normalizes: bool,
        vectors: View<'_, f32>,
        out: View<'_, f32>,
    ) -> Result<()> {
        assert!(dimensions <= width && vectors.count() >= texts * width);
        assert!(out.count() >= texts * dimensions);
        self.submit(
            stream,
            &self.finish,
            [texts, 1],
            (256, 0),
            &[
                at(vectors),
                count(width),
                count(dimensions),
                Argument::U32(normalizes.into()),
                at(out),
            ],
        )
    }

    fn tensor_cores(&self) -> &TensorCores {
        let there = self.tensor_cores.as_ref();
        there.unwrap_or_else(|| panic!("{} has no kernels in bf16", self.device.properties().name))
    }

    /// Launches, unless there is nothing to do.
    fn submit(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        [across, down]: [usize; 2],
        (threads, shared_bytes): (u32, u32),
        arguments: &[Argument],
    ) -> Result<()> {
        if across == 0 || down == 0 {
            return Ok(());
        }
        let shape = Shape {
            grid: [word(across), word(down), 1],
            block: [threads, 1, 1],
            shared_bytes,
        };
        // SAFETY: each function above passes what its kernel declares, of memory that is as large as the
        // kernel expects; see the module for what indexes it, and for how long it stays.
        unsafe { stream.launch(kernel, shape, arguments) }
    }
}

impl TensorCores {
    fn of(module: &Arc<Module>) -> Result<TensorCores> {
        let cores = TensorCores {
            dense: module.kernel("dense_bf16")?,
            dense_large: module.kernel("dense_bf16_large")?,
            attend: each_head(module, "attend_bf16")?,
        };
        cores.dense_large.allow_shared(LARGE_TILE_BYTES)?;
        for (kernel, size) in cores.attend.iter().zip(HEADS) {
            kernel.allow_shared(attention_bytes(size))?;
        }
        Ok(cores)
    }
}

/// A kernel for each size of heads.
fn each_head(module: &Arc<Module>, name: &str) -> Result<[Kernel; 3]> {
    let of = |size: usize| module.kernel(&format!("{name}_{size}"));
    Ok([of(HEADS[0])?, of(HEADS[1])?, of(HEADS[2])?])
}

/// The least of [`HEADS`] that heads of a size fit.
fn class_of(size: usize) -> usize {
    let class = HEADS.iter().position(|most| size <= *most);
    class.unwrap_or_else(|| panic!("heads of {size} are larger than {MOST_HEAD}"))
}

/// Dynamic shared memory of attention in bf16: queries, keys and values, each row with 16 bytes beside it.
fn attention_bytes(size: usize) -> u32 {
    (3 * BF16_QUERIES * (2 * size + 16)) as u32
}

fn check_rows(
    tokens: usize,
    hidden: usize,
    states: View<'_, f32>,
    operand: Option<View<'_, bf16>>,
) {
    assert!(states.count() >= tokens * hidden);
    assert!(operand.is_none_or(|operand| operand.count() >= tokens * hidden));
}

fn check_dense<T: bytemuck::Pod>(
    [lines, width, depth]: [usize; 3],
    rows: View<'_, T>,
    dense: &Dense<'_, T>,
    multiple: usize,
) {
    assert_eq!(width % multiple, 0);
    assert!(rows.count() >= lines * depth);
    assert_eq!(dense.weights.count(), width * depth);
    assert!(dense.bias.is_none_or(|bias| bias.count() == width));
    assert!(
        dense
            .residual
            .is_none_or(|residual| residual.count() >= lines * width)
    );
}

fn check_attention<T: bytemuck::Pod>(
    batch: &Batch<'_>,
    queries: usize,
    [heads, size]: [usize; 2],
    projected: View<'_, T>,
    out: View<'_, T>,
) {
    assert_eq!(batch.extent.queries, queries);
    let numbers = batch.extent.tokens * heads * size;
    assert!(projected.count() >= 3 * numbers && out.count() >= numbers);
}

#[cfg(test)]
mod tests {
    use super::{Extent, cut};

    #[test]
    fn texts_are_cut_into_pieces_of_queries() {
        let lengths = [1, 0, 33, 16];
        let (starts, pieces) = cut(&lengths, 16);
        assert_eq!(starts, [0, 1, 1, 34, 50]);
        let expected = [[0, 1, 0], [1, 33, 0], [1, 33, 16], [1, 33, 32], [34, 16, 0]];
        assert_eq!(pieces, expected.concat());
        let extent = Extent::of(&lengths, false);
        assert_eq!((extent.tokens, extent.texts, extent.pieces), (50, 4, 5));
    }
}
