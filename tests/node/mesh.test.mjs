// Processes that find each other: each is a process with stand-ins for eight GPUs and for NCCL.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Executor, FreedError, Mesh, MultimemTier } from "uform";
import { inProcess, makeDrivers, node, nothingLeft } from "./fake-gpus.mjs";
import { root } from "./support.mjs";

const drivers = makeDrivers();
const small = join(drivers.folder, "small");
test.before(() => {
  const example = [
    "run",
    "--quiet",
    "-p",
    "uform",
    "--example",
    "tiny_model",
    "--",
    small,
    "small",
  ];
  const { status, stderr } = spawnSync("cargo", example, { cwd: root, encoding: "utf8" });
  assert.equal(status, 0, stderr);
});
test.after(() => drivers.remove());

const eight = { FAKE_CUDA_DEVICES: Array(8).fill("H200:9.0:132:1024").join(",") };
const run = (main, argument, env = eight) => inProcess(drivers.folder, env, main, argument);

/** A directory for processes to meet in, empty again in the end. */
async function meeting(body) {
  const directory = mkdtempSync(join(tmpdir(), "uform-mesh-"));
  try {
    await body(directory);
    assert.deepEqual(readdirSync(directory), []);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const ownDevices = (index) => [0, 1, 2, 3].map((device) => 4 * index + device);

test("two processes add up over all their devices, and the event loop turns meanwhile", () =>
  meeting(async (directory) => {
    async function member(uform, { index, directory, devices, folder }) {
      const executor = uform.Executor.forVram({ devices });
      if (index === 1) await new Promise((resolve) => setTimeout(resolve, 300));
      let turns = 0;
      const turning = setInterval(() => turns++, 1);
      const mesh = await uform.Mesh.join(executor, {
        hostDomainIndex: index,
        hostDomainCount: 2,
        directory,
        job: "job",
      });
      clearInterval(turning);
      const told = mesh.describe();
      const model = uform.Model.loadVram(folder, { executor });
      const colours = ["red", "blue", "green", "sea"];
      const texts = colours.map((word, at) => `${word} ${colours[(at + index + 1) % 4]}`);
      const vectors = await model.encodeText(texts, { executor });
      const before = [...(await vectors.toHost()).data];
      await mesh.allReduce(vectors);
      const after = [...(await vectors.toHost()).data];
      vectors.free();
      model.free();
      await mesh[Symbol.asyncDispose]?.();
      mesh.free();
      executor.free();
      return { turns, told, before, after, dimensions: vectors.dimensions };
    }
    const members = await Promise.all(
      [0, 1].map((index) =>
        run(member, { index, directory, devices: ownDevices(index), folder: small }),
      ),
    );
    const [first, second] = members.map(({ value }) => value);
    for (const [index, { told }] of [first, second].entries()) {
      const { multimemObstacle, reduction, ...rest } = told;
      assert.deepEqual(rest, {
        gpusPerHostDomain: 4,
        gpusPerMultimemDomain: 4,
        gpusPerColocatedDomain: 8,
        hostDomainIndex: index,
        firstGpuIndex: 4 * index,
        multimemTier: "peer-read",
        gpuClass: "nvidia-hopper",
        leftovers: null,
      });
      assert.match(multimemObstacle, /NCCL_ALGO/);
      assert.match(reduction, /several processes/);
    }
    // The first waits for the second, on no thread of JavaScript's.
    assert.ok(first.turns > 0);
    const rows = [...first.before, ...second.before];
    const sum = Array(first.dimensions).fill(0);
    rows.forEach((value, at) => (sum[at % sum.length] += value));
    assert.deepEqual(first.after, second.after);
    assert.equal(first.after.length, 4 * sum.length);
    first.after.forEach((found, at) => {
      assert.ok(Math.abs(found - sum[at % sum.length]) < 1e-5, `${found} at ${at}`);
    });
    members.forEach((member) => nothingLeft(member));
  }));

test("a run without peers needs no directory", async () => {
  const ended = await run(
    async (uform, { folder }) => {
      const failure = async (call) => {
        try {
          await call();
        } catch (error) {
          return [error.code, error.message];
        }
      };
      const executor = uform.Executor.forVram({ devices: [2, 5] });
      const mesh = uform.Mesh.bootstrap(executor);
      const told = mesh.describe();
      const model = uform.Model.loadVram(folder, { executor });
      const vectors = await model.encodeText(["red sea", "blue sea"], { executor });
      const before = await vectors.toHost();
      await mesh.allReduce(vectors);
      const after = await vectors.toHost();
      const exact = [...after.data].every((found, at) => {
        const own = at % before.dimensions;
        return found === Math.fround(before.row(0)[own] + before.row(1)[own]);
      });
      const uneven = await model.encodeText("red sea", { executor });
      const failures = [
        await failure(() => mesh.allReduce(uneven)),
        await failure(() => mesh.allReduce({})),
        await failure(() => mesh.allReduce.call({}, vectors)),
      ];
      uneven.free();
      vectors.free();
      failures.push(await failure(() => mesh.allReduce(vectors)));
      mesh.free();
      mesh.free();
      failures.push(
        await failure(() => mesh.describe()),
        await failure(() => mesh.allReduce(vectors)),
      );
      failures.push(await failure(() => structuredClone(mesh)));
      model.free();
      executor.free();
      failures.push(await failure(() => uform.Mesh.bootstrap(executor)));
      return { told, exact, failures, compiled: typeof mesh.compiled };
    },
    { folder: small },
  );
  nothingLeft(ended);
  const { told, exact, failures, compiled } = ended.value;
  assert.deepEqual(
    [told.gpusPerColocatedDomain, told.firstGpuIndex, told.multimemTier],
    [2, 0, MultimemTier.PeerRead],
  );
  assert.ok(exact);
  assert.equal(compiled, "object");
  const [uneven, nothing, detached, freedVectors, ...rest] = failures;
  assert.equal(uneven[0], "UFORM_INVALID_ARGUMENT");
  assert.match(uneven[1], /1 rows on device 2/);
  assert.match(nothing[1], /expected DeviceEmbeddings/);
  assert.match(detached[1], /called without its mesh/);
  assert.match(freedVectors[1], /vectors were freed/);
  const [described, reduced, cloned, bootstrapped] = rest;
  for (const [code] of [freedVectors, described, reduced, bootstrapped]) {
    assert.equal(code, "UFORM_FREED");
  }
  assert.ok(cloned);
});

test("whoever gives up leaves no file, and rejects with its reason", () =>
  meeting(async (directory) => {
    const { value } = await run(
      async ({ Executor, Mesh }, { directory }) => {
        const { readdirSync } = require("node:fs");
        const executor = Executor.forVram({ devices: [0] });
        const options = { hostDomainIndex: 0, hostDomainCount: 2, directory, job: "job" };
        const outcomes = [];
        const join = (signal) =>
          Mesh.join(executor, { ...options, signal }).catch((reason) => outcomes.push(reason));
        await join(AbortSignal.abort("before"));
        outcomes.push(readdirSync(directory).length);
        const control = new AbortController();
        const joining = join(control.signal);
        while (readdirSync(directory).length === 0) await new Promise(setImmediate);
        control.abort("meanwhile");
        await joining;
        while (readdirSync(directory).length > 0) await new Promise(setImmediate);
        executor.free();
        return outcomes;
      },
      { directory },
    );
    assert.deepEqual(value, ["before", 0, "meanwhile"]);
  }));

test("an environment that ends leaves the run it was joining", () =>
  meeting(async (directory) => {
    const join = ({ Executor, Mesh }, directory) => {
      const executor = Executor.forVram({ devices: [0] });
      Mesh.join(executor, { hostDomainIndex: 0, hostDomainCount: 2, directory, job: "job" });
    };
    async function main(join, directory) {
      const { readdirSync } = require("node:fs");
      const { Worker } = require("node:worker_threads");
      const isJoining = async () => {
        while (readdirSync(directory).length === 0) await new Promise(setImmediate);
      };
      const code = `(${join})(require("uform"), ${JSON.stringify(directory)})`;
      const worker = new Worker(code, { eval: true });
      await isJoining();
      await worker.terminate();
    }
    const code = `(${main})(${join}, ${JSON.stringify(directory)})`;
    await node(drivers.folder, ["-e", code], eight);
  }));

test("a process that ends without freeing its mesh leaves the run", () =>
  meeting(async (directory) => {
    const member = async ({ Executor, Mesh }, { index, directory }) => {
      const executor = Executor.forVram({ devices: [index] });
      globalThis.mesh = await Mesh.join(executor, {
        hostDomainIndex: index,
        hostDomainCount: 2,
        directory,
        job: "job",
      });
      return globalThis.mesh.describe().firstGpuIndex;
    };
    const ends = await Promise.all([0, 1].map((index) => run(member, { index, directory })));
    assert.deepEqual(
      ends.map(({ value }) => value),
      [0, 1],
    );
  }));

test("a process that exits or throws leaves the run, and so does a worker", async () => {
  const ends = {
    exit: () => process.exit(),
    throws: () => {
      process.on("uncaughtException", () => process.exit());
      throw new Error("on purpose");
    },
    "exits from a worker": () => process.exit(),
  };
  for (const [how, end] of Object.entries(ends)) {
    await meeting(async (directory) => {
      const member = async ({ Executor, Mesh }, index, directory) => {
        const executor = Executor.forVram({ devices: [index] });
        globalThis.mesh = await Mesh.join(executor, {
          hostDomainIndex: index,
          hostDomainCount: 2,
          directory,
          job: "job",
        });
        const entries = require("node:fs").readdirSync(`${directory}/job`);
        console.log(entries.some((name) => name.startsWith("run-")));
      };
      const programs = [0, 1].map((index) => {
        const joins = `(${member})(require("uform"), ${index}, ${JSON.stringify(directory)})`;
        const code = `${joins}.then(() => setImmediate(${end}))`;
        return how === "exits from a worker"
          ? `new (require("node:worker_threads").Worker)(${JSON.stringify(code)}, { eval: true })`
          : code;
      });
      const run = (code) => node(drivers.folder, ["-e", code], eight);
      assert.deepEqual(await Promise.all(programs.map(run)), ["true\n", "true\n"], how);
    });
  }
});

test("who does not come, and who disagrees, is named in every process", async () => {
  const member = async ({ Executor, Mesh }, { devices, ...options }) => {
    const executor = Executor.forVram({ devices });
    const error = await Mesh.join(executor, options).catch((error) => error);
    executor.free();
    return [error.name, error.code, error.message];
  };
  const place = (directory, index, rest) => ({
    hostDomainIndex: index,
    hostDomainCount: 2,
    directory,
    job: "job",
    devices: [index],
    ...rest,
  });
  await meeting(async (directory) => {
    const { value } = await run(member, place(directory, 0, { timeoutSeconds: 0.2 }));
    assert.deepEqual(value.slice(0, 2), ["TimedOutError", "UFORM_TIMED_OUT"]);
    assert.match(value[2], /index 1 of 2 did not come in time/);
  });
  await meeting(async (directory) => {
    const rest = [{ gpusPerMultimemDomain: 1 }, { gpusPerMultimemDomain: 2 }];
    const ends = await Promise.all(
      rest.map((rest, index) => run(member, place(directory, index, rest))),
    );
    const [first, second] = ends.map(({ value }) => value);
    assert.deepEqual(first.slice(0, 2), ["ConfigMismatchError", "UFORM_CONFIG_MISMATCH"]);
    assert.match(first[2], /`gpusPerMultimemDomain` is 1 for index 0 .* and 2 for index 1/);
    assert.deepEqual(first, second);
  });
});

test("what is out of place is named", async () => {
  const bad = [
    ["hostDomainIndex", -1, /expected an index/],
    ["hostDomainIndex", 1.5, /expected an index/],
    ["hostDomainIndex", 1, /`hostDomainCount` is absent/],
    ["hostDomainCount", "2", /expected a whole number/],
    ["hostDomainCount", 2 ** 32, /expected a whole number/],
    ["hostDomainCount", 2, /`hostDomainIndex` is absent/],
    ["gpusPerMultimemDomain", 3, /`gpusPerMultimemDomain` is 3/],
    ["directory", 5, /expected a string/],
    ["directory", "a\ud800", /without lone surrogates/],
    ["directory", "a\0b", /`directory` is/],
    ["job", "\udfff", /without lone surrogates/],
    ["job", "a/b", /one path component/],
    ["job", "..", /one path component/],
    ["timeoutSeconds", -1, /expected a number of seconds/],
    ["timeoutSeconds", "1", /expected a number of seconds/],
    ["jobb", "x", /the nearest valid one is `job`/],
  ];
  const { value } = await run(async ({ Executor, Mesh }, bad) => {
    const executor = Executor.forVram({ devices: [0] });
    const failures = [];
    for (const [key, value] of bad) {
      const options = { [key]: value };
      for (const way of ["bootstrap", "join"]) {
        const call = async () => Mesh[way](executor, options);
        const error = await call().catch((error) => error);
        failures.push([error.code, error.message]);
      }
    }
    // Absent, in every spelling, is a run without peers.
    const zeros = {
      hostDomainIndex: 0,
      hostDomainCount: 0,
      gpusPerMultimemDomain: 0,
      timeoutSeconds: 0,
    };
    Mesh.bootstrap(executor, zeros).free();
    const undefineds = Object.fromEntries(Object.keys(zeros).map((key) => [key, undefined]));
    (await Mesh.join(executor, { ...undefineds, signal: undefined })).free();
    executor.free();
    return failures;
  }, bad);
  for (const [at, [code, message]] of value.entries()) {
    assert.equal(code, "UFORM_INVALID_ARGUMENT", message);
    assert.match(message, bad[Math.floor(at / 2)][2]);
  }
});

test("an executor that drives no device is refused", async () => {
  const executor = Executor.forRam({ threads: 1 });
  const words = /drives no device.*Executor\.forVram/;
  assert.throws(() => Mesh.bootstrap(executor), words);
  await assert.rejects(Mesh.join(executor), words);
  executor.free();
  assert.throws(() => Mesh.bootstrap(executor), FreedError);
  assert.throws(() => Mesh.bootstrap({}), /expected an Executor/);
  assert.throws(
    () => Mesh.bootstrap(executor, { signal: AbortSignal.abort() }),
    /Mesh\.join takes it/,
  );
  assert.throws(() => new Mesh(), /made by Mesh\.bootstrap or Mesh\.join/);
});
