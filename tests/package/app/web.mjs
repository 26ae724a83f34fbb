import { readFileSync } from "node:fs";
import { Executor, Model } from "uform/web";

const folder = process.argv[2];
const names = [
  "config.json",
  "config_sentence_transformers.json",
  "model.safetensors",
  "modules.json",
  "sentence_bert_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "1_Pooling/config.json",
];
const model = await Model.open(
  Object.fromEntries(names.map((name) => [name, readFileSync(`${folder}/${name}`)])),
);
const executor = Executor.forRam();
try {
  const found = await model.encodeText(["a red bicycle", "a bike painted red"], { executor });
  const cosine = found.row(0).reduce((sum, value, i) => sum + value * found.row(1)[i], 0);
  console.log(cosine > 0.8 ? "close" : `cosine ${cosine}`);
} finally {
  model.free();
  executor.free();
}
