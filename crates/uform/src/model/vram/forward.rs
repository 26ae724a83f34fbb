//! BERT on a device: what is submitted for one block of texts.
//!
//! The same network as `bert.rs` computes on host threads, see there, by the same steps, pooling and heads
//! included.

use super::super::Pooling;
use super::Replica;
use super::format::Format;
use super::weights::Places;
use crate::Result;
use crate::device::kernels::{Batch, BatchPlace, Dense, Extent};
use crate::device::{Download, Layout, Place, View};
use crate::executor::DrivenDevice;
use crate::kernels::Activation;
use crate::model::architecture::bert::BertConfig;
use crate::model::encode::request::Request;

/// Texts that go through the layers together on one device.
pub(super) struct Block<'a> {
    /// `[tokens]` vocabulary ids.
    pub(super) ids: &'a [u32],
    /// `[tokens]` places of the tokens in their texts.
    pub(super) positions: &'a [u32],
    /// Tokens of each text.
    pub(super) lengths: &'a [usize],
}

/// What computes blocks, whatever it multiplies.
pub(super) trait Encoder: Send + Sync {
    /// Bytes of scratch that so many tokens of as many texts take.
    fn scratch_bytes(&self, tokens: usize) -> usize;

    /// Submits everything for a block: its vectors, `[texts][dimensions]`, go to `out`. What is downloaded has two
    /// numbers a text, zeros where the vector is finite and else no numbers. Between layers
    /// it asks `check` whether to go on, and gives up with its error.
    fn submit(
        &self,
        replica: &Replica,
        driven: &mut DrivenDevice,
        block: &Block<'_>,
        request: &Request,
        out: View<'_, f32>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Download<f32>>;
}

/// A BERT encoder and its heads.
pub(super) struct Bert<T> {
    config: BertConfig,
    places: Places<T>,
}

/// Where a block is computed.
struct Room<T> {
    batch: BatchPlace,
    states: Place<f32>,
    operand: Place<T>,
    /// Queries, keys and values, and then what comes out of the inner layer.
    wide: Place<T>,
    /// What attention gives.
    context: Place<T>,
    /// Vectors, and what each head makes of them.
    vectors: Vec<Place<f32>>,
    flags: Place<f32>,
}

impl<T: Format> Bert<T> {
    pub(super) fn new(config: BertConfig, places: Places<T>) -> Self {
        Bert { config, places }
    }

    fn room(&self, extent: Extent) -> (Room<T>, Layout) {
        let Extent { tokens, texts, .. } = extent;
        let hidden = self.config.hidden_size;
        let inner = self
            .places
            .layers
            .first()
            .map_or(0, |layer| layer.intermediate.width);
        let mut layout = Layout::new();
        let numbers = |each: usize| tokens.saturating_mul(each);
        let room = Room {
            batch: BatchPlace::add(&mut layout, extent),
            states: layout.add(numbers(hidden)),
            // Attention's result is the next layer's rows where rows are beside the states.
            operand: layout.add(if T::HAS_OPERAND { numbers(hidden) } else { 0 }),
            context: layout.add(if T::HAS_OPERAND { 0 } else { numbers(hidden) }),
            wide: layout.add(numbers(inner.max(3 * hidden))),
            vectors: std::iter::once(hidden)
                .chain(self.places.heads.iter().map(|head| head.width))
                .map(|width| layout.add(texts.saturating_mul(width)))
                .collect(),
            flags: layout.add(2 * texts),
        };
        (room, layout)
    }
}

impl<T: Format> Encoder for Bert<T> {
    fn scratch_bytes(&self, tokens: usize) -> usize {
        let lengths = vec![1; tokens];
        let (_, layout) = self.room(Extent::of(&lengths, T::BY_TENSOR_CORES));
        layout.bytes()
    }

    fn submit(
        &self,
        replica: &Replica,
        driven: &mut DrivenDevice,
        block: &Block<'_>,
        request: &Request,
        out: View<'_, f32>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Download<f32>> {
        let BertConfig {
            hidden_size: hidden,
            heads,
            layer_norm_eps: epsilon,
            ..
        } = self.config;
        let Replica {
            kernels, weights, ..
        } = replica;
        let DrivenDevice {
            stream,
            staging,
            scratch,
            ..
        } = driven;
        let extent = Extent::of(block.lengths, T::BY_TENSOR_CORES);
        let (room, layout) = self.room(extent);
        let buffer = scratch.of(&layout)?;
        let words = (block.ids, block.positions);
        let batch = Batch::upload(
            staging,
            buffer,
            room.batch,
            words,
            block.lengths,
            request.skip,
        )?;
        let states = buffer.view(room.states)?;
        let operand = buffer.view(room.operand)?;
        let context = match T::HAS_OPERAND {
            true => operand,
            false => buffer.view(room.context)?,
        };
        let wide = buffer.view(room.wide)?;
        let beside = T::beside(operand);
        let Extent { tokens, texts, .. } = extent;

        let norm = self.places.norm.of(weights, epsilon)?;
        let tables = self.places.tables(weights)?;
        kernels.embed(stream, &batch, tables, norm, states, beside)?;
        for layer in &self.places.layers {
            check()?;
            let rows = T::rows(states, operand);
            let dense = &layer.query_key_value;
            let shape = [tokens, dense.width, dense.depth];
            T::onward(kernels, stream, shape, rows, dense.of(weights)?, wide)?;
            let size = [heads, hidden / heads];
            T::attend(kernels, stream, &batch, size, wide, context)?;
            let dense = &layer.attention_output;
            let shape = [tokens, dense.width, dense.depth];
            T::add(kernels, stream, shape, context, dense.of(weights)?, states)?;
            let norm = layer.attention_norm.of(weights, epsilon)?;
            kernels.layer_norm(stream, tokens, norm, states, beside)?;

            let rows = T::rows(states, operand);
            let dense = &layer.intermediate;
            let shape = [tokens, dense.width, dense.depth];
            T::onward(kernels, stream, shape, rows, dense.of(weights)?, wide)?;
            let dense = &layer.output;
            let shape = [tokens, dense.width, dense.depth];
            T::add(kernels, stream, shape, wide, dense.of(weights)?, states)?;
            let norm = layer.output_norm.of(weights, epsilon)?;
            kernels.layer_norm(stream, tokens, norm, states, beside)?;
        }

        let mut width = hidden;
        let mut vectors = buffer.view(room.vectors[0])?;
        let mode = mode(request.pooling);
        kernels.pool(stream, &batch, mode, hidden, states, vectors)?;
        for (head, place) in self.places.heads.iter().zip(&room.vectors[1..]) {
            let next = buffer.view(*place)?;
            let shape = [texts, head.width, head.depth];
            kernels.dense_f32(stream, shape, vectors, head.of(weights)?, next)?;
            (vectors, width) = (next, head.width);
        }
        let dimensions = request.dimensions;
        let sizes = [texts, width, dimensions];
        kernels.finish(stream, sizes, request.normalize, vectors, out)?;

        // A product with zeros is zero for numbers that are finite, and else no number.
        let flags = buffer.view(room.flags)?;
        let zeros = Dense {
            weights: weights.view(self.places.zeros)?.part(0, 2 * dimensions),
            bias: None,
            activation: Activation::Identity,
            residual: None,
        };
        kernels.dense_f32(stream, [texts, 2, dimensions], out, zeros, flags)?;
        staging.download(flags)
    }
}

/// The number that kernels know a way of pooling by.
fn mode(pooling: Pooling) -> u32 {
    match pooling {
        Pooling::Mean => 0,
        Pooling::Cls => 1,
        Pooling::Max => 2,
        Pooling::Last => 3,
        Pooling::MeanSqrt => 4,
        Pooling::WeightedMean => 5,
    }
}
