// Executors on borrowed ForkUnion pools, and the pools this package spawns to be borrowed.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import {
  ContendedError,
  Executor,
  FreedError,
  InvalidArgumentError,
  Model,
  Mood,
  ThreadPool,
} from "uform";
import { endless, failure, modelPath, times, turns } from "./support.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

const model = Model.loadRam(modelPath);
after(() => model.free());

/** How many threads of this process have that name. */
const threadsNamed = (name) =>
  readdirSync("/proc/self/task").filter((task) => {
    try {
      return readFileSync(`/proc/self/task/${task}/comm`, "utf8").trim() === name;
    } catch {
      return false;
    }
  }).length;

/** Runs the test with a pool and so many executors on it. */
async function withPool(config, count, run) {
  const pool = ThreadPool.spawn(config);
  const executors = Array.from({ length: count }, () => Executor.onPool(pool.address));
  try {
    await run(pool, ...executors);
  } finally {
    executors.forEach((executor) => executor.free());
    pool.free();
  }
}

/** A call that runs until it is given up. */
function occupy(executor) {
  const controller = new AbortController();
  const call = model.encodeText(endless, { executor, signal: controller.signal });
  const ended = assert.rejects(call, { name: "AbortError" });
  return { release: () => (controller.abort(), ended) };
}

test("vectors are those of our own threads, bit for bit", async () => {
  const texts = Array.from({ length: 30 }, (_, i) => `text ${i} ${"of some words ".repeat(i)}`);
  const own = Executor.forRam({ threads: 2 });
  const wanted = model.encodeTextSync(texts, { executor: own });
  own.free();
  for (const threads of [1, 2, 3]) {
    await withPool({ threads }, 1, async (pool, executor) => {
      assert.equal(pool.threads, threads);
      const found = [
        model.encodeTextSync(texts, { executor }),
        await model.encodeText(texts, { executor }),
      ];
      for (const { data, tokens } of found) {
        assert.deepEqual(data, wanted.data);
        assert.deepEqual(tokens, wanted.tokens);
      }
      const loaded = Model.loadRam(modelPath, { executor });
      assert.deepEqual(loaded.encodeTextSync(texts, { executor }).data, wanted.data);
      loaded.free();
    });
  }
});

test("a pool and its executor, both forgotten, kept their cores busy", async () => {
  const name = "forgotten-pair";
  for (const use of [() => {}, (executor) => model.encodeTextSync("x", { executor })]) {
    use(Executor.onPool(ThreadPool.spawn({ threads: 2, name }).address));
  }
  for (let round = 0; threadsNamed(name) > 0; round++) {
    assert.ok(round < 500, "threads of unused pools are left");
    collectGarbage();
    await turns();
  }
});

test("a pool larger than the machine is remarked on", async () => {
  const { usable } = Executor.forRam({ threads: 1 }).describe().counted;
  await withPool({ threads: usable + 1 }, 1, (_, executor) => {
    const { kind, remarks } = executor.describe();
    assert.equal(kind, "pool");
    assert.match(remarks.join("\n"), new RegExp(`keeps ${usable + 1} threads busy`));
  });
  await withPool({ threads: 1 }, 1, (_, executor) => {
    assert.equal(executor.describe().remarks.length, 1);
  });
});

test("two executors on one pool interleave a thousand calls", async () => {
  const words = Array.from({ length: 10 }, (_, index) => `number ${index}`);
  const wanted = words.map((text) => model.encodeTextSync(text).data);
  await withPool({ threads: 1 }, 2, async (_, ...executors) => {
    const order = [[], []];
    const call = async (index) => {
      const mine = index % 2;
      // Different options keep calls from being computed as one.
      const options = { executor: executors[mine], dimensions: 100 + ((index >> 1) % 200) };
      const found = await model.encodeText(words[index % words.length], options);
      assert.equal(found.dimensions, options.dimensions);
      order[mine].push(index);
    };
    await Promise.all(Array.from({ length: 1000 }, (_, index) => call(index)));
    for (const calls of order) {
      assert.equal(calls.length, 500);
      assert.deepEqual(
        calls,
        [...calls].sort((a, b) => a - b),
      );
    }
    const again = words.map((text, index) =>
      model.encodeText(text, { executor: executors[index % 2] }),
    );
    for (const [index, found] of (await Promise.all(again)).entries()) {
      assert.deepEqual(found.data, wanted[index]);
    }
  });
});

test("a worker's executor takes turns with the main thread's", async () => {
  await withPool({ threads: 1 }, 1, async (pool, executor) => {
    const code = `
      const { Executor, Model } = require("uform");
      const { parentPort, workerData } = require("node:worker_threads");
      const executor = Executor.onPool(workerData.address);
      const model = Model.loadRam(workerData.path);
      const calls = Array.from({ length: 100 }, (_, i) =>
        model.encodeText("text " + i, { executor, dimensions: 1 + i }));
      Promise.all(calls).then((found) => {
        model.free();
        executor.free();
        parentPort.postMessage(found.length);
      });
    `;
    const workerData = { address: pool.address, path: modelPath };
    const worker = new Worker(code, { eval: true, workerData, stdout: false });
    const told = new Promise((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
    });
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    const mine = Array.from({ length: 100 }, (_, index) =>
      model.encodeText(`text ${index}`, { executor, dimensions: 1 + index }),
    );
    assert.equal((await Promise.all(mine)).length, 100);
    assert.equal(await told, 100);
    assert.equal(await ended, 0);
  });
});

test("a pool whose worker has ended lives until its last borrower is freed", async () => {
  const code = `
    const { ThreadPool } = require("uform");
    const { parentPort } = require("node:worker_threads");
    const pool = ThreadPool.spawn({ threads: 2, name: "of-a-worker" });
    parentPort.postMessage(pool.address);
    setInterval(() => {}, 1000);
  `;
  const worker = new Worker(code, { eval: true });
  const address = await new Promise((resolve) => worker.once("message", resolve));
  const executor = Executor.onPool(address);
  const before = await model.encodeText("a red bicycle", { executor });
  await worker.terminate();
  assert.equal(threadsNamed("of-a-worker"), 2);
  const found = await model.encodeText("a red bicycle", { executor });
  assert.deepEqual(found.data, before.data);
  executor.free();
  assert.equal(threadsNamed("of-a-worker"), 0);
});

test("an immediate call on a pool that another executor uses is contended", async () => {
  await withPool({ threads: 1 }, 2, async (_, first, second) => {
    const { release } = occupy(first);
    await turns();
    assert.throws(
      () => model.encodeTextSync("x", { executor: second }),
      failure(ContendedError, "same pool"),
    );
    // A deferred one waits, and can be given up or drained.
    const abort = new AbortController();
    const given = model.encodeText("x", { executor: second, signal: abort.signal });
    const waiting = model.encodeText("y", { executor: second });
    abort.abort(new Error("on purpose"));
    await assert.rejects(given, { message: "on purpose" });
    await release();
    assert.equal((await waiting).rows, 1);
    await first.drainAsync();
    second.drain(Mood.Spinning);
    assert.equal(model.encodeTextSync("x", { executor: second }).rows, 1);
    assert.equal(model.encodeTextSync("x", { executor: first }).rows, 1);
  });
});

test("a pool is not freed under an executor, and is freed once", async () => {
  const pool = ThreadPool.spawn({ threads: 2, name: "freed" });
  const executor = Executor.onPool(pool.address);
  assert.throws(
    () => pool.free(),
    failure(InvalidArgumentError, "not freed (1)", "free them first"),
  );
  await assert.rejects(pool[Symbol.asyncDispose](), failure(InvalidArgumentError, "not freed (1)"));
  assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
  executor.free();
  assert.equal(threadsNamed("freed"), 2);
  pool.free();
  pool.free();
  pool[Symbol.dispose]();
  await pool[Symbol.asyncDispose]();
  assert.equal(threadsNamed("freed"), 0);
  assert.throws(() => pool.address, failure(FreedError, "spawn a new one"));
  assert.throws(() => pool.threads, failure(FreedError));
  assert.throws(() => model.encodeTextSync("x", { executor }), failure(FreedError));
});

test("what is forgotten is released, a pool after its executors", async () => {
  const until = async (condition) => {
    for (const start = performance.now(); !condition(); await turns()) {
      assert.ok(performance.now() - start < 10_000, "not within ten seconds");
      collectGarbage();
    }
  };
  // In functions of their own, whose frames remember none of them afterwards.
  (() => ThreadPool.spawn({ threads: 1, name: "forgotten" }))();
  await until(() => threadsNamed("forgotten") === 0);

  const borrow = () => Executor.onPool(ThreadPool.spawn({ threads: 2, name: "lent" }).address);
  const kept = borrow();
  for (let round = 0; round < 5; round++) {
    await turns();
    collectGarbage();
  }
  assert.equal(threadsNamed("lent"), 2);
  assert.equal((await model.encodeText("x", { executor: kept })).rows, 1);
  kept.free();
  assert.equal(threadsNamed("lent"), 0);

  const submit = () => model.encodeText(["a", "b"], { executor: borrow() });
  assert.equal((await submit()).rows, 2);
  await until(() => threadsNamed("lent") === 0);

  const pool = ThreadPool.spawn({ threads: 1 });
  (() => Executor.onPool(pool.address))();
  // The loan ends with the executor, whether or not it ever had a thread.
  await until(() => {
    try {
      pool.free();
      return true;
    } catch {
      return false;
    }
  });
});

test("the calling thread is left as it was", async () => {
  const portrait = () => {
    const read = (file) => readFileSync(`/proc/thread-self/${file}`, "utf8");
    const about = read("status").match(/^(Name|SigBlk|Cpus_allowed_list):.*$/gm);
    const fields = read("stat").split(") ")[1].split(" ");
    return [...about, ...[15, 16, 37, 38].map((at) => fields[at])];
  };
  const before = portrait();
  assert.equal(before.length, 7);
  await withPool({ threads: 2 }, 1, async (_, executor) => {
    assert.deepEqual(portrait(), before);
    model.encodeTextSync("x", { executor });
    await model.encodeText("x", { executor });
    assert.deepEqual(portrait(), before);
  });
  assert.deepEqual(portrait(), before);
});

test("pools and executors made and freed keep nothing", () => {
  const round = () => {
    const pool = ThreadPool.spawn({ threads: 1 });
    const executor = Executor.onPool(pool.address);
    model.encodeTextSync("a red bicycle", { executor });
    executor.free();
    pool.free();
  };
  const resident = () => {
    collectGarbage();
    return process.memoryUsage().rss / 1e6;
  };
  for (let warm = 0; warm < 10; warm++) round();
  const before = resident();
  const count = times(100, 300);
  for (let done = 0; done < count; done++) round();
  const grown = resident() - before;
  assert.ok(grown < 30, `${grown.toFixed(1)} MB more after ${count} rounds`);
});

test("a pool's handle stays in its environment", async () => {
  const pool = ThreadPool.spawn({ threads: 1 });
  assert.throws(() => structuredClone(pool), { name: "DataCloneError" });
  assert.equal(typeof pool.address, "bigint");
  pool.free();
});
