// Texts of any source, embedded a batch at a time.

import { equal, fail, failure, fails, ok } from "./check.mjs";

/** The most texts that are read before their vectors are taken: two batches in flight, and one that is read. */
const AHEAD = 3 * 1024;

/** Numbers that look random, the same every time. */
function random(seed) {
  return (below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export function streams(test, { uform, base }) {
  const { DeferredLimitError, Executor, FreedError, InvalidArgumentError, Model, TextEmbeddings } =
    uform;
  const at = new URL("fixtures/variants/cls-f16/", base);

  const testWith = (name, run, config = { threads: 2 }) =>
    test(name, async () => {
      await uform.load();
      const executor = Executor.forRam(config);
      const model = await Model.open(at, { executor });
      try {
        await run({ executor, model });
        // A call that was given up may still be ending.
        await executor.drainAsync();
        equal(executor.describe().outstanding, 0, "calls outstanding");
      } finally {
        model.free();
        executor.free();
      }
    });

  /** A source that keeps account of itself. */
  class Source {
    read = 0;
    returned = 0;
    #texts;
    #pace;

    constructor(texts, pace) {
      this.#texts = texts;
      this.#pace = pace;
    }

    /** As an iterable, or an async one that may wait before each text. */
    open() {
      const next = () => {
        const index = this.read++;
        if (index === this.#texts.length) return { done: true, value: undefined };
        const text = this.#texts.at?.(index) ?? this.#texts.make(index);
        if (text instanceof Error) throw text;
        return { done: false, value: text };
      };
      const end = (value) => {
        this.returned++;
        return { done: true, value };
      };
      if (this.#pace === undefined) {
        return { [Symbol.iterator]: () => ({ next, return: end }) };
      }
      const later = async () => {
        await this.#pace(this.read);
        return next();
      };
      const iterator = { next: later, return: async (value) => end(value) };
      return { [Symbol.asyncIterator]: () => iterator };
    }
  }

  const endless = { length: Infinity, make: (index) => `text ${index}` };
  const paces = [undefined, async () => {}, (index) => (index % 64 === 0 ? pause(1) : undefined)];

  const collect = async (stream) => {
    const found = [];
    for await (const one of stream) found.push(one);
    return found;
  };

  testWith("rows together are those of one call, of any source", async ({ executor, model }) => {
    const next = random(7);
    const words = "a red blue bicycle the sea is how to search".split(" ");
    for (const count of [0, 1, 2, 1023, 1024, 1025, 3000]) {
      const texts = Array.from({ length: count }, () =>
        Array.from({ length: next(6) }, () => words[next(words.length)]).join(" "),
      );
      const whole = await model.encodeText(texts, { executor, dimensions: 5 });
      for (const [which, pace] of paces.entries()) {
        const source = new Source(texts, pace);
        const stream = model.encodeTextStream(source.open(), { executor, dimensions: 5 });
        const found = await collect(stream);
        const message = `${count} texts, source ${which}`;
        ok(
          found.every((one) => one instanceof TextEmbeddings && one.rows > 0),
          message,
        );
        ok(
          found.every((one) => one.rows <= 1024),
          message,
        );
        equal(
          found.flatMap((one) => [...one.data]),
          [...whole.data],
          message,
        );
        equal(
          found.flatMap((one) => [...one.tokens]),
          [...whole.tokens],
          message,
        );
        equal([source.read, source.returned], [count + 1, 0], message);
        equal(await stream.next(), { done: true, value: undefined });
      }
    }
  });

  testWith("a source of any kind is a source", async ({ executor, model }) => {
    const texts = ["a", "b"];
    async function* later() {
      yield* texts;
    }
    const stream = new ReadableStream({
      start(controller) {
        for (const text of texts) controller.enqueue(text);
        controller.close();
      },
    });
    const sources = [texts, new Set(texts), texts.values(), later()];
    // Where streams can be iterated over.
    if (stream[Symbol.asyncIterator]) sources.push(stream);
    const whole = await model.encodeText(texts, { executor });
    for (const source of sources) {
      const found = await collect(model.encodeTextStream(source, { executor }));
      equal(
        found.flatMap((one) => [...one.data]),
        [...whole.data],
      );
    }
    // Without an executor as well.
    equal((await collect(model.encodeTextStream(texts))).length, 1);
  });

  testWith("no more is read than is bounded, however slow the consumer", async (given) => {
    const { executor, model } = given;
    for (const pace of paces) {
      const source = new Source(endless, pace);
      let rows = 0;
      for await (const found of model.encodeTextStream(source.open(), { executor })) {
        rows += found.rows;
        await pause(5);
        ok(source.read - rows <= AHEAD, `${source.read} texts read, ${rows} taken`);
        if (rows > 6000) break;
      }
      const { read, returned } = source;
      equal(returned, 1, "the source was told");
      await pause(5);
      equal(source.returned, 1);
      // But for a text that was waited for.
      ok(source.read - read <= 1, `${source.read} texts are read, and not ${read}`);
    }
  });

  testWith("long texts fill a batch sooner", async ({ executor, model }) => {
    const texts = Array.from({ length: 20 }, () => "sea ".repeat(50_000));
    const found = await collect(model.encodeTextStream(texts, { executor }));
    equal(
      found.map((one) => one.rows),
      [6, 6, 6, 2],
    );
  });

  testWith("an idle executor does not wait for a batch to be full", async ({ executor, model }) => {
    let release;
    const held = new Promise((resolve) => (release = resolve));
    async function* source() {
      yield "first";
      await held;
      yield "second";
    }
    const stream = model.encodeTextStream(source(), { executor });
    equal((await stream.next()).value.rows, 1);
    release();
    equal((await stream.next()).value.rows, 1);
    ok((await stream.next()).done);
  });

  testWith("an error of the source comes after what it gave before", async (given) => {
    const { executor, model } = given;
    const broken = new Error("the disk is gone");
    for (const pace of paces) {
      for (const [before, thrown] of [
        [0, broken],
        [1500, broken],
        [0, 7],
        [2100, null],
      ]) {
        const texts = Array.from({ length: before }, (_, index) => `text ${index}`);
        const source = new Source([...texts, thrown ?? undefined, ...texts], pace);
        const stream = model.encodeTextStream(thrown === null ? withNull(texts) : source.open(), {
          executor,
        });
        let rows = 0;
        const error = await failure(async () => {
          for await (const found of stream) rows += found.rows;
        });
        equal(rows, before);
        if (thrown === broken) {
          ok(error === broken, "the error itself");
          equal(source.returned, 0);
        } else {
          ok(error instanceof InvalidArgumentError, String(error));
          ok(error.message.includes(`text ${before} of \`source\``), error.message);
          if (thrown !== null) equal(source.returned, 1);
        }
        ok((await stream.next()).done);
      }
    }

    function* withNull(texts) {
      yield* texts;
      yield null;
      fail("it was read on");
    }
  });

  testWith("an error of a call stops everything", async ({ executor, model }) => {
    const source = new Source(endless);
    const options = { executor, truncate: "error" };
    endless.make = (index) => (index === 2000 ? "sea ".repeat(1000) : `text ${index}`);
    const stream = model.encodeTextStream(source.open(), options);
    equal((await stream.next()).value.rows, 1024);
    await fails(() => stream.next(), InvalidArgumentError, "tokens");
    equal(source.returned, 1);
    ok((await stream.next()).done);
    endless.make = (index) => `text ${index}`;
  });

  testWith("closing ends calls in flight, and one that waits", async ({ executor, model }) => {
    for (const end of ["return", "throw"]) {
      const source = new Source(endless);
      const stream = model.encodeTextStream(source.open(), { executor });
      await stream.next();
      const reason = new Error("enough");
      if (end === "return") equal(await stream.return(), { done: true, value: undefined });
      else ok((await failure(() => stream.throw(reason))) === reason);
      equal(source.returned, 1);
      ok((await stream.next()).done);
    }

    // A source that never answers does not hold its stream.
    let returned = 0;
    const silent = {
      next: () => new Promise(() => {}),
      return: () => new Promise(() => returned++),
      [Symbol.asyncIterator]() {
        return this;
      },
    };
    const stream = model.encodeTextStream(silent, { executor });
    const waiting = stream.next();
    await pause(1);
    equal(await stream.return(), { done: true, value: undefined });
    equal(await waiting, { done: true, value: undefined });
    equal(returned, 1);

    // Nothing was begun of one that was not asked for anything.
    const untouched = new Source(endless);
    await model.encodeTextStream(untouched.open(), { executor }).return();
    equal([untouched.read, untouched.returned], [0, 0]);
  });

  testWith("a signal gives a stream up with its reason", async ({ executor, model }) => {
    const reason = new Error("changed my mind");
    for (const pace of paces) {
      const controller = new AbortController();
      const source = new Source(endless, pace);
      const stream = model.encodeTextStream(source.open(), { executor, signal: controller.signal });
      await stream.next();
      const waiting = failure(() => stream.next());
      controller.abort(reason);
      ok((await waiting) === reason);
      equal(source.returned, 1);
      ok((await stream.next()).done);
    }
    const source = new Source(endless);
    const signal = AbortSignal.abort(reason);
    const stream = model.encodeTextStream(source.open(), { executor, signal });
    ok((await failure(() => stream.next())) === reason);
    equal([source.read, source.returned], [0, 0], "nothing was read");
  });

  testWith(
    "an executor that takes one call at a time is enough",
    async ({ executor, model }) => {
      const texts = Array.from({ length: 5000 }, (_, index) => `text ${index}`);
      const found = await collect(model.encodeTextStream(texts, { executor }));
      equal(
        found.map((one) => one.rows),
        [1024, 1024, 1024, 1024, 904],
      );
      // Of others' calls it does not wait for the end.
      const other = model.encodeText(texts, { executor });
      const refused = model.encodeTextStream(["a"], { executor }).next();
      ok((await failure(refused)) instanceof DeferredLimitError);
      await other;
    },
    { threads: 1, deferredLimit: 1 },
  );

  testWith("what is no source is refused by name", async ({ executor, model }) => {
    const name = "model.encodeTextStream";
    for (const source of [undefined, null, "text", 7, {}, () => {}, { [Symbol.iterator]: 1 }]) {
      const call = () => model.encodeTextStream(source, { executor }).next();
      await fails(call, InvalidArgumentError, name, "`source`", "iterable of strings");
    }
    for (const [options, words] of [
      [{ onProgress: () => {} }, ["onProgress", "not known before the source ends"]],
      [{ batch: 7 }, ['"batch"']],
      [{ pooling: "avg" }, ["pooling", '"avg"']],
      [{ dimensions: 4000 }, ["dimensions", "4000"]],
    ]) {
      const stream = model.encodeTextStream(["a"], { executor, ...options });
      await fails(() => stream.next(), InvalidArgumentError, ...words);
    }
  });

  test("a freed model ends its streams", async () => {
    const model = await Model.open(at);
    const stream = model.encodeTextStream(new Source(endless).open());
    await stream.next();
    model.free();
    await fails(async () => {
      for (;;) if ((await stream.next()).done) return;
    }, FreedError);
    await fails(() => model.encodeTextStream(["a"]).next(), FreedError);
  });
}
