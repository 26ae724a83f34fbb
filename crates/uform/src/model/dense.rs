//! A dense layer: `activation(x·Wᵀ + b)`, and the optional heads behind pooling.

use std::sync::Arc;

use super::modules::DenseSettings;
use super::weights::Weights;
use crate::Result;
use crate::kernels::{
    Activation, Epilogue, ForkJoin, Kernels, Operand, Packed, Precision, Region, Solo, balance,
};

/// The weights of a dense layer, packed for one class.
pub(super) struct Dense {
    weight: Packed,
    bias: Option<Vec<f32>>,
    /// One an output, that the activation is multiplied by: see [`Dense::read_pair`].
    factors: Option<Vec<f32>>,
}

/// What is read, and where it is packed.
type Memory<'a> = (&'a Kernels, &'a Arc<Region>);

impl Dense {
    /// Reads the layers called `names`, each `[outputs][inputs]` with a bias of its own,
    /// as one layer whose outputs follow each other.
    pub(super) fn read(
        weights: &Weights,
        (kernels, region): Memory<'_>,
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
            factors: None,
        })
    }

    /// Reads two layers, the second of which takes what comes out of the first, `inner`
    /// numbers, and nothing else does. In i8 the weights of the second are balanced ([`balance`]).
    pub(super) fn read_pair(
        weights: &Weights,
        memory: Memory<'_>,
        [first, second]: [String; 2],
        hidden: usize,
        inner: usize,
    ) -> Result<(Self, Self)> {
        let mut feeding = Dense::read(weights, memory, &[first], hidden, inner)?;
        let (kernels, region) = memory;
        if kernels.precision() != Precision::I8 {
            let fed = Dense::read(weights, memory, &[second], inner, hidden)?;
            return Ok((feeding, fed));
        }
        let matrix = weights.tensor(&format!("{second}.weight"), &[hidden, inner])?;
        let bias = weights.tensor(&format!("{second}.bias"), &[hidden])?;
        let mut matrix = matrix.into_vec()?;
        let factors = balance(&matrix, inner);
        for row in matrix.chunks_exact_mut(inner) {
            for (weight, factor) in row.iter_mut().zip(&factors) {
                *weight /= factor;
            }
        }
        feeding.factors = Some(factors);
        let fed = Dense {
            weight: kernels.pack_into(region, &Solo, &[&matrix], inner)?,
            bias: Some(bias.into_vec()?),
            factors: None,
        };
        Ok((feeding, fed))
    }

    pub(super) fn bytes(&self) -> usize {
        let vectors = [&self.bias, &self.factors].into_iter().flatten();
        let vectors: usize = vectors.map(|vector| size_of_val(vector.as_slice())).sum();
        self.weight.bytes() + vectors
    }

    /// `out = activation(rows·Wᵀ + b)`; `rows` are `[rows][inputs]`, `out` is `[rows][outputs]`.
    pub(super) fn apply(
        &self,
        kernels: &Kernels,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        activation: Activation,
        out: &mut [f32],
    ) {
        kernels.linear(team, rows, &self.weight, self.epilogue(activation), out);
    }

    /// `out += rows·Wᵀ + b`, of the shapes of [`Dense::apply`].
    pub(super) fn add_to(
        &self,
        kernels: &Kernels,
        team: &dyn ForkJoin,
        rows: Operand<'_>,
        out: &mut [f32],
    ) {
        let epilogue = Epilogue {
            residual: true,
            ..self.epilogue(Activation::Identity)
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
            factors: self.factors.as_deref(),
            residual: false,
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
                factors: None,
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
        self.dense.apply(kernels, team, rows, self.activation, out);
    }
}
