// The event loop keeps turning whatever is computed. The bound is generous: these machines are shared.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { test } from "node:test";
import { Executor, Model } from "uform";
import { modelPath, root } from "./support.mjs";

const { gather, sourceOption } = createRequire(import.meta.url)(`${root}dist/source.js`);

/** The 99th percentile of the loop's delay while `work` goes on, in milliseconds. */
async function delayDuring(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  await work();
  delay.disable();
  return delay.percentile(99) / 1e6;
}

test("while a model opens and texts are embedded", async () => {
  const executor = Executor.forRam();
  let model;
  const opening = await delayDuring(async () => (model = await Model.open(modelPath)));
  assert.ok(opening < 100, `${opening} ms while opening`);
  const texts = Array.from({ length: 300 }, (_, index) => `a text of some length, number ${index}`);
  for (const options of [{ executor }, {}]) {
    const embedding = await delayDuring(() => model.encodeText(texts, options));
    assert.ok(embedding < 100, `${embedding} ms while embedding`);
  }
  model.free();
  executor.free();
});

test("while more is embedded than libuv has threads, files are read", async () => {
  const model = await Model.open(modelPath);
  const executors = Array.from({ length: 6 }, () => Executor.forRam({ threads: 1 }));
  const controller = new AbortController();
  const texts = Array.from({ length: 2000 }, (_, index) => `a text ${index}`);
  const calls = executors.map((executor) =>
    model.encodeText(texts, { executor, signal: controller.signal }),
  );
  const ended = Promise.allSettled(calls);
  let running = true;
  ended.then(() => (running = false));
  for (let read = 0; read < 20; read++) await readFile(new URL(import.meta.url));
  assert.ok(running, "the files were read beside the calls");
  controller.abort();
  await ended;
  model.free();
  for (const executor of executors) executor.free();
});

test("while files are copied, however they are given", async () => {
  const bytes = new Uint8Array(24 << 20);
  const whole = () =>
    new ReadableStream({ start: (stream) => (stream.enqueue(bytes), stream.close()) });
  const parts = () =>
    new ReadableStream({
      start: (stream) => {
        for (let at = 0; at < bytes.length; at += 1 << 16)
          stream.enqueue(bytes.subarray(at, at + (1 << 16)));
        stream.close();
      },
    });
  for (const [kind, file] of Object.entries({
    bytes: () => bytes,
    "a buffer": () => bytes.buffer,
    "a blob": () => new Blob([bytes]),
    "a stream of one chunk": whole,
    "a stream of many": parts,
  })) {
    // Three files at once: what is copied between two turns of the loop is that of them all.
    const names = ["a", "b", "c"];
    let [turns, ended, copied] = [0, false, 0];
    const copies = new Map();
    const turn = () => {
      turns++;
      if (!ended) setImmediate(turn);
    };
    // What copies is slow, so that only so many copies fit into a slice of the loop.
    const backend = {
      filesCreate: () => ({}),
      filesWanted: () => names.splice(0),
      filesBegin: () => {},
      filesAppend: (files, name, piece) => {
        copied += piece.length;
        copies.set(turns, (copies.get(turns) ?? 0) + 1);
        const start = performance.now();
        while (performance.now() - start < 3);
      },
    };
    turn();
    const files = sourceOption(Object.fromEntries(names.map((name) => [name, file()])));
    const { bytes: told } = await gather(backend, files, {}).finally(() => (ended = true));
    assert.equal(copied, 3 * bytes.length, kind);
    assert.equal(told, copied, kind);
    // A slice is eight milliseconds, or three copies; two may begin between two looks of this test.
    const most = Math.max(...copies.values());
    assert.ok(most <= 6, `${kind}: ${most} copies between two turns of the loop`);
    assert.ok([...copies.values()].reduce((sum, count) => sum + count) >= 72, kind);
  }
});
