//! Where a model's weights lie in a device's memory, and how they get there.
//!
//! One buffer has all of them, laid out from the model's sizes before anything is read. Sizes that kernels
//! want to be multiples of something are rounded up with zeros: those of the inner layer and of heads,
//! where a zero stays one through every activation or meets a zero again. The hidden size cannot be, since
//! norms divide by it.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;

use super::format::Format;
use crate::device::kernels::{Dense, Norm, Tables};
use crate::device::{Buffer, Layout, Place, Stream};
use crate::kernels::Activation;
use crate::memory::zeros;
use crate::model::architecture::bert::BertConfig;
use crate::model::checkpoint::weights::Weights;
use crate::model::settings::modules::DenseSettings;
use crate::{Result, memory};

/// Where everything is.
pub(super) struct Places<T> {
    words: Place<f32>,
    positions: Place<f32>,
    kind: Place<f32>,
    pub(super) norm: NormPlaces,
    pub(super) layers: Vec<LayerPlaces<T>>,
    pub(super) heads: Vec<DensePlaces<f32>>,
    /// Two rows as long as a vector.
    pub(super) zeros: Place<f32>,
}

pub(super) struct LayerPlaces<T> {
    pub(super) query_key_value: DensePlaces<T>,
    pub(super) attention_output: DensePlaces<T>,
    pub(super) attention_norm: NormPlaces,
    pub(super) intermediate: DensePlaces<T>,
    pub(super) output: DensePlaces<T>,
    pub(super) output_norm: NormPlaces,
}

#[derive(Clone, Copy)]
pub(super) struct NormPlaces {
    gain: Place<f32>,
    bias: Place<f32>,
}

/// A dense layer.
pub(super) struct DensePlaces<T> {
    weights: Place<T>,
    bias: Option<Place<f32>>,
    /// How many outputs and inputs there are, zeros included.
    pub(super) width: usize,
    pub(super) depth: usize,
    pub(super) activation: Activation,
}

impl<T: Format> Places<T> {
    /// Of a model of these sizes, in a layout.
    pub(super) fn new(config: &BertConfig, heads: &[DenseSettings], layout: &mut Layout) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let inner = inner.next_multiple_of(T::MULTIPLE);
        let layer = |layout: &mut Layout| LayerPlaces {
            query_key_value: DensePlaces::add(layout, [3 * hidden, hidden], Activation::Identity),
            attention_output: DensePlaces::add(layout, [hidden, hidden], Activation::Identity),
            attention_norm: NormPlaces::add(layout, hidden),
            intermediate: DensePlaces::add(layout, [inner, hidden], config.activation),
            output: DensePlaces::add(layout, [hidden, inner], Activation::Identity),
            output_norm: NormPlaces::add(layout, hidden),
        };
        let words = layout.add(config.vocabulary.saturating_mul(hidden));
        let positions = layout.add(config.positions.saturating_mul(hidden));
        let kind = layout.add(hidden);
        let norm = NormPlaces::add(layout, hidden);
        let layers = (0..config.layers).map(|_| layer(layout)).collect();
        let mut depth = hidden;
        let mut places = Vec::with_capacity(heads.len());
        for head in heads {
            let width = head.out_features.next_multiple_of(f32::MULTIPLE);
            let dense = DensePlaces::add(layout, [width, depth], head.activation);
            places.push(DensePlaces {
                bias: dense.bias.filter(|_| head.bias),
                ..dense
            });
            depth = width;
        }
        Places {
            words,
            positions,
            kind,
            norm,
            layers,
            heads: places,
            zeros: layout.add(2 * depth),
        }
    }

    /// The tables in a replica's buffer.
    pub(super) fn tables<'a>(&self, weights: &'a Buffer) -> Result<Tables<'a>> {
        Ok(Tables {
            words: weights.view(self.words)?,
            places: weights.view(self.positions)?,
            kind: weights.view(self.kind)?,
        })
    }

    /// Copies the tables to where they go.
    pub(super) fn read_tables(
        &self,
        weights: &Weights,
        config: &BertConfig,
        to: &Targets<'_>,
    ) -> Result<()> {
        let hidden = config.hidden_size;
        let table = |name: &str, rows: usize| {
            let name = format!("embeddings.{name}.weight");
            weights.tensor(&name, &[rows, hidden])
        };
        let kind = table("token_type_embeddings", config.token_types)?;
        to.put(self.kind, &kind[..hidden])?;
        drop(kind);
        to.put(self.words, &table("word_embeddings", config.vocabulary)?)?;
        let positions = table("position_embeddings", config.positions)?;
        to.put(self.positions, &positions)?;
        to.put(self.zeros, &zeros(self.zeros.count(), "a model's weights")?)?;
        self.norm.read(weights, "embeddings.LayerNorm", to)
    }

    /// Copies the weights of a layer to where they go.
    pub(super) fn read_layer(
        &self,
        weights: &Weights,
        config: &BertConfig,
        index: usize,
        to: &Targets<'_>,
    ) -> Result<()> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let layer = &self.layers[index];
        let projections =
            ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        let dense = |places: &DensePlaces<T>, names: &[String], shape| {
            places.read(weights, names, true, shape, to)
        };
        dense(&layer.query_key_value, &projections, [hidden, hidden])?;
        let output = [name("attention.output.dense")];
        dense(&layer.attention_output, &output, [hidden, hidden])?;
        let intermediate = [name("intermediate.dense")];
        dense(&layer.intermediate, &intermediate, [inner, hidden])?;
        dense(&layer.output, &[name("output.dense")], [hidden, inner])?;
        let norm = name("attention.output.LayerNorm");
        layer.attention_norm.read(weights, &norm, to)?;
        let norm = name("output.LayerNorm");
        layer.output_norm.read(weights, &norm, to)
    }

    /// Copies the weights of a head to where they go.
    pub(super) fn read_head(
        &self,
        weights: &Weights,
        settings: &DenseSettings,
        index: usize,
        to: &Targets<'_>,
    ) -> Result<()> {
        let shape = [settings.out_features, settings.in_features];
        let names = ["linear".to_owned()];
        self.heads[index].read(weights, &names, settings.bias, shape, to)
    }
}

impl NormPlaces {
    fn add(layout: &mut Layout, hidden: usize) -> Self {
        NormPlaces {
            gain: layout.add(hidden),
            bias: layout.add(hidden),
        }
    }

    fn read(self, weights: &Weights, name: &str, to: &Targets<'_>) -> Result<()> {
        for (part, place) in [("weight", self.gain), ("bias", self.bias)] {
            let values = weights.tensor(&format!("{name}.{part}"), &[place.count()])?;
            to.put(place, &values)?;
        }
        Ok(())
    }

    pub(super) fn of(self, weights: &Buffer, epsilon: f32) -> Result<Norm<'_>> {
        Ok(Norm {
            gain: weights.view(self.gain)?,
            bias: weights.view(self.bias)?,
            epsilon,
        })
    }
}

impl<T: Format> DensePlaces<T> {
    fn add(layout: &mut Layout, [width, depth]: [usize; 2], activation: Activation) -> Self {
        DensePlaces {
            weights: layout.add(width.saturating_mul(depth)),
            bias: Some(layout.add(width)),
            width,
            depth,
            activation,
        }
    }

    /// Layers over the same rows, `[outputs][inputs]` each, whose outputs follow each other.
    fn read(
        &self,
        weights: &Weights,
        names: &[String],
        has_bias: bool,
        [outputs, inputs]: [usize; 2],
        to: &Targets<'_>,
    ) -> Result<()> {
        let (width, depth) = (self.width / names.len(), self.depth);
        for (at, name) in names.iter().enumerate() {
            let values = weights.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
            let values = padded(&values, inputs, [width, depth])?;
            let place = self.weights.part(at * width * depth, width * depth);
            to.put(place, &T::of(values)?)?;
            if let (Some(bias), true) = (self.bias, has_bias) {
                let values = weights.tensor(&format!("{name}.bias"), &[outputs])?;
                let values = padded(&values, outputs, [1, width])?;
                to.put(bias.part(at * width, width), &values)?;
            }
        }
        Ok(())
    }

    /// The layer in a replica's buffer.
    pub(super) fn of<'a>(&self, weights: &'a Buffer) -> Result<Dense<'a, T>> {
        Ok(Dense {
            weights: weights.view(self.weights)?,
            bias: self.bias.map(|bias| weights.view(bias)).transpose()?,
            activation: self.activation,
            residual: None,
        })
    }
}

/// A matrix, of so many columns, with zeros below and beside it.
fn padded(values: &[f32], columns: usize, [height, width]: [usize; 2]) -> Result<Cow<'_, [f32]>> {
    if values.len() == height * width {
        return Ok(Cow::Borrowed(values));
    }
    let mut all = memory::zeros(height * width, "a model's weights")?;
    for (row, values) in all
        .chunks_exact_mut(width)
        .zip(values.chunks_exact(columns))
    {
        row[..columns].copy_from_slice(values);
    }
    Ok(Cow::Owned(all))
}

/// The buffers that weights are copied to, each by a stream of its device.
pub(super) struct Targets<'a>(pub(super) Vec<(&'a Stream, Mutex<&'a mut Buffer>)>);

impl Targets<'_> {
    /// Copies numbers to their place in each of them.
    fn put<T: Pod>(&self, place: Place<T>, values: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        for (stream, buffer) in &self.0 {
            // A copy that panicked left numbers behind, which nobody will look at.
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            stream.upload(&mut buffer, place.offset(), bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::padded;

    #[test]
    fn zeros_are_below_and_beside() {
        let matrix = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(*padded(&matrix, 2, [2, 2]).unwrap(), matrix);
        let all = padded(&matrix, 2, [3, 4]).unwrap();
        let expected = [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0; 4]];
        assert_eq!(*all, expected.concat());
    }
}
