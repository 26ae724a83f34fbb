// Calls on one executor: their order, their limits, their ends.

import { equal, fail, failure, fails, ok } from "./check.mjs";

/** More work than any test waits for: the test that submits it cancels it. */
const endless = Array.from(
  { length: 20_000 },
  (_, index) => `${index} ${"the sea is blue and the bicycle is red ".repeat(8)}`,
);

export function calls(test, { uform, base }) {
  const { ContendedError, DeferredLimitError, Executor, FreedError, Model, Mood } = uform;
  const source = new URL("fixtures/variants/cls-f16/", base);

  /** A test with an executor and a model of its own. */
  const testWith = (name, run, config = { threads: 2 }) =>
    test(name, async () => {
      await uform.load();
      const executor = Executor.forRam(config);
      const model = await Model.open(source, { executor });
      try {
        await run({ executor, model });
      } finally {
        model.free();
        executor.free();
      }
    });

  /** A call that runs until it is given up. */
  const occupy = ({ executor, model }) => {
    const controller = new AbortController();
    const call = model.encodeText(endless, { executor, signal: controller.signal });
    const ended = failure(call);
    return {
      release: async () => {
        controller.abort();
        equal((await ended).name, "AbortError");
        await executor.drainAsync();
      },
    };
  };

  testWith("deferred calls end in the order of their submission", async ({ executor, model }) => {
    const order = [];
    const calls = Array.from({ length: 50 }, (_, index) =>
      model.encodeText([`text ${index}`], { executor }).then(() => order.push(index)),
    );
    await Promise.all(calls);
    equal(order, [...calls.keys()]);
  });

  testWith("calls of one text get what one call of all texts gets", async ({ executor, model }) => {
    const texts = Array.from({ length: 100 }, (_, index) => `${index} red seas`.repeat(1 + index));
    const one = await model.encodeText(texts, { executor });
    const many = await Promise.all(texts.map((text) => model.encodeText(text, { executor })));
    for (const [index, found] of many.entries()) {
      equal(found.data, one.row(index), `text ${index}`);
      equal([...found.tokens, ...found.truncated], [one.tokens[index], one.truncated[index]]);
      equal(model.encodeTextSync(texts[index], { executor }).data, found.data, `text ${index}`);
    }
  });

  testWith("long texts get the same deferred and at once", async ({ executor, model }) => {
    // What comes in pieces may be cut within a character of two units, or between texts.
    const long = [0, 1, 2].map((units) => "x".repeat(units) + "𝐀 ".repeat(60_000));
    const short = Array.from({ length: 5000 }, (_, index) => `${index}`.repeat(index % 4));
    for (const texts of [long, [...short, "\ud800", ...long, ""], ["sea ".repeat(100_000)]]) {
      const deferred = await model.encodeText(texts, { executor });
      const immediate = model.encodeTextSync(texts, { executor });
      equal([...deferred.tokens], [...immediate.tokens]);
      equal([...deferred.truncated], [...immediate.truncated]);
      ok(deferred.data.every((value, index) => value === immediate.data[index]));
    }
    equal((await model.encodeText(long, { executor })).tokens[0], 60_002);
  });

  testWith("an immediate call never waits for another one", async (own) => {
    const { executor, model } = own;
    const { release } = occupy(own);
    await fails(() => model.encodeTextSync("x", { executor }), ContendedError);
    // Also between two steps of the one that runs.
    await new Promise((resolve) => setTimeout(resolve, 20));
    await fails(() => model.encodeTextSync("x", { executor }), ContendedError);
    // Other executors are not concerned, the inline one included.
    equal(model.encodeTextSync("x").rows, 1);
    await release();
    equal(model.encodeTextSync("x", { executor }).rows, 1);
  });

  testWith(
    "one call more than the limit is refused, and nothing is lost",
    async (own) => {
      const { executor, model } = own;
      const { release } = occupy(own);
      const queued = [1, 2].map((text) => model.encodeText(`${text}`, { executor }));
      equal(executor.describe().outstanding, 3);
      await fails(model.encodeText("x", { executor }), DeferredLimitError, "3");
      await release();
      for (const found of await Promise.all(queued)) equal(found.rows, 1);
      equal((await model.encodeText("x", { executor })).rows, 1);
    },
    { threads: 1, deferredLimit: 3 },
  );

  testWith(
    "draining ends what was submitted; promises settle after",
    async ({ executor, model }) => {
      for (const mood of [Mood.Spinning, Mood.Parked, undefined]) {
        let settled = false;
        const call = model.encodeText(["a", "b"], { executor }).then(() => (settled = true));
        executor.drain(mood);
        ok(!settled, "settled within drain");
        equal(executor.describe().mood, mood ?? Mood.Parked);
        // Nothing holds the executor any more.
        equal(model.encodeTextSync("x", { executor }).rows, 1);
        await call;
        const calls = [1, 2, 3].map((text) => model.encodeText(`${text}`, { executor }));
        equal(await executor.drainAsync(mood), undefined);
        await Promise.all(calls);
      }
    },
  );

  testWith("draining ends a call in the middle of its steps", async ({ executor, model }) => {
    const call = model.encodeText(endless.slice(0, 300), { executor });
    await new Promise((resolve) => setTimeout(resolve, 5));
    executor.drain();
    equal(model.encodeTextSync("x", { executor }).rows, 1);
    equal((await call).rows, 300);
  });

  testWith("freeing an executor ends its calls first", async ({ executor, model }) => {
    const calls = [endless.slice(0, 300), "x", "y"].map((texts) =>
      model.encodeText(texts, { executor }),
    );
    await new Promise((resolve) => setTimeout(resolve, 5));
    executor.free();
    equal(
      (await Promise.all(calls)).map(({ rows }) => rows),
      [300, 1, 1],
    );
  });

  testWith("freeing a model ends its calls first", async ({ executor, model }) => {
    const calls = [endless.slice(0, 300), "x"].map((texts) =>
      model.encodeText(texts, { executor }),
    );
    await new Promise((resolve) => setTimeout(resolve, 5));
    model.free();
    const { module, outstanding } = executor.describe();
    // Threads may be about to take note of it.
    if (module !== null) equal(outstanding, 0);
    equal(
      (await Promise.all(calls)).map(({ rows }) => rows),
      [300, 1],
    );
  });

  testWith("a freed object is refused; freeing again is fine", async ({ executor, model }) => {
    model.free();
    model.free();
    await fails(() => model.encodeTextSync("x"), FreedError);
    await fails(model.encodeText("x"), FreedError);
    await fails(() => model.describe(), FreedError);
    const other = await Model.open(source, { executor });
    executor.free();
    executor.free();
    for (const work of [
      () => executor.drain(),
      () => executor.describe(),
      () => executor.drainAsync(),
      () => other.encodeText("x", { executor }),
      () => other.encodeTextSync("x", { executor }),
      () => Model.open(source, { executor }),
    ]) {
      await fails(work, FreedError);
    }
    equal(other.encodeTextSync("x").rows, 1);
    other.free();
  });

  testWith("an aborted signal submits nothing", async (own) => {
    const { executor, model } = own;
    const reason = { any: "value" };
    const signal = AbortSignal.abort(reason);
    equal(await failure(model.encodeText(endless, { executor, signal })), reason);
    equal(await failure(Model.open(source, { executor, signal })), reason);
    equal(executor.describe().outstanding, 0);
    equal(model.encodeTextSync("x", { executor }).rows, 1);
  });

  testWith("aborting a queued call leaves its neighbours alone", async (own) => {
    const { executor, model } = own;
    const { release } = occupy(own);
    const controller = new AbortController();
    const given = model.encodeText("given up", { executor, signal: controller.signal });
    const kept = model.encodeText("kept", { executor });
    controller.abort("why");
    equal(await failure(given), "why");
    await release();
    equal((await kept).rows, 1);
  });

  testWith("the loop turns while a call is computed", async ({ executor, model }) => {
    let [turns, ended] = [0, false];
    const call = model.encodeText(endless.slice(0, 2000), { executor });
    call.then(() => (ended = true));
    while (!ended) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      turns++;
    }
    ok(turns > 5, `${turns} turns`);
  });

  testWith("calls on two executors overlap", async ({ executor, model }) => {
    const other = Executor.forRam({ threads: 1 });
    const controller = new AbortController();
    const { signal } = controller;
    const long = failure(model.encodeText(endless, { executor, signal }));
    equal((await model.encodeText("x", { executor: other })).rows, 1);
    equal((await model.encodeText("x")).rows, 1);
    equal(executor.describe().outstanding, 1);
    controller.abort();
    equal((await long).name, "AbortError");
    other.free();
  });

  testWith("progress only grows, and ends at its total", async ({ executor, model }) => {
    const texts = endless.slice(0, 2000);
    const steps = [];
    const onProgress = (done, total) => steps.push([done, total]);
    await model.encodeText(texts, { executor, onProgress });
    equal(steps.at(-1), [texts.length, texts.length]);
    for (const [index, [done, total]] of steps.entries()) {
      equal(total, texts.length);
      ok(done > (steps[index - 1]?.[0] ?? 0), `step ${index} is ${done}`);
    }
  });

  testWith("a progress listener that throws gives the call up", async ({ executor, model }) => {
    const thrown = new Error("enough");
    const onProgress = () => {
      throw thrown;
    };
    for (const texts of [endless, ["one"]]) {
      equal(await failure(model.encodeText(texts, { executor, onProgress })), thrown);
    }
    await executor.drainAsync();
    equal(model.encodeTextSync("x", { executor }).rows, 1);
  });

  testWith("threads are as many as there are, and more may be asked for", async ({ executor }) => {
    const { kind, threads } = executor.describe();
    equal(kind, "ram");
    if (executor.describe().module === null) equal(threads, 2);
    else equal(threads, 1);
  });

  test("what needs threads says so where there are none", async () => {
    await uform.load();
    const executor = Executor.forRam();
    const { module } = executor.describe();
    executor.free();
    if (module === null) return;
    const { Mesh, ThreadPool, UnsupportedError } = uform;
    await fails(() => ThreadPool.spawn(), UnsupportedError, "ThreadPool.spawn", "no threads");
    await fails(() => Executor.onPool(64n), UnsupportedError, "Executor.onPool", "no threads");
    const driving = Executor.forRam();
    await fails(() => Mesh.bootstrap(driving), UnsupportedError, "Mesh.bootstrap", "no GPU");
    await fails(Mesh.join(driving), UnsupportedError, "Mesh.join", "no GPU");
    driving.free();
    await fails(() => Executor.forVram(), UnsupportedError, "Executor.forVram", "drives no GPU");
    if (typeof process === "undefined") {
      await fails(
        () => Model.loadRam("folder"),
        UnsupportedError,
        "Model.loadRam",
        "no file system",
      );
      await fails(Model.open("folder"), UnsupportedError, "Model.open", "base URL");
    }
    ok(!uform.capabilitiesCompiled().includes("threads") || fail("threads are not there"));
  });
}
