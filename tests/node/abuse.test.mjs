// What went wrong in a hard user's hands, each under the name of what happened.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  Executor,
  FreedError,
  InvalidArgumentError,
  Model,
  Mood,
  Status,
  ThreadPool,
  UformError,
} from "uform";
import { endless, failure, modelPath, root, turns } from "./support.mjs";

const executor = Executor.forRam({ threads: 1 });
const model = Model.loadRam(modelPath, { executor });
test.after(() => {
  model.free();
  executor.free();
});

test("one signal for many calls was reported as a leak of listeners", async () => {
  const warnings = [];
  const listen = (warning) => warnings.push(warning.message);
  process.on("warning", listen);
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 30 }, () => model.encodeText("x", { executor, signal })));
  await turns();
  process.off("warning", listen);
  assert.deepEqual(warnings, []);
});

test("one signal gives up all the calls it serves", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const calls = Array.from({ length: 20 }, () => model.encodeText(endless, { executor, signal }));
  controller.abort("enough");
  for (const call of await Promise.allSettled(calls)) assert.equal(call.reason, "enough");
  await executor.drainAsync();
});

test("a call with half a signal never settled", async () => {
  const signal = { aborted: false, addEventListener() {} };
  await assert.rejects(
    model.encodeText("x", { executor, signal }),
    failure(InvalidArgumentError, "signal", "an AbortSignal"),
  );
});

test("a verb without its model killed the process although its caller caught", async () => {
  const unhandled = [];
  const listen = (reason) => unhandled.push(reason);
  process.on("unhandledRejection", listen);
  const { encodeText, encodeTextSync } = model;
  const words = ["called without its model"];
  await assert.rejects(encodeText("x"), failure(InvalidArgumentError, ...words));
  await assert.rejects(
    new Proxy(model, {}).encodeText("x"),
    failure(InvalidArgumentError, ...words),
  );
  assert.throws(() => encodeTextSync("x"), failure(InvalidArgumentError, ...words));
  await turns();
  process.off("unhandledRejection", listen);
  assert.deepEqual(unhandled, []);
});

test("a method without its executor acted on the one of calls that name none", () => {
  const executor = Executor.forRam({ threads: 1 });
  const pool = ThreadPool.spawn({ threads: 1 });
  for (const [handle, kind] of [
    [executor, "executor"],
    [pool, "pool"],
    [model, "model"],
  ]) {
    for (const name of ["describe", "drain", "free"].filter((name) => name in handle)) {
      for (const other of [undefined, null, 1, {}, handle === pool ? model : pool]) {
        const words = [`${kind}.${name}`, `called without its ${kind}`];
        assert.throws(() => handle[name].call(other), failure(InvalidArgumentError, ...words));
      }
    }
  }
  assert.equal(executor.describe().mood, Mood.Parked);
  executor.free();
  pool.free();
});

test("a second disposal resolved before the first", async () => {
  const runner = Executor.forRam({ threads: 1 });
  const call = model.encodeText(["a", "b"], { executor: runner });
  let ended = false;
  call.then(() => (ended = true));
  runner[Symbol.asyncDispose]();
  await runner[Symbol.asyncDispose]();
  assert.ok(ended);
});

test("a disposal accepted calls and blocked on them", async () => {
  const runner = Executor.forRam({ threads: 1 });
  const first = model.encodeText(["a", "b"], { executor: runner });
  const disposed = runner[Symbol.asyncDispose]();
  await assert.rejects(model.encodeText("late", { executor: runner }), failure(FreedError));
  assert.throws(() => runner.drain(), failure(FreedError));
  await disposed;
  assert.equal((await first).rows, 2);
});

test("a disposal blocked on a call that was given up", async () => {
  const own = Model.loadRam(modelPath);
  const controller = new AbortController();
  const call = own.encodeText(endless, { executor, signal: controller.signal });
  await new Promise((resolve) => setTimeout(resolve, 30));
  controller.abort();
  await assert.rejects(call);
  const start = performance.now();
  let longest = 0;
  let last = start;
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await own[Symbol.asyncDispose]();
  clearInterval(timer);
  assert.ok(longest < 200, `the loop stood still for ${longest} ms`);
  await assert.rejects(own.encodeText("x"), failure(FreedError, "load it again"));
});

test("options of another kind were taken for options", async () => {
  const { signal } = new AbortController();
  for (const options of [new Map(), new Date(), Object(2), signal, executor, [], () => {}]) {
    await assert.rejects(
      model.encodeText("x", options),
      failure(InvalidArgumentError, "a plain object"),
    );
    assert.throws(() => Executor.forRam(options), failure(InvalidArgumentError, "a plain object"));
  }
  assert.throws(
    () => model.encodeTextSync("x", executor),
    failure(InvalidArgumentError, "{ executor }"),
  );
  assert.throws(() => Executor.forRam({ [Symbol("threads")]: 2 }), failure(InvalidArgumentError));
  const bare = Object.assign(Object.create(null), { threads: 1 });
  Executor.forRam(bare).free();
});

test("a forged executor ran its calls on another one", async () => {
  const forged = Object.create(Executor.prototype);
  assert.throws(
    () => model.encodeTextSync("x", { executor: forged }),
    failure(InvalidArgumentError),
  );
  assert.throws(() => (executor.compiled = null), TypeError);
});

test("the nearest option was another word altogether", () => {
  assert.throws(
    () => Executor.forRam({ thread: 2 }),
    failure(InvalidArgumentError, "nearest valid one is `threads`"),
  );
  assert.throws(
    () => model.encodeTextSync("x", { onProgress() {} }),
    failure(InvalidArgumentError, "encodeText takes it"),
  );
  assert.throws(
    () => Executor.forRam({ affinity: [0] }),
    (error) => !error.message.includes("nearest") && error.message.includes("affinity"),
  );
});

test("the last report of progress lost its caller's context", async () => {
  const storage = new AsyncLocalStorage();
  const seen = [];
  await storage.run("mine", () =>
    model.encodeText("x", { executor, onProgress: () => seen.push(storage.getStore()) }),
  );
  assert.deepEqual(seen, ["mine"]);
});

test("an asynchronous listener's failure went unhandled", async () => {
  const onProgress = async () => {
    throw new Error("on purpose");
  };
  await assert.rejects(model.encodeText("x", { executor, onProgress }), { message: "on purpose" });
});

test("an error of an unknown status could not be made", () => {
  assert.equal(new UformError(99, "x").code, "UFORM_INTERNAL");
  assert.equal(new UformError(Status.Io, "x").code, "UFORM_IO");
});

test("memory refused to the tokenizer ended the process", (t) => {
  // BERT's takes a text part by part, others as a whole.
  const folder = mkdtempSync(join(tmpdir(), "uform-abuse-"));
  t.after(() => rmSync(folder, { recursive: true }));
  cpSync(join(root, "tests/fixtures/variants/mean-sqrt-cut"), folder, { recursive: true });
  const file = join(folder, "tokenizer.json");
  const tokenizer = { ...JSON.parse(readFileSync(file)), pre_tokenizer: { type: "Whitespace" } };
  writeFileSync(file, JSON.stringify(tokenizer));
  const script = `
    const { Executor, Model } = require("uform");
    const model = Model.loadRam(${JSON.stringify(folder)});
    const text = "word ".repeat(4e7);
    model.encodeText(text, { executor: Executor.forRam({ threads: 1 }) }).catch((error) => {
      console.log(error.code, model.encodeTextSync("x").rows);
    });
  `;
  assert.equal(runWithin(2_500_000, script), "UFORM_OUT_OF_MEMORY 1\n");
});

test("memory refused for vectors ended the process", () => {
  const script = `
    const { Executor, Model, OutOfMemoryError } = require("uform");
    const model = Model.loadRam(${JSON.stringify(modelPath)});
    const texts = Array(2_000_000).fill("");
    try {
      model.encodeTextSync(texts);
    } catch (error) {
      console.log(error instanceof OutOfMemoryError, error.message);
    }
    model.encodeText(texts).catch((error) => {
      console.log(error.code, model.encodeTextSync("x").rows);
    });
  `;
  assert.match(
    runWithin(2_500_000, script),
    /^true .*3072000000 bytes.*\nUFORM_OUT_OF_MEMORY 1\n$/s,
  );
});

/** What a script prints that may use so many kilobytes of addresses, and ends well. */
function runWithin(kilobytes, script) {
  const command = `ulimit -v ${kilobytes}; exec "$0" -e "$1"`;
  const { status, stdout, stderr } = spawnSync("bash", ["-c", command, process.execPath, script], {
    cwd: root,
    encoding: "utf8",
  });
  assert.deepEqual({ status, stderr }, { status: 0, stderr: "" });
  return stdout;
}
