// Outside a browser: `files.mjs PACKAGE FOLDER TEXT` prints the vector as JSON. The model's files are read here; then
// the package finds them by itself.

import { readFile } from "node:fs/promises";
import { argv } from "node:process";

const [name, folder, text] = argv.slice(2);
const { Executor, load, Model } = await import(name);
const names = ["config.json", "tokenizer.json", "model.safetensors", "modules.json"];
const files = {};
for (const file of [...names, "1_Pooling/config.json"])
  files[file] = new Uint8Array(await readFile(`${folder}/${file}`));
await load();
const executor = Executor.forRam();
const model = await Model.open(files, { executor });
const { data } = await model.encodeText(text, { executor });
console.log(JSON.stringify({ vector: Array.from(data), module: executor.describe().module }));
const found = await Model.open(folder, { executor });
const same = await found.encodeText(text, { executor });
if (same.data.some((value, index) => value !== data[index])) throw new Error("by path it differs");
model.free();
found.free();
executor.free();
