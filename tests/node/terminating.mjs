// A program for terminations.test.mjs: workers that are terminated while they use the package, side by side.
// Its arguments: how many workers in all, how many at a time, and a seed.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { serve } from "../shared/serve.mjs";

const large = fileURLToPath(new URL("../../models/all-MiniLM-L6-v2", import.meta.url));
const small = fileURLToPath(new URL("../fixtures/variants/mean-sqrt-cut", import.meta.url));

const native = () => import("uform");
const web = () => import("uform/web");
const texts = Array.from({ length: 400 }, (_, index) => `${index} the quick brown fox`.repeat(4));
const ready = () => parentPort.postMessage("ready");

/** Nothing here ends by itself. */
async function endlessly(step) {
  ready();
  for (;;) await step();
}

/** The files of the small model, as copies that may be taken. */
const names = isMainThread ? [] : readdirSync(small, { recursive: true });
const files = (wrap) =>
  Object.fromEntries(
    names
      .filter((name) => /json$|safetensors$/.test(name))
      .map((name) => [name, wrap(new Uint8Array(readFileSync(`${small}/${name}`)))]),
  );

/** What a worker does until it is terminated. */
const scenes = {
  async "opens a path"() {
    const { Model } = await native();
    await endlessly(async () => (await Model.open(large)).free());
  },
  async "opens several paths at once, and frees none"() {
    const { Executor, Model } = await native();
    const executor = Executor.forRam({ threads: 2 });
    await endlessly(() =>
      Promise.all([Model.open(large), Model.open(small, { executor }), Model.open(small)]),
    );
  },
  async "loads while it waits"() {
    const { Model } = await native();
    await endlessly(() => Model.loadRam(small));
  },
  async "opens buffers"() {
    const { Model } = await native();
    await endlessly(() => Model.open(files((bytes) => bytes.buffer)));
  },
  async "opens streams"() {
    const { Model } = await native();
    await endlessly(() => Model.open(files((bytes) => new Blob([bytes]).stream())));
  },
  async "opens a URL"(base) {
    const { Model } = await native();
    await endlessly(() => Model.open(new URL("fixtures/variants/mean-sqrt-cut", base)));
  },
  async "opens URLs in WebAssembly"(base) {
    const { Model } = await web();
    const places = ["fixtures/variants/mean-sqrt-cut", "model", "unsized/variants/mean-sqrt-cut"];
    await endlessly(() => Promise.all(places.map((place) => Model.open(new URL(place, base)))));
  },
  async "opens a stream that never ends"() {
    const { Model } = await native();
    ready();
    await Model.open({ "config.json": new ReadableStream({ pull: () => new Promise(() => {}) }) });
  },
  async encodes() {
    const { Executor, Model } = await native();
    const executor = Executor.forRam({ threads: 2 });
    const model = await Model.open(small);
    await endlessly(() => model.encodeText(texts, { executor, onProgress() {} }));
  },
  async "encodes while it waits"() {
    const { Model } = await native();
    const model = Model.loadRam(small);
    await endlessly(() => model.encodeTextSync(texts));
  },
  async "encodes, and reads no promise"() {
    const { Executor, Model } = await native();
    const executor = Executor.forRam({ threads: 1 });
    const model = Model.loadRam(large);
    ready();
    for (let call = 0; call < 50; call++) {
      model.encodeText(texts, { executor });
      model.encodeText(texts);
    }
    executor.drainAsync();
    setInterval(() => {}, 1000);
  },
  async "encodes on a pool"() {
    const { Executor, Model, ThreadPool } = await native();
    const pool = ThreadPool.spawn({ threads: 1 });
    const executors = [Executor.onPool(pool.address), Executor.onPool(pool.address)];
    const model = Model.loadRam(small);
    await endlessly(() =>
      Promise.all(executors.map((executor) => model.encodeText(texts, { executor }))),
    );
  },
  async "makes executors, and forgets some"() {
    const { Executor, Model, Mood } = await native();
    const model = Model.loadRam(small);
    await endlessly(async () => {
      const [kept, forgotten] = [1, 2].map((threads) => Executor.forRam({ threads }));
      forgotten.drain(Mood.Spinning);
      await Promise.all([kept, forgotten].map((executor) => model.encodeText("x", { executor })));
      kept.free();
    });
  },
  async "ends the worker by process.exit"() {
    const { Model } = await native();
    const model = Model.loadRam(small);
    ready();
    model.encodeText(texts);
    Model.open(large);
    setTimeout(() => process.exit(0), Math.random() * 30);
  },
  async "opens a path in WebAssembly"() {
    const { load, Model } = await web();
    await load();
    await endlessly(async () => (await Model.open(large)).free());
  },
  async "opens several paths at once in WebAssembly"() {
    const { Model } = await web();
    await endlessly(() => Promise.all([large, large, small].map((path) => Model.open(path))));
  },
  async "encodes in WebAssembly"() {
    const { load, Model } = await web();
    await load();
    const model = await Model.open(small);
    await endlessly(() => model.encodeText(texts));
  },
  async "opens a path twice, in the addon and in WebAssembly"() {
    const [one, other] = [await native(), await web()];
    await endlessly(async () => {
      const models = await Promise.all([one.Model.open(large), other.Model.open(large)]);
      for (const model of models) model.free();
    });
  },
};

/** Numbers from 0 up to 1 that a seed decides. */
function numbers(seed) {
  let state = seed | 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 8) / 2 ** 24;
  };
}

/** Threads of ours, by the names they have. */
const threads = () =>
  readdirSync("/proc/self/task")
    .map((thread) => `/proc/self/task/${thread}/comm`)
    .filter((file) => existsSync(file) && readFileSync(file, "utf8").startsWith("uform"));

async function main([count, lanes, seed]) {
  const random = numbers(Number(seed));
  const pick = (list) => list[Math.floor(random() * list.length)];
  // In half of all runs only workers use the addon, and the last of them closes it.
  const model = random() < 0.5 ? (await native()).Model.loadRam(small) : undefined;
  const vectors = () => model?.encodeTextSync(["a red bicycle", "the sea"]).data;
  const before = vectors();
  const { base, close } = await serve();

  /** A worker in the middle of a scene; `failed` is told when it fails. */
  async function begun(failed) {
    const scene = pick(Object.keys(scenes));
    const worker = new Worker(new URL(import.meta.url), { workerData: { scene, base } });
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    worker.on("error", (error) => failed(`a worker that ${scene}: ${error?.stack ?? error}`));
    if (random() < 0.85) {
      await Promise.race([new Promise((resolve) => worker.once("message", resolve)), ended]);
    }
    await delay(random() * random() * 80);
    return { worker, ended };
  }

  async function terminate() {
    const { worker, ended } = await begun(assert.fail);
    await worker.terminate();
    await ended;
  }

  let left = Number(count);
  const lane = async () => {
    while (left-- > 0) await terminate();
  };
  const together = (work) => Promise.all(Array.from({ length: Number(lanes) }, work));
  await together(lane);
  close();

  assert.deepEqual(vectors(), before);
  assert.deepEqual(threads(), []);
  process.stdout.write("sound");
  // The process ends with others in the middle, some of which find no server any more.
  await together(() => begun(() => {}));
  process.exit();
}

await (isMainThread ? main(process.argv.slice(2)) : scenes[workerData.scene](workerData.base));
