//! A dense layer: `activation(x·Wᵀ + b)`, and the optional heads behind pooling.

use std::sync::Arc;

use crate::Result;
use crate::kernels::{
    Activation, Epilogue, ForkJoin, Kernels, Operand, Packed, Precision, Region, Solo, balance,
};
use crate::model::checkpoint::weights::Weights;
use crate::model::settings::modules::DenseSettings;

/// The weights of a dense layer, packed for one class.
pub(in crate::model) struct Dense {
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
    pub(in crate::model) fn read(
        weights: &Weights,
        memory: Memory<'_>,
        names: &[String],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self> {
        let mut bias = Vec::with_capacity(names.len() * outputs);
        for name in names {
            bias.extend_from_slice(&weights.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        Ok(Dense {
            weight: read_matrices(weights, memory, names, inputs, outputs)?,
            bias: Some(bias),
            factors: None,
        })
    }

    /// Reads two layers, the second of which takes what comes out of the first, `inner`
    /// numbers, and nothing else does. In i8 the weights of the second are balanced ([`balance`]),
    /// unless the file has them in i8, balanced before.
    pub(in crate::model) fn read_pair(
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
        let bias = weights.tensor(&format!("{second}.bias"), &[hidden])?;
        let name = format!("{second}.weight");
        let weight;
        (weight, feeding.factors) = match weights.quantized(&name, hidden, inner)? {
            Some(matrix) => (
                kernels.pack_quantized_into(region, &Solo, &[matrix.parts()], inner)?,
                matrix.balance().map(<[f32]>::to_vec),
            ),
            None => {
                let mut matrix = weights.tensor(&name, &[hidden, inner])?.into_vec()?;
                let factors = balanced(&mut matrix, inner);
                let weight = kernels.pack_into(region, &Solo, &[&matrix], inner)?;
                (weight, Some(factors))
            }
        };
        let fed = Dense {
            weight,
            bias: Some(bias.into_vec()?),
            factors: None,
        };
        Ok((feeding, fed))
    }

    pub(in crate::model) fn bytes(&self) -> usize {
        let vectors = [&self.bias, &self.factors].into_iter().flatten();
        let vectors: usize = vectors.map(|vector| size_of_val(vector.as_slice())).sum();
        self.weight.bytes() + vectors
    }

    /// `out = activation(rows·Wᵀ + b)`; `rows` are `[rows][inputs]`, `out` is `[rows][outputs]`.
    pub(in crate::model) fn apply(
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
    pub(in crate::model) fn add_to(
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
    pub(in crate::model) fn apply_onward<'a>(
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

/// Divides a matrix, `[outputs][inputs]`, by the factors that balance it, which are returned.
pub(in crate::model) fn balanced(matrix: &mut [f32], inputs: usize) -> Vec<f32> {
    let factors = balance(matrix, inputs);
    for row in matrix.chunks_exact_mut(inputs) {
        for (weight, factor) in row.iter_mut().zip(&factors) {
            *weight /= factor;
        }
    }
    factors
}

/// Packs the matrices of layers over the same rows as one. What the files have in i8, kernels of i8 take
/// as it is; all else they are given as f32.
fn read_matrices(
    weights: &Weights,
    (kernels, region): Memory<'_>,
    layers: &[String],
    inputs: usize,
    outputs: usize,
) -> Result<Packed> {
    let names = layers.iter().map(|layer| format!("{layer}.weight"));
    if kernels.precision() == Precision::I8 {
        let matrices = names.clone();
        let matrices = matrices.map(|name| weights.quantized(&name, outputs, inputs));
        let matrices: Option<Vec<_>> = matrices.collect::<Result<_>>()?;
        // Nobody would multiply these layers' rows by a balance.
        let matrices = matrices.filter(|all| all.iter().all(|one| one.balance().is_none()));
        if let Some(matrices) = matrices {
            let parts: Vec<_> = matrices.iter().map(|matrix| matrix.parts()).collect();
            return kernels.pack_quantized_into(region, &Solo, &parts, inputs);
        }
    }
    let matrices = names.map(|name| weights.tensor(&name, &[outputs, inputs]));
    let matrices: Vec<_> = matrices.collect::<Result<_>>()?;
    let parts: Vec<&[f32]> = matrices.iter().map(|matrix| &**matrix).collect();
    kernels.pack_into(region, &Solo, &parts, inputs)
}

/// A `Dense` module of sentence-transformers, applied to the pooled vector. It computes in f32
/// whatever the encoder's precision: it sees one row a text.
pub(in crate::model) struct Head {
    dense: Dense,
    activation: Activation,
}

impl Head {
    pub(in crate::model) fn read(
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

    pub(in crate::model) fn outputs(&self) -> usize {
        self.dense.weight.outputs()
    }

    pub(in crate::model) fn bytes(&self) -> usize {
        self.dense.bytes()
    }

    /// `out = activation(vectors·Wᵀ + b)`; `vectors` is `[texts][inputs]`. The kernels are those
    /// the head was read for.
    pub(in crate::model) fn apply(
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
