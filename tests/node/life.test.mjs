// A process ends by itself, quietly, whatever of ours is alive in it: nobody disposes anything here.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { modelPath, root, times } from "./support.mjs";

const texts = `Array.from({ length: 4000 }, (_, i) => i + " the quick brown fox".repeat(10))`;
const prelude = `
  const { Executor, Model, Mood, ThreadPool } = require("uform");
  const { Worker, isMainThread, parentPort } = require("node:worker_threads");
  const path = ${JSON.stringify(modelPath)};
  const texts = ${texts};
  const soon = (what) => setTimeout(what, 60);
`;
const embed = `
  const model = Model.loadRam(path);
  const executor = Executor.forRam({ threads: 2 });
`;

/** What is alive when the end comes. */
const alive = {
  nothing: ``,
  "an idle model": `const model = Model.loadRam(path);`,
  "a parked executor": `Executor.forRam({ threads: 2 }).drain();`,
  "a spinning executor": `Executor.forRam({ threads: 2 }).drain(Mood.Spinning);`,
  "the inline executor": `Model.loadRam(path).encodeTextSync("x");`,
  "executors that worked": `${embed} model.encodeText("x", { executor }); model.encodeText("x");`,
  "a freed executor": `${embed} model.encodeText(["a"], { executor }); executor.free();`,
};
const stream = `${embed}
  async function* source() {
    for (;;) yield "x";
  }
  const stream = model.encodeTextStream(source(), { executor });
`;
Object.assign(alive, {
  "a stream that was left": `${stream} (async () => { for await (const _ of stream) break; })();`,
  "a stream that was forgotten": `${stream} stream.next();`,
});
const onPool = `
  const model = Model.loadRam(path);
  const pool = ThreadPool.spawn({ threads: 1 });
  const executor = Executor.onPool(pool.address);
`;
Object.assign(alive, {
  "a pool": `ThreadPool.spawn({ threads: 1 });`,
  "an executor on a pool": `${onPool} model.encodeText("x", { executor });`,
  "a spinning executor on a pool": `${onPool} executor.drain(Mood.Spinning);`,
  "a freed executor on a pool": `${onPool} model.encodeText("x", { executor }); executor.free();`,
  "a freed pool": `${onPool} model.encodeTextSync("x", { executor }); executor.free(); pool.free();`,
});
const callInFlight = `${embed} model.encodeText(texts, { executor }).catch(() => {});`;
const inlineInFlight = `Model.loadRam(path).encodeText(texts).catch(() => {});`;
const loadInFlight = `Model.open(path).catch(() => {});`;
const forgottenInFlight = `
  const model = Model.loadRam(path);
  (() => model.encodeText(texts, { executor: Executor.forRam({ threads: 1 }) }).catch(() => {}))();
  gc();
`;
const onPoolInFlight = `${onPool} model.encodeText(texts, { executor }).catch(() => {});`;
const onPoolsInFlight = `${onPoolInFlight}
  const other = Executor.onPool(pool.address);
  model.encodeText(texts, { executor: other }).catch(() => {});
`;
const endless = {
  "a call in flight": callInFlight,
  "a call in flight without an executor": inlineInFlight,
  "a load in flight": loadInFlight,
  "a call in flight on a pool": onPoolInFlight,
  "calls in flight on one pool": onPoolsInFlight,
  "a call in flight on a forgotten executor": forgottenInFlight,
};

/** Scripts, and what they print. All exit with code 0 and an empty stderr. */
const scripts = {
  "a call in flight keeps the process alive until it ends": [
    `${embed} model.encodeText(texts.slice(0, 50), { executor }).then((f) => console.log(f.rows));`,
    "50",
  ],
  "a drain in flight does so too": [
    `${embed} model.encodeText(texts.slice(0, 50), { executor });
     executor.drainAsync(Mood.Spinning).then(() => console.log("drained"));`,
    "drained",
  ],
  "an opening that waits for a stream does so too": [
    `const stream = new ReadableStream({ pull: () => new Promise(() => {}) });
     Model.open({ "config.json": stream });
     setTimeout(() => { console.log("waiting"); process.exit(); }, 100).unref();`,
    "waiting",
  ],
  "progress alone keeps nothing alive, and ends": [
    `${embed} const steps = [];
     model.encodeText("x", { executor, onProgress: (...step) => steps.push(step) })
       .then(() => console.log(JSON.stringify(steps)));`,
    "[[1,1]]",
  ],
};
for (const [name, code] of Object.entries(alive)) {
  scripts[`the end of a script with ${name}`] = [code, ""];
}
for (const [name, code] of Object.entries({ ...alive, ...endless })) {
  scripts[`process.exit with ${name}`] = [`${code} soon(() => process.exit());`, ""];
  scripts[`process.exit at once with ${name}`] = [`${code} process.exit();`, ""];
}

/**
 * A worker that runs the code; the main thread only uses the addon where told. `left` counts the
 * threads of ours: a worker that has ended may leave none.
 */
const worker = (code, inMain = "") => `
  ${inMain}
  const { readFileSync, readdirSync } = require("node:fs");
  const name = (thread) => readFileSync("/proc/self/task/" + thread + "/comm", "utf8");
  const left = () =>
    readdirSync("/proc/self/task").filter((thread) => name(thread).startsWith("uform")).length;
  const code = ${JSON.stringify(prelude + code)};
  const start = () => new Worker(code, { eval: true });
  const ended = (worker) => new Promise((resolve) => worker.once("exit", resolve));
`;
for (const [name, code] of Object.entries({ ...alive, ...endless })) {
  if (name in alive) {
    scripts[`a worker alone ends with ${name}, twice`] = [
      `${worker(code)} (async () => {
        for (const round of [1, 2]) console.log(await ended(start()), left());
      })();`,
      "0 0\n0 0",
    ];
  }
  scripts[`a worker alone is terminated with ${name}, and another follows`] = [
    `${worker(`${code} parentPort.postMessage("ready");`)} (async () => {
      for (const round of [1, 2]) {
        const worker = start();
        await new Promise((resolve) => worker.once("message", resolve));
        await new Promise(soon);
        await worker.terminate();
        console.log(left());
      }
    })();`,
    "0\n0",
  ];
  scripts[`a worker throws with ${name}`] = [
    `${worker(`${code} soon(() => { throw new Error("on purpose"); });`)}
    const failing = start();
    failing.on("error", (error) => console.log(error.message));
    failing.on("exit", () => console.log(left()));`,
    "on purpose\n0",
  ];
  scripts[`main and workers side by side with ${name}`] = [
    `${worker(`${code} soon(() => process.exit());`, `const mine = Model.loadRam(path);`)}
    (async () => {
      await Promise.all([ended(start()), ended(start())]);
      console.log((await mine.encodeText(["a", "b"])).rows);
    })();`,
    "2",
  ];
}

// The package once more under another path, with an addon of its own: another image in one process.
const copy = await mkdtemp(join(tmpdir(), "uform-"));
after(() => rm(copy, { recursive: true }));
await cp(join(root, "dist"), join(copy, "dist"), { recursive: true });
await cp(join(root, "npm/linux-x64-gnu"), join(copy, "node_modules/@uform/linux-x64-gnu"), {
  recursive: true,
});
const twice = `
  const again = require(${JSON.stringify(join(copy, "dist/index.js"))});
  const { readFileSync } = require("node:fs");
  const images = () =>
    new Set(readFileSync("/proc/self/maps", "utf8").match(/\\S+uform\\.node/g)).size;
  const use = async ({ Executor, Model, Mood }) => {
    const executor = Executor.forRam({ threads: 2 });
    const model = await Model.open(path, { executor });
    await executor.drainAsync(Mood.Spinning);
    return [model, executor, (await model.encodeText(["a", "b"], { executor })).rows];
  };
`;
const main = `
  const [[, mine, rows], [, theirs, others]] = await Promise.all([use(require("uform")), use(again)]);
  console.log(rows, others, images());
`;
scripts["the addon loaded twice, and nothing freed"] = [
  `${twice} (async () => { ${main} })();`,
  "2 2 2",
];
scripts["the addon loaded twice, and handles of the one given to the other"] = [
  `${twice} (async () => { ${main}
    for (const [model, executor] of [[again.Model.loadRam(path), mine], [Model.loadRam(path), theirs]])
      await model.encodeText("a", { executor }).catch((error) => console.log(error.name));
  })();`,
  "2 2 2\nInvalidArgumentError\nInvalidArgumentError",
];
scripts["the addon in the main thread and a copy of it in workers, one after the other"] = [
  `${twice} (async () => {
    const code = ${JSON.stringify(`${prelude}${twice}`)} +
      "use(again).then(([, , rows]) => require('node:worker_threads').parentPort.postMessage(rows))";
    const [, executor] = await use(require("uform"));
    for (const round of [1, 2]) {
      const worker = new Worker(code, { eval: true });
      worker.on("message", (rows) => console.log(rows));
      await new Promise((resolve) => worker.once("exit", resolve));
    }
    executor.drain();
    console.log((await Model.loadRam(path).encodeText("a", { executor })).rows);
  })();`,
  "2\n2\n1",
];

/** How a process that runs the script ends, and what it printed. */
async function run(script) {
  const child = spawn(process.execPath, ["--expose-gc", "-e", prelude + script], {
    cwd: root,
    timeout: 50_000,
  });
  const output = { stdout: "", stderr: "" };
  for (const name of Object.keys(output)) {
    child[name].setEncoding("utf8").on("data", (chunk) => (output[name] += chunk));
  }
  const [exit, signal] = await new Promise((resolve) =>
    child.on("close", (...how) => resolve(how)),
  );
  return { exit, signal, stdout: output.stdout.trim(), stderr: output.stderr };
}

/** The ends that are soaked: parked, spinning, in flight, never freed, terminated in the middle. */
const soaked = new Set([
  "the end of a script with a parked executor",
  "the end of a script with a spinning executor",
  "the end of a script with executors that worked",
  "process.exit with a call in flight",
  "a worker alone is terminated with a call in flight, and another follows",
]);
for (const name of soaked) assert.ok(name in scripts, name);

for (const [name, [code, printed]] of Object.entries(scripts)) {
  const rounds = times(1, soaked.has(name) ? 200 : 20);
  test(name, { timeout: 60_000 * rounds }, async () => {
    const expected = { exit: 0, signal: null, stdout: printed, stderr: "" };
    for (let round = 0; round < rounds; round++) assert.deepEqual(await run(code), expected);
  });
}
