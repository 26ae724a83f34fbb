// The tools under comparison. Each opens the same model and turns texts into
// unit vectors, one Float32Array a text; `policies` are the ways worth trying on a
// corpus of mixed lengths.

import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { model, onnx } from "./places.mjs";

const padding = ["one", "batches", "sorted"];

export const tools = {
  uform: { open: openUform, policies: ["one", "batches", "whole"] },
  "ort fp32": { open: (threads) => openOnnxruntime("model.onnx", threads), policies: padding },
  "ort q8": {
    open: (threads) => openOnnxruntime("model_quantized.onnx", threads),
    policies: padding,
  },
  "t.js fp32": { open: (threads) => openTransformers("fp32", threads), policies: padding },
  "t.js q8": { open: (threads) => openTransformers("q8", threads), policies: padding },
};

async function openUform(threads) {
  const { Executor, Model } = await import("./uform.mjs");
  const executor = Executor.forRam({ threads });
  const encoder = Model.loadRam(model, { executor });
  return async (texts) => {
    const embeddings = await encoder.encodeText(texts, { executor });
    return texts.map((_, row) => embeddings.row(row));
  };
}

/** A plain loop over a session: tokenize, pad to the longest of the batch, run, average, normalise. */
async function openOnnxruntime(file, threads) {
  const { InferenceSession, Tensor } = await import("onnxruntime-node");
  const { Tokenizer } = await import("@huggingface/tokenizers");
  const settings = (name) => JSON.parse(readFileSync(join(model, name), "utf8"));
  const tokenizer = new Tokenizer(settings("tokenizer.json"), settings("tokenizer_config.json"));
  const session = await InferenceSession.create(join(onnx, "onnx", file), {
    intraOpNumThreads: threads,
    graphOptimizationLevel: "all",
  });
  return async (texts) => {
    const rows = texts.map((text) => cut(tokenizer.encode(text).ids));
    const longest = Math.max(...rows.map((row) => row.length));
    const shape = [rows.length, longest];
    const ids = new BigInt64Array(rows.length * longest);
    const mask = new BigInt64Array(rows.length * longest);
    for (const [at, row] of rows.entries()) {
      for (const [place, id] of row.entries()) {
        ids[at * longest + place] = BigInt(id);
        mask[at * longest + place] = 1n;
      }
    }
    const { last_hidden_state: hidden } = await session.run({
      input_ids: new Tensor("int64", ids, shape),
      attention_mask: new Tensor("int64", mask, shape),
      token_type_ids: new Tensor("int64", new BigInt64Array(ids.length), shape),
    });
    const vectors = rows.map((row, at) => meanOf(hidden, at * longest, row.length));
    hidden.dispose();
    return vectors;
  };
}

/** The first 255 tokens and the closing one, as the model asks. */
function cut(ids) {
  return ids.length <= 256 ? ids : [...ids.slice(0, 255), ids.at(-1)];
}

function meanOf(hidden, firstToken, tokens) {
  const width = hidden.dims[2];
  const mean = new Float32Array(width);
  for (let token = firstToken; token < firstToken + tokens; token++) {
    for (let i = 0; i < width; i++) mean[i] += hidden.data[token * width + i];
  }
  const norm = Math.sqrt(mean.reduce((sum, value) => sum + value * value, 0));
  return mean.map((value) => value / norm);
}

async function openTransformers(dtype, threads) {
  const { env, pipeline } = await import("@huggingface/transformers");
  env.allowRemoteModels = false;
  env.localModelPath = `${dirname(onnx)}/`;
  const extract = await pipeline("feature-extraction", basename(onnx), {
    dtype,
    device: "cpu",
    session_options: { intraOpNumThreads: threads },
  });
  return async (texts) => {
    const output = await extract(texts, { pooling: "mean", normalize: true });
    const width = output.dims[1];
    const vectors = texts.map((_, row) => output.data.slice(row * width, (row + 1) * width));
    output.dispose();
    return vectors;
  };
}
