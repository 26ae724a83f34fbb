// What a model says of itself.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Executor, FreedError, InvalidArgumentError, Model } from "uform";
import { failure, modelPath } from "./support.mjs";

const folder = mkdtempSync(join(tmpdir(), "uform-description-"));
test.after(() => rmSync(folder, { recursive: true }));

/** The model with other small files, as a folder; its description. */
function described(name, files = {}, options = {}) {
  const path = join(folder, name);
  cpSync(modelPath, path, { recursive: true, dereference: true });
  for (const [file, content] of Object.entries(files)) {
    writeFileSync(join(path, file), JSON.stringify(content));
  }
  const model = Model.loadRam(path, options);
  const description = model.describe();
  model.free();
  return description;
}

// That of some CPUs when none is asked for, on every one.
const precision = "f32";

test("a model describes itself in plain data of its own", () => {
  const model = Model.loadRam(modelPath, { precision });
  const found = model.describe();
  const { bytes, fingerprint, cpuClass, ...rest } = found;
  assert.deepEqual(rest, {
    architecture: "bert",
    parameters: 22_565_376,
    dimensions: 384,
    tokenLimit: 256,
    pooling: "mean",
    normalize: true,
    similarity: undefined,
    prompts: {},
    defaultPrompt: null,
    precision,
    refused: [],
    module: null,
    residency: "ram",
    gpuClass: null,
    devices: [],
  });
  // Two token types are in the files, and one is kept.
  assert.ok(bytes >= 4 * (found.parameters - 384) && bytes < 4.5 * found.parameters, `${bytes}`);
  assert.match(fingerprint, /^[0-9a-f]{32}$/);
  found.prompts.mine = "x";
  assert.deepEqual(model.describe(), { ...found, prompts: {} });
  assert.deepEqual({ ...JSON.parse(JSON.stringify(found)), similarity: undefined }, found);
  Executor.forRam({ cpuClass }).free();

  const { describe } = model;
  assert.throws(() => describe(), failure(InvalidArgumentError, "model.describe(…)"));
  model.free();
  assert.throws(() => model.describe(), failure(FreedError, "load it again"));
});

test("the fingerprint is the model's, whoever loads it from wherever", async () => {
  const model = Model.loadRam(modelPath, { precision });
  const { fingerprint } = model.describe();
  model.free();
  const options = { cpuClass: "serial", precision };
  const elsewhere = described("elsewhere", { "README.md": "new" }, options);
  assert.equal(elsewhere.fingerprint, fingerprint);
  assert.equal(elsewhere.cpuClass, "serial");
  const executor = Executor.forRam({ threads: 2 });
  const opened = await Model.open(modelPath, { executor, precision });
  assert.equal(opened.describe().fingerprint, fingerprint);
  opened.free();
  executor.free();

  const prompts = { query: "query: ", 7: "" };
  Object.defineProperty(prompts, "__proto__", { value: "p", enumerable: true });
  const other = described("other", {
    "config_sentence_transformers.json": { prompts, default_prompt_name: "query" },
    "sentence_bert_config.json": { max_seq_length: 64 },
    "modules.json": [
      { idx: 0, name: "0", path: "", type: "sentence_transformers.models.Transformer" },
    ],
  });
  assert.notEqual(other.fingerprint, fingerprint);
  const { pooling, normalize, defaultPrompt, tokenLimit } = other;
  assert.deepEqual([pooling, normalize, defaultPrompt, tokenLimit], [null, false, "query", 64]);
  assert.deepEqual(Object.entries(other.prompts).sort(), Object.entries(prompts).sort());
});
