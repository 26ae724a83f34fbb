//! BERT: the encoder behind MiniLM, BGE, E5, GTE and their kin.
//!
//! Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers
//! for Language Understanding" (arXiv 1810.04805), in the layout of Hugging
//! Face's `BertModel`: post-norm layers, learned absolute positions, exact GELU unless
//! the configuration says otherwise. The pooler (a head for next-sentence
//! prediction) is not read: no sentence embedding uses it.
//!
//! A batch is ragged: the tokens of all texts laid end to end, without padding.
//! Dense layers see one matrix; attention sees each text by itself.

use super::config::BertConfig;
use super::dense::Dense;
use super::weights::{Values, Weights};
use crate::Result;
use crate::executor::Arena;
use crate::kernels::{Activation, Embedding, ForkJoin, Kernels, Norm};

/// The weights of a BERT encoder, packed for one class.
pub(super) struct Bert {
    config: BertConfig,
    kernels: &'static Kernels,
    embeddings: Embeddings,
    layers: Vec<Layer>,
}

/// The tables a token's vector is summed from. Only token type 0 is kept: a text
/// stands alone, never as the second of a pair.
pub(super) struct Embeddings {
    words: Vec<f32>,
    positions: Vec<f32>,
    kind: Vec<f32>,
    norm: LayerNorm,
}

pub(super) struct Layer {
    query_key_value: Dense,
    attention_output: Dense,
    attention_norm: LayerNorm,
    intermediate: Dense,
    output: Dense,
    output_norm: LayerNorm,
}

struct LayerNorm {
    gain: Vec<f32>,
    bias: Vec<f32>,
}

/// A ragged batch: the tokens of some texts, end to end.
pub(super) struct Batch<'a> {
    /// `[tokens]` vocabulary ids.
    pub(super) ids: &'a [u32],
    /// `[tokens]` places of the tokens in their texts.
    pub(super) positions: &'a [u32],
    /// Tokens of each text, in order; their sum is the number of ids.
    pub(super) lengths: &'a [usize],
}

impl Bert {
    pub(super) fn new(
        config: BertConfig,
        kernels: &'static Kernels,
        embeddings: Embeddings,
        layers: Vec<Layer>,
    ) -> Self {
        Bert {
            config,
            kernels,
            embeddings,
            layers,
        }
    }

    /// Length of a token's vector.
    pub(super) fn hidden_size(&self) -> usize {
        self.config.hidden_size
    }

    /// Bytes of weights kept in memory.
    pub(super) fn bytes(&self) -> usize {
        self.embeddings.bytes() + self.layers.iter().map(Layer::bytes).sum::<usize>()
    }

    /// Runs the encoder over a batch, every step shared by the lanes of `team`.
    ///
    /// Returns the last layer's output, `[tokens][hidden]`, and `spare` floats
    /// for the caller, both in the arena's memory. Between layers it asks `check`
    /// whether to go on, and gives up with its error.
    pub(super) fn forward<'a>(
        &self,
        team: &dyn ForkJoin,
        batch: &Batch<'_>,
        spare: usize,
        arena: &'a mut Arena,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<(&'a [f32], &'a mut [f32])> {
        let hidden = self.config.hidden_size;
        let head_size = hidden / self.config.heads;
        let tokens = batch.ids.len();
        let longest = batch.lengths.iter().copied().max().unwrap_or(0);
        // `wide` serves attention (Q, K, V and the context) and then the intermediate layer.
        let width = self.config.intermediate_size.max(4 * hidden);
        let scratch = self
            .kernels
            .attention_scratch(team.lanes(), longest, head_size);
        let [states, attended, wide, scratch, spare] = arena.carve([
            tokens * hidden,
            tokens * hidden,
            tokens * width,
            scratch,
            spare,
        ])?;

        let Embeddings {
            words,
            positions,
            kind,
            norm,
        } = &self.embeddings;
        let tables = Embedding {
            words,
            places: positions,
            kind,
        };
        let norm = norm.with(self.config.layer_norm_eps);
        self.kernels
            .embed(team, batch.ids, batch.positions, tables, norm, states);
        for layer in &self.layers {
            check()?;
            self.attend(team, layer, batch.lengths, states, attended, wide, scratch);
            self.transform(team, layer, attended, wide, states);
        }
        Ok((states, spare))
    }

    /// Self-attention and its residual: `attended = norm(states + output(attention(states)))`.
    #[allow(clippy::too_many_arguments)] // The buffers of one step, all carved in `forward`.
    fn attend(
        &self,
        team: &dyn ForkJoin,
        layer: &Layer,
        lengths: &[usize],
        states: &[f32],
        attended: &mut [f32],
        wide: &mut [f32],
        scratch: &mut [f32],
    ) {
        let (query_key_value, rest) = wide.split_at_mut(3 * states.len());
        let context = &mut rest[..states.len()];
        let heads = self.config.heads;
        self.dense(
            team,
            states,
            &layer.query_key_value,
            Activation::Identity,
            None,
            query_key_value,
        );
        self.kernels
            .attention(team, query_key_value, lengths, heads, scratch, context);
        self.dense(
            team,
            context,
            &layer.attention_output,
            Activation::Identity,
            Some(states),
            attended,
        );
        self.norm(team, &layer.attention_norm, attended);
    }

    /// The feed-forward half and its residual: `states = norm(attended + output(act(intermediate(attended))))`.
    fn transform(
        &self,
        team: &dyn ForkJoin,
        layer: &Layer,
        attended: &[f32],
        wide: &mut [f32],
        states: &mut [f32],
    ) {
        let tokens = attended.len() / self.config.hidden_size;
        let inner = &mut wide[..tokens * self.config.intermediate_size];
        self.dense(
            team,
            attended,
            &layer.intermediate,
            self.config.activation,
            None,
            inner,
        );
        self.dense(
            team,
            inner,
            &layer.output,
            Activation::Identity,
            Some(attended),
            states,
        );
        self.norm(team, &layer.output_norm, states);
    }

    fn dense(
        &self,
        team: &dyn ForkJoin,
        rows: &[f32],
        dense: &Dense,
        activation: Activation,
        residual: Option<&[f32]>,
        out: &mut [f32],
    ) {
        dense.apply(self.kernels, team, rows, activation, residual, out);
    }

    fn norm(&self, team: &dyn ForkJoin, norm: &LayerNorm, rows: &mut [f32]) {
        let norm = norm.with(self.config.layer_norm_eps);
        self.kernels.layer_norm(team, rows, norm);
    }
}

impl Embeddings {
    /// Copies the tables out of the files.
    pub(super) fn read(weights: &Weights, config: &BertConfig) -> Result<Self> {
        let hidden = config.hidden_size;
        let table = |name: &str, rows: usize| {
            let name = format!("embeddings.{name}.weight");
            weights.tensor(&name, &[rows, hidden])?.into_vec()
        };
        let mut kind = table("token_type_embeddings", config.token_types)?;
        kind.truncate(hidden);
        Ok(Embeddings {
            words: table("word_embeddings", config.vocabulary)?,
            positions: table("position_embeddings", config.positions)?,
            kind,
            norm: LayerNorm::read(weights, "embeddings.LayerNorm", hidden)?,
        })
    }

    fn bytes(&self) -> usize {
        let tables = [&self.words, &self.positions, &self.kind];
        tables
            .into_iter()
            .map(|table| size_of_val(table.as_slice()))
            .sum::<usize>()
            + self.norm.bytes()
    }
}

impl Layer {
    /// Reads and packs the weights of layer `index`. The three projections that
    /// read the same input become one matrix.
    pub(super) fn read(
        weights: &Weights,
        config: &BertConfig,
        kernels: &Kernels,
        index: usize,
    ) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let projections =
            ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(Layer {
            query_key_value: Dense::read(weights, kernels, &projections, hidden, hidden)?,
            attention_output: Dense::read(
                weights,
                kernels,
                &[name("attention.output.dense")],
                hidden,
                hidden,
            )?,
            attention_norm: LayerNorm::read(weights, &name("attention.output.LayerNorm"), hidden)?,
            intermediate: Dense::read(
                weights,
                kernels,
                &[name("intermediate.dense")],
                hidden,
                inner,
            )?,
            output: Dense::read(weights, kernels, &[name("output.dense")], inner, hidden)?,
            output_norm: LayerNorm::read(weights, &name("output.LayerNorm"), hidden)?,
        })
    }

    fn bytes(&self) -> usize {
        let dense = [
            &self.query_key_value,
            &self.attention_output,
            &self.intermediate,
            &self.output,
        ];
        dense.into_iter().map(Dense::bytes).sum::<usize>()
            + self.attention_norm.bytes()
            + self.output_norm.bytes()
    }
}

impl LayerNorm {
    fn read(weights: &Weights, name: &str, size: usize) -> Result<Self> {
        let vector = |part: &str| {
            let tensor = weights.tensor(&format!("{name}.{part}"), &[size]);
            tensor.and_then(Values::into_vec)
        };
        Ok(LayerNorm {
            gain: vector("weight")?,
            bias: vector("bias")?,
        })
    }

    fn with(&self, epsilon: f32) -> Norm<'_> {
        Norm {
            gain: &self.gain,
            bias: &self.bias,
            epsilon,
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(self.gain.as_slice()) + size_of_val(self.bias.as_slice())
    }
}
