// uform: `uform.mjs MODEL THREADS PRECISION`.

import { readFileSync } from "node:fs";
// As built: by its name the package cannot be imported here, since the bench's own package.json hides it.
import { Executor, Model } from "../../../dist/index.mjs";
import { serve } from "./serve.mjs";

const [path, threads, precision] = process.argv.slice(2);
const executor = Executor.forRam({ threads: Number(threads) });
const model = Model.loadRam(path, { executor, precision });
const { version } = JSON.parse(
  readFileSync(new URL("../../../package.json", import.meta.url), "utf8"),
);

await serve({ uform: version }, async (texts) => {
  const embeddings = await model.encodeText(texts, { executor });
  return texts.map((_, row) => embeddings.row(row));
});
