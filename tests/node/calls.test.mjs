// Calls on one executor: their order, their limits, their ends.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { after, afterEach, beforeEach, test } from "node:test";
import {
  ContendedError,
  DeferredLimitError,
  Executor,
  FreedError,
  InvalidArgumentError,
  Model,
  Mood,
} from "uform";
import { endless, failure, modelPath, turns } from "./support.mjs";

const model = Model.loadRam(modelPath);
after(() => model.free());

let executor;
beforeEach(() => (executor = Executor.forRam({ threads: 2 })));
afterEach(() => executor.free());

/** A call that runs until it is given up. */
function occupy() {
  const controller = new AbortController();
  const { signal } = controller;
  const call = model.encodeText(endless, { executor, signal });
  const ended = assert.rejects(call, { name: "AbortError" });
  return { release: () => (controller.abort(), ended) };
}

test("deferred calls end in the order of their submission", async () => {
  const order = [];
  const calls = Array.from({ length: 50 }, (_, index) =>
    model.encodeText([`text ${index}`], { executor }).then(() => order.push(index)),
  );
  await Promise.all(calls);
  assert.deepEqual(order, [...calls.keys()]);
});

test("a thousand calls of one text get what one call of a thousand texts gets", async () => {
  const texts = Array.from({ length: 1000 }, (_, index) => `text number ${index} of a thousand`);
  const timed = async (work) => {
    const start = performance.now();
    return [await work(), performance.now() - start];
  };
  const [one, oneTook] = await timed(() => model.encodeText(texts, { executor }));
  const [many, manyTook] = await timed(() =>
    Promise.all(texts.map((text) => model.encodeText(text, { executor }))),
  );
  for (const [index, found] of many.entries()) {
    assert.deepEqual(found.data, one.row(index));
    assert.deepEqual([...found.tokens, ...found.truncated], [one.tokens[index], 0]);
  }
  // They come close to it. Shared machines are not held to that.
  assert.ok(manyTook < 10 * oneTook, `${manyTook} ms, and ${oneTook} ms in one call`);
});

test("calls that were computed together end on their own", async () => {
  const { release } = occupy();
  const controller = new AbortController();
  const { signal } = controller;
  const long = "word ".repeat(1000);
  const truncate = "error";
  const calls = Array.from({ length: 40 }, (_, index) => {
    if (index % 10 === 3) return model.encodeText("given up", { executor, signal, truncate });
    return model.encodeText(index % 10 === 7 ? long : `text ${index}`, { executor, truncate });
  });
  controller.abort();
  const ended = Promise.allSettled(calls);
  await release();
  for (const [index, { value, reason }] of (await ended).entries()) {
    if (index % 10 === 3) assert.equal(reason.name, "AbortError");
    else if (index % 10 === 7) failure(InvalidArgumentError, "text 0 has")(reason);
    else assert.deepEqual(value, model.encodeTextSync(`text ${index}`));
  }
});

test("an immediate call never waits for another one", async () => {
  const { release } = occupy();
  assert.throws(() => model.encodeTextSync("x", { executor }), failure(ContendedError));
  assert.throws(() => Model.loadRam(modelPath, { executor }), failure(ContendedError));
  // Other executors are not concerned, the inline one included.
  assert.equal(model.encodeTextSync("x").rows, 1);
  await release();
  await executor.drainAsync();
  assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
});

test("one call more than the limit is refused, and nothing is lost", async () => {
  executor.free();
  executor = Executor.forRam({ threads: 1, deferredLimit: 3 });
  const { release } = occupy();
  const queued = [1, 2].map((text) => model.encodeText(`${text}`, { executor }));
  await assert.rejects(model.encodeText("x", { executor }), failure(DeferredLimitError, "3"));
  await assert.rejects(Model.open(modelPath, { executor }), failure(DeferredLimitError, "3"));
  await release();
  for (const found of await Promise.all(queued)) assert.equal(found.rows, 1);
  assert.equal((await model.encodeText("x", { executor })).rows, 1);
});

test("a failed call leaves the executor usable", async () => {
  await assert.rejects(Model.open("/no/such/model", { executor }));
  assert.equal((await model.encodeText("x", { executor })).rows, 1);
});

test("draining waits for what was submitted; promises settle afterwards", async () => {
  for (const mood of [Mood.Spinning, Mood.Parked, undefined]) {
    let settled = false;
    const call = model.encodeText(["a", "b"], { executor }).then(() => (settled = true));
    executor.drain(mood);
    assert.equal(settled, false);
    // Nothing holds the executor any more.
    assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
    await call;
    const calls = [1, 2, 3].map((text) => model.encodeText(`${text}`, { executor }));
    let ended = 0;
    for (const call of calls) call.then(() => ended++);
    assert.equal(await executor.drainAsync(mood), undefined);
    await turns(1);
    assert.equal(ended, 3);
  }
});

test("freeing runs every deferred call first", async () => {
  const calls = [1, 2, 3].map((text) => model.encodeText(`${text}`, { executor }));
  executor.free();
  for (const found of await Promise.all(calls)) assert.equal(found.rows, 1);
});

test("a freed executor is refused everywhere, and freeing it again does nothing", async () => {
  executor.free();
  executor.free();
  assert.throws(() => executor.drain(), failure(FreedError));
  assert.throws(() => model.encodeTextSync("x", { executor }), failure(FreedError));
  assert.throws(() => Model.loadRam(modelPath, { executor }), failure(FreedError));
  await assert.rejects(executor.drainAsync(), failure(FreedError));
  await assert.rejects(model.encodeText("x", { executor }), failure(FreedError));
  await assert.rejects(Model.open(modelPath, { executor }), failure(FreedError));
});

test("a freed model is refused everywhere, and freeing it again does nothing", async () => {
  const model = await Model.open(modelPath, { executor });
  const call = model.encodeText("x", { executor });
  model.free();
  model.free();
  assert.equal((await call).rows, 1);
  assert.throws(() => model.encodeTextSync("x"), failure(FreedError));
  await assert.rejects(model.encodeText("x"), failure(FreedError));
  await assert.rejects(model.encodeText("x", { executor }), failure(FreedError));
});

test("an aborted signal submits nothing", async () => {
  const reason = { any: "value" };
  const signal = AbortSignal.abort(reason);
  const rejectsWithReason = (promise) =>
    promise.then(assert.fail, (thrown) => assert.equal(thrown, reason));
  await rejectsWithReason(model.encodeText(endless, { executor, signal }));
  await rejectsWithReason(Model.open(modelPath, { executor, signal }));
  assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
});

test("aborting a queued call leaves its neighbours alone", async () => {
  const { release } = occupy();
  const controller = new AbortController();
  const given = model.encodeText("given up", { executor, signal: controller.signal });
  const kept = model.encodeText("kept", { executor });
  controller.abort("why");
  await given.then(assert.fail, (thrown) => assert.equal(thrown, "why"));
  await release();
  assert.equal((await kept).rows, 1);
});

test("aborting a running call stops it", async () => {
  const { release } = occupy();
  await new Promise((resolve) => setTimeout(resolve, 50));
  const start = performance.now();
  await release();
  await executor.drainAsync();
  assert.ok(performance.now() - start < 5000, "stops between layers, not at the end");
});

test("an aborted load of a model leaves the executor usable", async () => {
  const controller = new AbortController();
  const opening = Model.open(modelPath, { executor, signal: controller.signal });
  setTimeout(() => controller.abort(), 1);
  await assert.rejects(opening, { name: "AbortError" });
  assert.equal((await model.encodeText("x", { executor })).rows, 1);
});

test("a signal that outlives its calls keeps nothing of them", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  for (let round = 0; round < 20; round++) await model.encodeText("x", { executor, signal });
  await assert.rejects(model.encodeText("x", { executor, signal, dimensions: 9999 }));
  assert.equal(getEventListeners(signal, "abort").length, 0);
});

test("progress ends at its total, and is given between", async () => {
  const texts = endless.slice(0, 400);
  const steps = [];
  const onProgress = (done, total) => steps.push([done, total]);
  await model.encodeText(texts, { executor, onProgress });
  assert.ok(steps.length >= 2, `${steps.length} steps`);
  assert.deepEqual(steps.at(-1), [texts.length, texts.length]);
  for (const [index, [done, total]] of steps.entries()) {
    assert.equal(total, texts.length);
    assert.ok(done > (steps[index - 1]?.[0] ?? 0), "it only grows");
  }

  const loaded = [];
  const opened = await Model.open(modelPath, { onProgress: (...step) => loaded.push(step) });
  opened.free();
  const [done, total] = loaded.at(-1);
  assert.ok(total > 0 && done === total);
});

test("a progress listener that throws gives the call up", async () => {
  const thrown = new Error("enough");
  const onProgress = () => {
    throw thrown;
  };
  for (const texts of [endless, ["one"]]) {
    const call = model.encodeText(texts, { executor, onProgress });
    await call.then(assert.fail, (error) => assert.equal(error, thrown));
  }
  await executor.drainAsync();
  assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
});

test("a progress listener may abort its own call", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const onProgress = () => controller.abort("seen enough");
  const call = model.encodeText(endless, { executor, signal, onProgress });
  await call.then(assert.fail, (reason) => assert.equal(reason, "seen enough"));
});

test("a signal ends the wait for the last progress, too", { timeout: 60_000 }, async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const onProgress = (done, total) => {
    if (done === total) setImmediate(() => controller.abort());
    return new Promise(() => {});
  };
  const call = model.encodeText("a", { executor, signal, onProgress });
  await assert.rejects(call, { name: "AbortError" });
});

test("a stream that sends nothing for ever leaves the event loop its turns", async () => {
  const config = new ReadableStream({ pull: (sender) => sender.enqueue(new Uint8Array()) });
  const controller = new AbortController();
  const { signal } = controller;
  setTimeout(() => controller.abort(), 20);
  const opening = Model.open({ "config.json": config }, { executor, signal });
  await assert.rejects(opening, { name: "AbortError" });
});

test("options and hints come from no prototype", async () => {
  const known = /unknown option "constructor"; it has no such option/;
  await assert.rejects(model.encodeText("a", { constructor: 1 }), { message: known });
  Object.prototype.normalize = "evil";
  try {
    assert.equal((await model.encodeText("a", { executor })).rows, 1);
  } finally {
    delete Object.prototype.normalize;
  }
});

test("a limit beyond 32 bits is a number in the description", () => {
  const patient = Executor.forRam({ threads: 1, deferredLimit: 2 ** 40 });
  assert.equal(patient.describe().deferredLimit, 2 ** 40);
  patient.free();
});
