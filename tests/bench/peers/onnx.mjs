// A plain loop over a session of ONNX Runtime, whichever of its packages brings it.
// Tokenizes, pads to the longest text of the call, runs, averages, normalizes.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Tokenizer } from "@huggingface/tokenizers";
import { serve } from "./serve.mjs";

const TOKEN_LIMIT = 256;

/** Serves with the tokenizer of the model's folder and `session`, made with the package's `Tensor`. */
export async function serveSession(name, { Tensor }, path, session) {
  const settings = (file) => JSON.parse(readFileSync(join(path, file), "utf8"));
  const tokenizer = new Tokenizer(settings("tokenizer.json"), settings("tokenizer_config.json"));
  const require = createRequire(import.meta.url);
  const [folder] = require.resolve(name).split("/dist/");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));

  await serve({ [name]: version }, async (texts) => {
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
  });
}

/** The first 255 tokens and the closing one, as the model asks. */
function cut(ids) {
  return ids.length <= TOKEN_LIMIT ? ids : [...ids.slice(0, TOKEN_LIMIT - 1), ids.at(-1)];
}

function meanOf(hidden, firstToken, tokens) {
  const width = hidden.dims[2];
  const { data } = hidden;
  const mean = new Float32Array(width);
  for (let token = firstToken; token < firstToken + tokens; token++) {
    for (let i = 0; i < width; i++) mean[i] += data[token * width + i];
  }
  const norm = Math.sqrt(mean.reduce((sum, value) => sum + value * value, 0));
  return mean.map((value) => value / norm);
}
