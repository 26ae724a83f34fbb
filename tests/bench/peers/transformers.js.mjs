// transformers.js' pipeline: `transformers.js.mjs MODEL THREADS DTYPE`.

import { basename, dirname } from "node:path";
import { env, pipeline } from "@huggingface/transformers";
import { serve } from "./serve.mjs";

const [path, threads, dtype] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = `${dirname(path)}/`;
const extract = await pipeline("feature-extraction", basename(path), {
  dtype,
  device: "cpu",
  session_options: { intraOpNumThreads: Number(threads) },
});

await serve({ "transformers.js": env.version }, async (texts) => {
  const output = await extract(texts, { pooling: "mean", normalize: true });
  const width = output.dims[1];
  const vectors = texts.map((_, row) => output.data.slice(row * width, (row + 1) * width));
  output.dispose();
  return vectors;
});
