// uform's WebAssembly, on the one thread it has: `uform-web.mjs MODEL PRECISION [MODULE]`. Without a
// module, the best for this engine.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { load, Model } from "../../../dist/web/web.js";
import { serve } from "./serve.mjs";

const [path, precision, module] = process.argv.slice(2);
const { version } = JSON.parse(
  readFileSync(new URL("../../../package.json", import.meta.url), "utf8"),
);
if (module !== undefined)
  await load({
    wasm: readFileSync(fileURLToPath(new URL(`../../../dist/web/${module}.wasm`, import.meta.url))),
  });
const model = await Model.open(path, { precision });

await serve({ uform: version }, async (texts) => {
  const embeddings = await model.encodeText(texts);
  return texts.map((_, row) => embeddings.row(row));
});
