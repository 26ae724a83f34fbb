// llama.cpp through node-llama-cpp: `llama.mjs GGUF THREADS`. It computes one text at a time.

import { createRequire } from "node:module";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";
import { serve } from "../serve.mjs";

/** The model reads 256; two of them open and close a text. */
const WORD_LIMIT = 254;
const [path, threads] = process.argv.slice(2);
// stdout belongs to the protocol.
const logger = (_level, message) => process.stderr.write(`${message}\n`);
const llama = await getLlama({
  gpu: false,
  build: "never",
  maxThreads: Number(threads),
  logLevel: LlamaLogLevel.error,
  logger,
});
const model = await llama.loadModel({ modelPath: path });
const context = await model.createEmbeddingContext({
  contextSize: 512,
  batchSize: 512,
  threads: Number(threads),
});
const versions = {
  "node-llama-cpp": createRequire(import.meta.url)("./package.json").dependencies["node-llama-cpp"],
};

await serve(versions, (texts) => Promise.all(texts.map(embed)));

async function embed(text) {
  const { vector } = await context.getEmbeddingFor(model.tokenize(text).slice(0, WORD_LIMIT));
  const norm = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return vector.map((value) => value / norm);
}
