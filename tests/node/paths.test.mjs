// Where a model lies, as users write it: paths, URLs, names of the hub, and options of other libraries.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Executor, InvalidArgumentError, Model, NotFoundError } from "uform";
import { failure, modelPath } from "./support.mjs";

const variant = fileURLToPath(new URL("../fixtures/variants/mean-sqrt-cut", import.meta.url));

test("a file: URL of a folder, or of its weights, is the path it stands for", async () => {
  const [expected] = vectors(Model.loadRam(variant));
  const folder = pathToFileURL(variant);
  const weights = new URL("mean-sqrt-cut/model.safetensors", folder);
  for (const url of [folder, folder.href, `${folder.href}/`, weights, weights.href]) {
    assert.deepEqual(vectors(Model.loadRam(url)), [expected]);
    assert.deepEqual(vectors(await Model.open(url)), [expected]);
  }
  const spaced = new URL("file:///no%20such/%66older");
  assert.throws(() => Model.loadRam(spaced), failure(NotFoundError, "/no such/folder"));
});

test("URLs that are no path of this machine are refused, with the way out", async () => {
  for (const [path, ...words] of [
    ["https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2", "new URL", "hf download"],
    ["http://localhost:8080/model/", "new URL", "hf download"],
    [new URL("https://example.org/model"), "new URL", "hf download"],
    ["file://elsewhere/model", "without a host's name"],
    ["file:///a%2Fb", "%2F"],
    ["file:///a%ff", "percent-encoded UTF-8"],
  ]) {
    assert.throws(() => Model.loadRam(path), failure(InvalidArgumentError, "`path`", ...words));
    if (path instanceof URL) continue;
    await assert.rejects(Model.open(path), failure(InvalidArgumentError, "`source`", ...words));
  }
});

test("the name of a model on the hub is told from a path", async () => {
  const name = "sentence-transformers/all-MiniLM-L6-v2";
  const told = failure(NotFoundError, name, `hf download ${name} --local-dir`);
  assert.throws(() => Model.loadRam(name), told);
  await assert.rejects(Model.open(name), told);
  const path = "./sentence-transformers/all-MiniLM-L6-v2";
  assert.throws(() => Model.loadRam(path), failure(NotFoundError, path));
});

test("options of other libraries are refused with what serves here", async () => {
  const executor = Executor.forRam({ threads: 1 });
  for (const [option, value, word] of [
    ["revision", "main", "--revision"],
    ["token", "hf_x", "hf download"],
    ["cacheDir", "/tmp", "folder"],
    ["dtype", "fp32", "`precision`"],
    ["quantized", true, '`precision: "i8"`'],
    ["device", "cpu", "`executor`"],
  ]) {
    const told = failure(InvalidArgumentError, `unknown option "${option}"`, word);
    assert.throws(() => Model.loadRam(modelPath, { [option]: value }), told);
    await assert.rejects(Model.open(modelPath, { executor, [option]: value }), told);
  }
  executor.free();
});

/** A text's vector by a model, which is freed. */
function vectors(model) {
  try {
    return [Array.from(model.encodeTextSync("a red bicycle").data)];
  } finally {
    model.free();
  }
}
