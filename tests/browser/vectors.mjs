// What a module computes in whichever Node.js runs this, to compare with a page: reads
// `{ module, precision, texts, folder }`, writes `{ fingerprint, data }`.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load, Model } from "../../dist/web/web.js";

const names = [
  "1_Pooling/config.json",
  "config.json",
  "config_sentence_transformers.json",
  "model.safetensors",
  "modules.json",
  "sentence_bert_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
];

const { module, precision, texts, folder } = JSON.parse(readFileSync(0, "utf8"));
await load({ wasm: module });
const files = Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name))]));
const model = await Model.open(files, { precision });
const { fingerprint } = model.describe();
const { data } = model.encodeTextSync(texts);
console.log(JSON.stringify({ fingerprint, data: Array.from(data) }));
