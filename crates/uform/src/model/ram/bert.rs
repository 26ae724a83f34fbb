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

use std::sync::Arc;

use super::dense::Dense;
use crate::Result;
use crate::executor::{Arena, pause};
use crate::kernels::{Activation, Embedding, ForkJoin, Kernels, Norm, Precision, Region};
use crate::model::architecture::bert::BertConfig;
use crate::model::checkpoint::weights::{Values, Weights};

/// The weights of a BERT encoder, packed for one class.
pub(in crate::model) struct Bert {
    config: BertConfig,
    kernels: &'static Kernels,
    embeddings: Embeddings,
    layers: Vec<Layer>,
}

/// The tables a token's vector is summed from. Only token type 0 is kept: a text
/// stands alone, never as the second of a pair.
pub(in crate::model) struct Embeddings {
    words: Vec<f32>,
    positions: Vec<f32>,
    kind: Vec<f32>,
    norm: LayerNorm,
}

pub(in crate::model) struct Layer {
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
pub(in crate::model) struct Batch<'a> {
    /// `[tokens]` vocabulary ids.
    pub(in crate::model) ids: &'a [u32],
    /// `[tokens]` places of the tokens in their texts.
    pub(in crate::model) positions: &'a [u32],
    /// Tokens of each text, in order; their sum is the number of ids.
    pub(in crate::model) lengths: &'a [usize],
}

impl Bert {
    pub(in crate::model) fn new(
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
    pub(in crate::model) fn hidden_size(&self) -> usize {
        self.config.hidden_size
    }

    /// Bytes of weights kept in memory.
    pub(in crate::model) fn bytes(&self) -> usize {
        self.embeddings.bytes() + self.layers.iter().map(Layer::bytes).sum::<usize>()
    }

    /// Runs the encoder over a batch, every step shared by the lanes of `team`.
    ///
    /// Returns the last layer's output, `[tokens][hidden]`, and `spare` floats
    /// for the caller, both in the arena's memory. Between layers it asks `check`
    /// whether to go on, and gives up with its error.
    pub(in crate::model) async fn forward<'a>(
        &self,
        team: &dyn ForkJoin,
        batch: &Batch<'_>,
        spare: usize,
        arena: &'a mut Arena,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(&'a [f32], &'a mut [f32])> {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let kernels = self.kernels;
        let tokens = batch.ids.len();
        let longest = batch.lengths.iter().copied().max().unwrap_or(0);
        // `wide` serves attention (Q, K, V and the context) and then the intermediate layer.
        let onward = kernels.onward_size(tokens, inner);
        let [states, wide, operand, scratch, spare] = arena.carve([
            tokens * hidden,
            (onward + kernels.operand_size(tokens, inner))
                .max(attended_size(kernels, tokens, hidden)),
            kernels.operand_size(tokens, hidden),
            kernels.attention_scratch(team.lanes(), longest, hidden / self.config.heads),
            spare,
        ])?;
        let mut step = Step {
            bert: self,
            team,
            lengths: batch.lengths,
            wide,
            operand,
            scratch,
        };
        step.embed(batch, states);
        for layer in &self.layers {
            check()?;
            step.attend(layer, states);
            pause().await;
            step.transform(layer, states);
            pause().await;
        }
        Ok((states, spare))
    }
}

/// Whether the weights of this name are the second layer of a pair that is balanced in i8.
#[cfg(feature = "native")]
pub(in crate::model) fn is_balanced(name: &str) -> bool {
    let layer = name.strip_suffix(".output.dense.weight");
    layer.is_some_and(|layer| layer.starts_with("encoder.") && !layer.ends_with(".attention"))
}

/// What the steps of a forward pass share: who runs them, and the memory they pass through.
/// `operand` holds the rows that the next dense layer multiplies, between two steps those of the
/// states.
struct Step<'a> {
    bert: &'a Bert,
    team: &'a dyn ForkJoin,
    lengths: &'a [usize],
    wide: &'a mut [f32],
    operand: &'a mut [f32],
    scratch: &'a mut [f32],
}

/// How many `f32` Q, K, V and the context take: in bf16 the context is the next layer's operand.
fn attended_size(kernels: &Kernels, tokens: usize, hidden: usize) -> usize {
    match kernels.precision() {
        Precision::Bf16 => kernels.operand_size(tokens, 3 * hidden),
        Precision::F32 | Precision::I8 => 4 * tokens * hidden,
    }
}

impl Step<'_> {
    /// The first states: what the tables have for each token.
    fn embed(&mut self, batch: &Batch<'_>, states: &mut [f32]) {
        let Embeddings {
            words,
            positions,
            kind,
            norm,
        } = &self.bert.embeddings;
        let tables = Embedding {
            words,
            places: positions,
            kind,
        };
        self.bert.kernels.embed(
            self.team,
            batch.ids,
            batch.positions,
            tables,
            norm.with(self.bert.config.layer_norm_eps),
            states,
            self.operand,
        );
    }

    /// Self-attention and its residual: `states = norm(states + output(attention(states)))`.
    fn attend(&mut self, layer: &Layer, states: &mut [f32]) {
        let BertConfig {
            hidden_size: hidden,
            heads,
            ..
        } = self.bert.config;
        let kernels = self.bert.kernels;
        let input = kernels.operand(states, self.operand, states.len() / hidden, hidden);
        let context = if kernels.precision() == Precision::Bf16 {
            let projected = layer.query_key_value.apply_onward(
                kernels,
                self.team,
                input,
                Activation::Identity,
                &mut [],
                self.wide,
            );
            kernels.attention_onward(
                self.team,
                projected,
                self.lengths,
                heads,
                self.scratch,
                self.operand,
            )
        } else {
            let (query_key_value, rest) = self.wide.split_at_mut(3 * states.len());
            let context = &mut rest[..states.len()];
            layer.query_key_value.apply(
                kernels,
                self.team,
                input,
                Activation::Identity,
                query_key_value,
            );
            kernels.attention(
                self.team,
                query_key_value,
                self.lengths,
                heads,
                self.scratch,
                context,
            );
            kernels.convert(self.team, context, hidden, self.operand)
        };
        layer
            .attention_output
            .add_to(kernels, self.team, context, states);
        self.norm(&layer.attention_norm, states);
    }

    /// The feed-forward half and its residual: `states = norm(states + output(act(intermediate(states))))`.
    fn transform(&mut self, layer: &Layer, states: &mut [f32]) {
        let BertConfig {
            hidden_size: hidden,
            intermediate_size: inner,
            activation,
            ..
        } = self.bert.config;
        let kernels = self.bert.kernels;
        let tokens = states.len() / hidden;
        let (out, space) = self.wide.split_at_mut(kernels.onward_size(tokens, inner));
        let input = kernels.operand(states, self.operand, tokens, hidden);
        let input = layer
            .intermediate
            .apply_onward(kernels, self.team, input, activation, out, space);
        layer.output.add_to(kernels, self.team, input, states);
        self.norm(&layer.output_norm, states);
    }

    fn norm(&mut self, norm: &LayerNorm, rows: &mut [f32]) {
        let norm = norm.with(self.bert.config.layer_norm_eps);
        self.bert
            .kernels
            .layer_norm(self.team, rows, norm, self.operand);
    }
}

impl Embeddings {
    /// Copies the tables out of the files.
    pub(in crate::model) async fn read(weights: &Weights, config: &BertConfig) -> Result<Self> {
        let hidden = config.hidden_size;
        let table = async |name: &str, rows: usize| {
            let name = format!("embeddings.{name}.weight");
            let table = weights.tensor_in_steps(&name, &[rows, hidden]).await?;
            table.into_vec()
        };
        let mut kind = table("token_type_embeddings", config.token_types).await?;
        kind.truncate(hidden);
        Ok(Embeddings {
            words: table("word_embeddings", config.vocabulary).await?,
            positions: table("position_embeddings", config.positions).await?,
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
    /// Bytes of a [`Region`] that the packed weights of all layers take.
    pub(in crate::model) fn packed_bytes(kernels: &Kernels, config: &BertConfig) -> usize {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let layer = kernels.packed_bytes(hidden, 3 * hidden)
            + kernels.packed_bytes(hidden, hidden)
            + kernels.packed_bytes(hidden, inner)
            + kernels.packed_bytes(inner, hidden);
        config.layers * layer
    }

    /// Reads the weights of layer `index` and packs them into the region. The three
    /// projections that read the same input become one matrix.
    pub(in crate::model) fn read(
        weights: &Weights,
        config: &BertConfig,
        memory: (&Kernels, &Arc<Region>),
        index: usize,
    ) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let projections =
            ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        let feed_forward = ["intermediate", "output"].map(|part| name(&format!("{part}.dense")));
        let (intermediate, output) =
            Dense::read_pair(weights, memory, feed_forward, hidden, inner)?;
        Ok(Layer {
            query_key_value: Dense::read(weights, memory, &projections, hidden, hidden)?,
            attention_output: Dense::read(
                weights,
                memory,
                &[name("attention.output.dense")],
                hidden,
                hidden,
            )?,
            attention_norm: LayerNorm::read(weights, &name("attention.output.LayerNorm"), hidden)?,
            intermediate,
            output,
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
