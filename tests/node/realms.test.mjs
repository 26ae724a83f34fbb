// Values from other realms, as test runners, iframes and `vm` make them: they are known by what they are.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import * as native from "uform";
import * as web from "uform/web";

const model = fileURLToPath(new URL("../fixtures/variants/cls-f16", import.meta.url));
const modules = new URL(".", import.meta.resolve("uform/web"));
const names = ["config.json", "tokenizer.json", "model.safetensors", "modules.json"];
const realm = createContext({});
const there = (source) => runInContext(source, realm);

/** The model's files as another realm's bytes. */
function files(kind) {
  const make = there(`(bytes) => ${kind}`);
  return Object.fromEntries(
    [...names, "1_Pooling/config.json"].map((name) => [
      name,
      make(readFileSync(join(model, name))),
    ]),
  );
}

for (const [build, { Executor, Model }] of Object.entries({ native, web })) {
  describe(`${build}: another realm's`, () => {
    for (const [called, kind] of [
      ["Uint8Array", "new Uint8Array(bytes)"],
      ["ArrayBuffer", "new Uint8Array(bytes).buffer"],
    ]) {
      test(`${called} was no bytes`, async () => {
        const found = await Model.open(files(kind));
        const named = await Model.open(model);
        const [one, other] = [await found.encodeText("a"), await named.encodeText("a")];
        assert.deepEqual(one.data, other.data);
        found.free();
        named.free();
      });
    }

    test("options are options, and their names are checked", () => {
      const executor = Executor.forRam(there("({ threads: 1 })"));
      assert.equal(executor.describe().threads, 1);
      executor.free();
      assert.throws(() => Executor.forRam(there("({ thread: 1 })")), /`threads`/);
    });

    test("what only says that it is bytes is none", async () => {
      const pretender = there(`({ [Symbol.toStringTag]: "Uint8Array" })`);
      await assert.rejects(Model.open({ "config.json": pretender }), /a Uint8Array, a Blob/);
    });
  });
}

test("a module of another realm was no module", async () => {
  const compile = there("(bytes) => new WebAssembly.Module(bytes)");
  const module = compile(readFileSync(new URL("wasm32.wasm", modules)));
  const other = await import(new URL("web.js?another", modules).href);
  await other.load({ wasm: module });
  assert.equal(other.Executor.forRam().describe().module, "wasm32");
});

test("a handle of another copy of the package was an object like any other", async () => {
  const require = createRequire(import.meta.url);
  delete require.cache[require.resolve("uform")];
  delete require.cache[join(require.resolve("uform"), "../uform.js")];
  const copy = require("uform");
  assert.notEqual(copy.Executor, native.Executor);
  const executor = copy.Executor.forRam({ threads: 1 });
  const text = native.Model.loadRam(model);
  const expected = { name: "InvalidArgumentError", message: /a handle of another copy of uform/ };
  assert.throws(() => text.encodeTextSync("a", { executor }), expected);
  assert.throws(() => text.encodeTextSync("a", executor), expected);
  text.free();
  executor.free();
});
