// Handles: they stay in their environment, and nothing they stand for is lost when forgotten.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { MessageChannel } from "node:worker_threads";
import { Executor, FreedError, Model, Mood } from "uform";
import { failure, modelPath, times, turns } from "./support.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

/** How many threads this process has. */
const threads = () => Number(/^Threads:\s+(\d+)/m.exec(readFileSync("/proc/self/status"))[1]);

async function until(condition, what) {
  for (const start = performance.now(); !condition(); await turns()) {
    assert.ok(performance.now() - start < 10_000, `not within ten seconds: ${what()}`);
    collectGarbage();
  }
}

test("a handle cannot be cloned or posted", () => {
  const executor = Executor.forRam({ threads: 1 });
  const model = Model.loadRam(modelPath);
  const { port1, port2 } = new MessageChannel();
  for (const handle of [executor, model, executor.compiled, model.compiled]) {
    assert.throws(() => structuredClone(handle), { name: "DataCloneError" });
    assert.throws(() => structuredClone({ within: [handle] }), { name: "DataCloneError" });
    assert.throws(() => port1.postMessage(handle), { name: "DataCloneError" });
  }
  port1.close();
  port2.close();
  model.free();
  executor.free();
});

test("disposal is freeing", async () => {
  const executor = Executor.forRam({ threads: 1 });
  const model = Model.loadRam(modelPath);
  model[Symbol.dispose]();
  executor[Symbol.dispose]();
  assert.throws(() => model.encodeTextSync("x"), failure(FreedError));
  assert.throws(() => executor.drain(), failure(FreedError));
  await model[Symbol.asyncDispose]();
  await executor[Symbol.asyncDispose]();
});

test("asynchronous disposal waits for what was submitted, and the loop turns", async () => {
  const executor = Executor.forRam({ threads: 1 });
  const model = Model.loadRam(modelPath);
  const texts = Array.from({ length: 100 }, (_, index) => `text ${index}`);
  for (const handle of [model, executor]) {
    let ended = false;
    let turned = false;
    if (handle === executor) executor.drainAsync(Mood.Spinning);
    const source = handle === model ? model : await Model.open(modelPath);
    const call = source.encodeText(texts, { executor }).then(() => (ended = true));
    // No timer: a quick machine has computed the call before one is due.
    setImmediate(() => (turned = true));
    await handle[Symbol.asyncDispose]();
    assert.ok(turned, "the loop turned");
    await turns(1);
    assert.ok(ended, "the call has ended");
    await call;
    source.free();
  }
});

test("forgotten executors end their threads", async () => {
  const before = threads();
  // In a function of its own, whose frame remembers none of them afterwards.
  const make = (round) => {
    const executor = Executor.forRam({ threads: 2 });
    if (round % 2) executor.drain(Mood.Spinning);
  };
  for (let round = 0; round < 20; round++) make(round);
  assert.ok(threads() >= before + 20, "they had threads");
  await until(() => threads() <= before, threads);
});

test("a forgotten executor still runs what was submitted", async () => {
  const model = Model.loadRam(modelPath);
  const before = threads();
  const submit = () => {
    const executor = Executor.forRam({ threads: 1 });
    return ["a", "b"].map((text) => model.encodeText(text, { executor }));
  };
  const calls = Array.from({ length: 5 }, submit).flat();
  collectGarbage();
  for (const found of await Promise.all(calls)) assert.equal(found.rows, 1);
  calls.length = 0;
  await until(() => threads() <= before, threads);
  model.free();
});

test("forgotten models are collected without being asked", async () => {
  Model.loadRam(modelPath).free();
  collectGarbage();
  const before = process.memoryUsage().rss;
  let most = 0;
  for (let round = 0; round < times(12, 300); round++) {
    // Its tables and buffers are real memory, whatever the files' pages are.
    Model.loadRam(modelPath).encodeTextSync("x");
    await turns();
    most = Math.max(most, process.memoryUsage().rss - before);
  }
  assert.ok(most < 600e6, `${Math.round(most / 1e6)} MB were kept`);
});

/**
 * How fast resident memory grows, in bytes a round: the slope of the line that fits best what was
 * read in the second half of the rounds. In the first half, buffers and heaps find their size.
 */
async function slope(rounds, work) {
  const every = Math.ceil(rounds / 100);
  const points = [];
  for (let round = 0; round < rounds; round++) {
    await work(round);
    if (round < rounds / 2 || round % every) continue;
    collectGarbage();
    points.push([round, process.memoryUsage.rss()]);
  }
  const mean = (axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const around = points.map(([round, bytes]) => [round - x, bytes - y]);
  const sum = (term) => around.reduce((sum, point) => sum + term(point), 0);
  return sum(([dx, dy]) => dx * dy) / sum(([dx]) => dx * dx);
}

/** A few rounds see a leak of megabytes, many see one of bytes: `most` is for few and for many. */
async function keepsNothing(t, counts, most, work) {
  const rounds = times(...counts);
  const grown = await slope(rounds, work);
  t.diagnostic(`${Math.round(grown)} bytes a round, over ${rounds} rounds`);
  const allowed = times(...most);
  assert.ok(grown < allowed, `${Math.round(grown)} bytes a round were kept of ${rounds} rounds`);
}

test("calls of ever-changing lengths keep nothing", async (t) => {
  const executor = Executor.forRam({ threads: 2 });
  const model = Model.loadRam(modelPath, { executor });
  await keepsNothing(t, [400, 20_000], [100e3, 1e3], (round) => {
    const words = "word ".repeat((round * 7) % 130);
    return model.encodeText(Array(1 + (round % 3)).fill(words), { executor });
  });
  model.free();
  executor.free();
});

test("executors made and freed keep nothing", async (t) => {
  await keepsNothing(t, [60, 300], [100e3, 10e3], async (round) => {
    const executor = Executor.forRam({ threads: 1 + (round % 3) });
    if (round % 2) executor.drain(Mood.Spinning);
    if (round % 4 === 0) await executor.drainAsync();
    executor.free();
  });
});

test("executors and models made, used and freed keep nothing", async (t) => {
  await keepsNothing(t, [20, 300], [3e6, 100e3], () => {
    const executor = Executor.forRam({ threads: 2 });
    const model = Model.loadRam(modelPath, { executor });
    model.encodeTextSync("a red bicycle", { executor });
    model.free();
    executor.free();
  });
});
