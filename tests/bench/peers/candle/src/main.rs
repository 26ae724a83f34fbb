//! BERT by candle with MKL, for the bench: `bench-candle MODEL`. Reads requests
//! and writes replies, a line of JSON each; `../serve.mjs` tells the protocol.

extern crate intel_mkl_src;

use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Error, Result};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use serde::Deserialize;
use serde_json::json;
use tokenizers::{PaddingParams, Tokenizer, TruncationParams};

/// The tokens sentence-transformers reads of a text.
const TOKEN_LIMIT: usize = 256;

#[derive(Deserialize)]
struct Request {
    calls: Vec<Vec<String>>,
    #[serde(default)]
    vectors: bool,
}

struct Encoder {
    model: BertModel,
    tokenizer: Tokenizer,
}

fn main() -> Result<()> {
    let folder = std::env::args()
        .nth(1)
        .context("usage: bench-candle MODEL")?;
    let encoder = Encoder::open(Path::new(&folder))?;
    say(&json!({ "versions": { "candle-transformers": "0.11.1" } }))?;
    for line in stdin().lock().lines() {
        say(&answer(&encoder, &serde_json::from_str(&line?)?)?)?;
    }
    Ok(())
}

fn answer(encoder: &Encoder, request: &Request) -> Result<serde_json::Value> {
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut vectors = Vec::new();
    for texts in &request.calls {
        let start = Instant::now();
        let rows = encoder.encode(texts)?;
        times.push(milliseconds(start));
        if request.vectors {
            vectors.extend(rows);
        }
    }
    let wall = milliseconds(begin);
    Ok(if request.vectors {
        json!({ "times": times, "wall": wall, "vectors": vectors })
    } else {
        json!({ "times": times, "wall": wall })
    })
}

impl Encoder {
    fn open(folder: &Path) -> Result<Self> {
        let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        let weights = [folder.join("model.safetensors")];
        // SAFETY: nobody changes the model's files while the bench runs.
        let weights =
            unsafe { VarBuilder::from_mmaped_safetensors(&weights, DType::F32, &Device::Cpu)? };
        let mut tokenizer =
            Tokenizer::from_file(folder.join("tokenizer.json")).map_err(Error::msg)?;
        let truncation = TruncationParams {
            max_length: TOKEN_LIMIT,
            ..Default::default()
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(Error::msg)?;
        // The default pads to the longest text of the call.
        tokenizer.with_padding(Some(PaddingParams::default()));
        Ok(Self {
            model: BertModel::load(weights, &config)?,
            tokenizer,
        })
    }

    /// A unit vector for each text: the mean over its tokens, normalized.
    fn encode(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let encodings = self
            .tokenizer
            .encode_batch(texts.to_vec(), true)
            .map_err(Error::msg)?;
        let shape = (encodings.len(), encodings[0].len());
        let gather = |of: fn(&tokenizers::Encoding) -> &[u32]| {
            let values: Vec<u32> = encodings.iter().flat_map(|row| of(row)).copied().collect();
            Tensor::from_vec(values, shape, &Device::Cpu)
        };
        let ids = gather(|row| row.get_ids())?;
        let mask = gather(|row| row.get_attention_mask())?;
        let hidden = self.model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(D::Minus1)?;
        // The norm takes the mean's divisor out again: the sum will do.
        let sum = hidden.broadcast_mul(&mask)?.sum(1)?;
        let norm = sum.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?;
        Ok(sum.broadcast_div(&norm)?.to_vec2()?)
    }
}

fn say(message: &serde_json::Value) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{message}")?;
    Ok(out.flush()?)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
