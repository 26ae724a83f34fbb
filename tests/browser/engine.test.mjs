// What holds of the engine in a browser: the same bits as in Node.js, memory that stops growing, and an
// event loop that turns.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { folders, serve } from "../../examples/browser/serve.mjs";
import { corpus, queries } from "../bench/texts.mjs";
import { newerNode, withoutNewerNode } from "../newer-node.mjs";
import { modelPath, root, times } from "../node/support.mjs";
import { launch, onPage, skip } from "./chromium.mjs";

describe("the engine in Chromium", { skip }, () => {
  let browser;
  let server;
  let address;

  before(async () => {
    ({ server, address } = await serve({
      ...folders,
      "/": join(root, "tests/browser"),
      "/model/": modelPath,
      "/tiny/": join(root, "tests/fixtures/variants/mean-sqrt-cut"),
    }));
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });

  /** Runs a function in an empty page. */
  const inPage = (run, argument) =>
    onPage(browser, `${address}empty.html`, (page) => page.evaluate(run, argument));

  for (const [module, precision, node] of [
    ["wasm32", "f32", process.execPath],
    ["wasm32-relaxed", "i8", newerNode],
    ["wasm64", "f32", newerNode],
    ["wasm64", "i8", newerNode],
  ]) {
    const skip = node === newerNode && withoutNewerNode;
    test(
      `${module} computes in ${precision} the bits it computes in Node.js, near the addon's`,
      { skip },
      async () => {
        const texts = ["", "a red bicycle", ...queries().slice(0, 12), ...corpus(12)];
        const found = await inPage(
          async ({ module, precision, texts }) => {
            const { load, Model } = await import("/uform/dist/web/web.js");
            await load({ wasm: module });
            const model = await Model.open(new URL("/model/", location.href), { precision });
            const { fingerprint } = model.describe();
            return { fingerprint, data: Array.from((await model.encodeText(texts)).data) };
          },
          { module, precision, texts },
        );

        const there = spawnSync(node, [join(root, "tests/browser/vectors.mjs")], {
          encoding: "utf8",
          input: JSON.stringify({ module, precision, texts, folder: modelPath }),
          maxBuffer: 1 << 28,
          timeout: 280_000,
        });
        assert.equal(there.status, 0, there.stderr);
        assert.deepEqual(found, JSON.parse(there.stdout));

        const native = await import("../../dist/index.mjs");
        const reference = native.Model.loadRam(modelPath, { precision: "f32" });
        const expected = reference.encodeTextSync(texts);
        reference.free();
        const least = precision === "f32" ? 0.99999 : 0.995;
        for (const [row, text] of texts.entries()) {
          const vector = found.data.slice(
            row * expected.dimensions,
            (row + 1) * expected.dimensions,
          );
          const cosine = vector.reduce((sum, value, i) => sum + value * expected.row(row)[i], 0);
          assert.ok(cosine > least, `${text}: ${cosine}`);
        }
      },
    );
  }

  test("its memory stops growing", async () => {
    const { early, late } = await inPage(
      async (batches) => {
        const memories = [];
        const { instantiate, instantiateStreaming } = WebAssembly;
        const noted = (made) => {
          memories.push((made.instance ?? made).exports.memory);
          return made;
        };
        WebAssembly.instantiate = (...args) => instantiate(...args).then(noted);
        WebAssembly.instantiateStreaming = (...args) => instantiateStreaming(...args).then(noted);
        const { Model } = await import("/uform/dist/web/web.js");
        const model = await Model.open(new URL("/tiny/", location.href));
        const bytes = () => memories.reduce((sum, memory) => sum + memory.buffer.byteLength, 0);
        const embed = (i) =>
          model.encodeText(
            Array.from({ length: 1 + (i % 16) }, (_, j) => "blue seas ".repeat((i * j) % 50)),
          );
        for (let i = 0; i < 100; i++) await embed(i);
        const early = bytes();
        for (let i = 0; i < batches; i++) await embed(i);
        return { early, late: bytes() };
      },
      times(500, 20_000),
    );
    assert.ok(early > 0);
    assert.equal(late, early);
  });

  test("the event loop turns while it computes", async (context) => {
    const shares = await inPage(async (texts) => {
      const { Model } = await import("/uform/dist/web/web.js");
      const model = await Model.open(new URL("/model/", location.href));
      await model.encodeText(texts[0]);
      const runs = [];
      for (let run = 0; run < 3; run++) {
        const start = performance.now();
        let last = start;
        let longest = 0;
        let running = true;
        const turn = () => {
          const now = performance.now();
          longest = Math.max(longest, now - last);
          last = now;
          if (running) channel.port2.postMessage(0);
        };
        const channel = new MessageChannel();
        channel.port1.onmessage = turn;
        channel.port2.postMessage(0);
        await model.encodeText(texts);
        running = false;
        turn();
        runs.push({ longest, whole: performance.now() - start });
      }
      return runs;
    }, corpus(16));
    const longest = Math.min(...shares.map(({ longest }) => longest));
    context.diagnostic(`the longest of the event loop's tasks took ${longest.toFixed(0)} ms`);
    // In proportion, since a busy machine makes everything longer: one task would be the whole.
    const share = Math.min(...shares.map(({ longest, whole }) => longest / whole));
    assert.ok(share < 0.5, JSON.stringify(shares));
  });
});
