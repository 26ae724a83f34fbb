// Where executors run, what limited them, and what of it they tell.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import {
  capabilitiesAvailable,
  capabilitiesCompiled,
  Executor,
  FreedError,
  Model,
  Mood,
} from "uform";
import { failure, modelPath, root } from "./support.mjs";

const { hardwareDescribe } = createRequire(import.meta.url)("@uform/linux-x64-gnu");
const machine = hardwareDescribe();
const domain = machine.memoryDomains.find(({ allowed }) => allowed).id;

/** Runs a script in a process of its own, which prints what it finds as JSON and nothing else. */
function alone(script, { prefix = [], env = {} } = {}) {
  const code = `const { capabilitiesAvailable, Executor, Model } = require("uform");
    const path = ${JSON.stringify(modelPath)};
    console.log(JSON.stringify((() => { ${script} })()));`;
  const [program, ...args] = [...prefix, process.execPath, "-e", code];
  const options = { cwd: root, encoding: "utf8", env: { ...process.env, ...env }, timeout: 60_000 };
  const { status, stdout, stderr, error } = spawnSync(program, args, options);
  if (error) throw error;
  assert.deepEqual({ status, stderr }, { status: 0, stderr: "" });
  return JSON.parse(stdout);
}

/** What the system says about a thread of this process, and could have been changed by others. */
function thread(id) {
  const file = (name) => readFileSync(`/proc/self/task/${id}/${name}`, "utf8");
  const status = file("status");
  const field = (name) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)[1];
  const policies = existsSync(`/proc/self/task/${id}/numa_maps`)
    ? [...new Set(Array.from(file("numa_maps").matchAll(/^\w+ (\S+)/gm), ([, policy]) => policy))]
    : [];
  return {
    name: field("Name"),
    cores: field("Cpus_allowed_list"),
    blocked: field("SigBlk"),
    // The name before it may hold spaces; the scheduler is the 41st field.
    scheduler: file("stat").split(") ")[1].split(" ")[38],
    policies,
  };
}

const threadIds = () => readdirSync("/proc/self/task");

/** Cores of a list such as "0-2,5". */
const listed = (list) =>
  list.split(",").flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });

test("an executor tells what it is", () => {
  const executor = Executor.forRam({ threads: 1, deferredLimit: 5, cpuClass: "serial" });
  const told = executor.describe();
  assert.deepEqual(
    { ...told, counted: undefined, cores: undefined, memoryDomains: undefined },
    {
      kind: "ram",
      residency: "ram",
      threads: 1,
      memoryDomains: undefined,
      cores: undefined,
      counted: undefined,
      cpuClass: "serial",
      module: null,
      mood: Mood.Parked,
      outstanding: 0,
      deferredLimit: 5,
      scratchBytes: 0,
      devices: [],
      remarks: [],
      refused: [],
    },
  );
  assert.deepEqual(told.cores, machine.usableCores);
  assert.deepEqual(told.counted, machine.cores);
  assert.ok(told.memoryDomains.includes(domain));
  executor.drain(Mood.Spinning);
  assert.equal(executor.describe().mood, Mood.Spinning);
  executor.free();
  assert.throws(() => executor.describe(), failure(FreedError));
});

test("outstanding calls and scratch are told", async () => {
  const executor = Executor.forRam({ threads: 1 });
  const model = Model.loadRam(modelPath);
  const calls = ["a", "b", "c"].map((text) => model.encodeText(text, { executor }));
  assert.ok(executor.describe().outstanding > 0);
  await Promise.all(calls);
  await executor.drainAsync();
  const { outstanding, scratchBytes } = executor.describe();
  assert.equal(outstanding, 0);
  assert.ok(scratchBytes > 0);
  model.free();
  executor.free();
});

test("threads stay on the cores of their domain, and the caller stays as it is", async () => {
  const before = thread(process.pid);
  const others = new Set(threadIds());
  const executor = Executor.forRam({ threads: 2, memoryDomains: [domain] });
  const { cores, refused, memoryDomains } = executor.describe();
  assert.deepEqual(memoryDomains, [domain]);
  const ours = threadIds().filter((id) => !others.has(id));
  const placed = ours.map(thread).filter(({ name }) => name.startsWith("uform-"));
  assert.equal(placed.length, 2);
  const told = (words) => refused.some((sentence) => sentence.includes(words));
  for (const { cores: allowed, policies } of placed) {
    if (!told("cores")) assert.deepEqual(listed(allowed), cores);
    if (!told("memory") && policies.length > 0) assert.ok(policies.includes(`prefer:${domain}`));
  }
  assert.deepEqual(thread(process.pid), before);
  const model = Model.loadRam(modelPath, { memoryDomains: [domain] });
  assert.deepEqual(thread(process.pid), before);
  const plain = Model.loadRam(modelPath);
  const now = model.encodeTextSync("a red bicycle", { executor });
  assert.deepEqual(thread(process.pid), before);
  const later = await plain.encodeText("a red bicycle", { executor });
  assert.deepEqual(now.data, later.data);
  const opened = await Model.open(modelPath, { executor, memoryDomains: [domain] });
  assert.deepEqual(opened.encodeTextSync("a red bicycle").data, now.data);
  for (const handle of [model, plain, opened, executor]) handle.free();
  assert.deepEqual(thread(process.pid), before);
});

test("the affinity mask counts", () => {
  const core = machine.usableCores.at(-1);
  const told = alone(`return Executor.forRam().describe()`, {
    prefix: ["taskset", "-c", String(core)],
  });
  assert.deepEqual(
    { threads: told.threads, cores: told.cores, remarks: told.remarks },
    { threads: 1, cores: [core], remarks: [] },
  );
  assert.equal(told.counted.affinity, 1);
  if (machine.cores.online > 1) assert.equal(told.counted.limit, "affinity");
  const { remarks } = alone(`return Executor.forRam({ threads: 3 }).describe()`, {
    prefix: ["taskset", "-c", String(core)],
  });
  assert.match(remarks.join(), /3 threads are more than can run at once: .*no faster than with 1/);
});

test("more threads than the machine has are had, and explained", () => {
  const threads = availableParallelism() + 5;
  const executor = Executor.forRam({ threads });
  const told = executor.describe();
  executor.free();
  assert.equal(told.threads, threads);
  assert.match(told.remarks.join(), new RegExp(`${threads} threads are more than can run at once`));
});

test("a quota of CPU time counts", (context) => {
  const second = existsSync("/sys/fs/cgroup/cgroup.controllers");
  const group = `/sys/fs/cgroup/${second ? "" : "cpu/"}uform-test-${process.pid}`;
  try {
    mkdirSync(group);
  } catch (error) {
    return context.skip(`SKIPPED: no control group can be made: ${error.message}`);
  }
  try {
    if (second) {
      writeFileSync(`${group}/cpu.max`, "150000 100000");
    } else {
      writeFileSync(`${group}/cpu.cfs_period_us`, "100000");
      writeFileSync(`${group}/cpu.cfs_quota_us`, "150000");
    }
    const told = alone(`
      require("node:fs").writeFileSync(${JSON.stringify(`${group}/cgroup.procs`)}, String(process.pid));
      return [undefined, 2].map((threads) => Executor.forRam({ threads }).describe());
    `);
    assert.equal(told[0].threads, 1);
    for (const { counted } of told) {
      assert.deepEqual([counted.quota, counted.usable], [1.5, 1]);
      if (machine.cores.usable > 1) assert.equal(counted.limit, "quota");
    }
    if (machine.cores.usable > 1)
      assert.match(told[1].remarks.join(), /quota allows 1\.5 cores' worth/);
  } catch (error) {
    if (error.code !== "ENOENT" && error.code !== "EACCES") throw error;
    return context.skip(`SKIPPED: the control group takes no quota: ${error.message}`);
  } finally {
    rmdirSync(group);
  }
});

test("memory the system does not give is told, and not printed", () => {
  // A machine with more domains than any; this one has no domain 1023.
  const told = alone(
    `const executor = Executor.forRam({ threads: 2, memoryDomains: [1023] });
     const model = Model.loadRam(path, { executor });
     const { rows } = model.encodeTextSync(["a", "b"], { executor });
     return { rows, available: capabilitiesAvailable(), ...executor.describe() };`,
    { env: { HWLOC_SYNTHETIC: "node:1024 core:1 pu:1" } },
  );
  assert.equal(told.rows, 2);
  assert.deepEqual(told.memoryDomains, [1023]);
  assert.deepEqual(told.cores, machine.usableCores);
  assert.match(told.refused.join(), /refused to prefer memory domains \[1023\]/);
  assert.match(told.remarks.join(), /no core near memory domain 1023/);
  // A description of another machine says so.
  assert.match(told.remarks.join(), /not this machine's.*HWLOC_SYNTHETIC.*HWLOC_THISSYSTEM=1/);
  assert.ok(told.available.split(",").includes("numa"));
});

test("the machine is described in plain values", () => {
  assert.deepEqual(JSON.parse(JSON.stringify(machine)), machine);
  assert.equal(machine.problem, null);
  assert.equal(machine.cores.usable, Math.min(availableParallelism(), machine.cores.usable));
  assert.ok(
    machine.memoryDomains.every(({ bytes }) => bytes > 2 ** 20 && Number.isSafeInteger(bytes)),
  );
  assert.equal(machine.capabilitiesAvailable, capabilitiesAvailable());
  assert.ok(capabilitiesCompiled().split(",").includes("numa"));
});
