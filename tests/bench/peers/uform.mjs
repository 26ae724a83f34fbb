// uform: `uform.mjs MODEL THREADS PRECISION`.

import { readFileSync } from "node:fs";
import { join } from "node:path";
// As built: by its name the package cannot be imported here, since the bench's own package.json hides it.
import { Executor, Model } from "../../../dist/index.mjs";
import { serve } from "./serve.mjs";

const [path, threads, precision] = process.argv.slice(2);
const executor = Executor.forRam({ threads: Number(threads) });
const model = Model.loadRam(path, { executor, precision });
const { version } = JSON.parse(
  readFileSync(new URL("../../../package.json", import.meta.url), "utf8"),
);

const { hidden_size, intermediate_size, num_hidden_layers } = JSON.parse(
  readFileSync(join(path, "config.json"), "utf8"),
);
/** Of the dense layers: what every text is multiplied by. */
const weights = num_hidden_layers * hidden_size * (4 * hidden_size + 2 * intermediate_size);
const weightBytes = weights * { f32: 4, bf16: 2, i8: 1 }[model.describe().precision];

const embed = async (texts) => {
  const embeddings = await model.encodeText(texts, { executor });
  return texts.map((_, row) => embeddings.row(row));
};
await serve({ uform: version }, embed, { weightBytes });
