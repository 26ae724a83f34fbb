//! A dense layer: `activation(x·Wᵀ + b)`, and the optional heads behind pooling.

use std::sync::Arc;

use super::modules::DenseSettings;
use super::weights::Weights;
use crate::Result;
use crate::kernels::{Activation, Epilogue, ForkJoin, Kernels, Operand, Packed, Region, Solo};

/// The weights of a dense layer, packed for one class.
pub(super) struct Dense {
    weight: Packed,
    bias: Option<Vec<f32>>,
}

impl Dense {
    /// Reads the layers called `names`, each `[outputs][inputs]` with a bias of its own,
    /// as one layer whose outputs follow each other.
    pub(super) fn read(
        weights: &Weights,
        (kernels, region): (&Kernels, &Arc<Region>),
        names: &[String],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self> {
        let mut matrices = Vec::with_capacity(names.len());
        let mut bias = Vec::with_capacity(names.len() * outputs);
        for name in names {
            matrices.push(weights.tensor(&format!("{name}.weight"), &[outputs, inputs])?);
            bias.extend_from_slice(&weights.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        let parts: Vec<&[f32]> = matrices.iter().map(|matrix| &**matrix).collect();
        Ok(Dense {
            weight: kernels.pack_into(region, &Solo, &parts, inputs)?,
            bias: Some(bias),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.weight.bytes()
            + self
                .bias
                .as_ref()
                .map_or(0, |bias| size_of_val(bias.as_slice()))
    }

    /// `out = activation(rows·Wᵀ + b) + residual`; `rows` are `[rows][inputs]`, the
    /// others `[rows][outputs]`.
    pub(super) fn apply(
        &self,
        kernels: &Kernels,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        activation: Activation,
        residual: Option<&[f32]>,
        out: &mut [f32],
    ) {
        let epilogue = Epilogue {
            residual,
            ..self.epilogue(activation)
        };
        kernels.linear(team, rows, &self.weight, epilogue, out);
    }

    /// `activation(rows·Wᵀ + b)` for the next layer alone: [`Kernels::linear_onward`].
    pub(super) fn apply_onward<'a>(
        &self,
        kernels: &Kernels,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        activation: Activation,
        out: &'a mut [f32],
        space: &'a mut [f32],
    ) -> Operand<'a> {
        let epilogue = self.epilogue(activation);
        kernels.linear_onward(team, rows, &self.weight, epilogue, out, space)
    }

    fn epilogue(&self, activation: Activation) -> Epilogue<'_> {
        Epilogue {
            bias: self.bias.as_deref(),
            activation,
            residual: None,
        }
    }
}

/// A `Dense` module of sentence-transformers, applied to the pooled vector. It computes in f32
/// whatever the encoder's precision: it sees one row a text.
pub(super) struct Head {
    dense: Dense,
    activation: Activation,
}

impl Head {
    pub(super) fn read(
        weights: &Weights,
        kernels: &Kernels,
        settings: &DenseSettings,
    ) -> Result<Self> {
        let (inputs, outputs) = (settings.in_features, settings.out_features);
        let matrix = weights.tensor("linear.weight", &[outputs, inputs])?;
        let bias = match settings.bias {
            true => Some(weights.tensor("linear.bias", &[outputs])?.into_vec()?),
            false => None,
        };
        Ok(Head {
            dense: Dense {
                weight: kernels.pack(&Solo, &[&matrix], inputs)?,
                bias,
            },
            activation: settings.activation,
        })
    }

    pub(super) fn outputs(&self) -> usize {
        self.dense.weight.outputs()
    }

    pub(super) fn bytes(&self) -> usize {
        self.dense.bytes()
    }

    /// `out = activation(vectors·Wᵀ + b)`; `vectors` is `[texts][inputs]`. The kernels are those
    /// the head was read for.
    pub(super) fn apply(
        &self,
        kernels: &Kernels,
        team: &dyn ForkJoin,
        vectors: &[f32],
        out: &mut [f32],
    ) {
        let inputs = self.dense.weight.inputs();
        let rows = kernels.operand(vectors, &[], vectors.len() / inputs, inputs);
        self.dense
            .apply(kernels, team, rows, self.activation, None, out);
    }
}
