// The event loop keeps turning whatever is computed. The bound is generous: these machines are shared.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { test } from "node:test";
import { Executor, Model } from "uform";
import { modelPath } from "./support.mjs";

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
