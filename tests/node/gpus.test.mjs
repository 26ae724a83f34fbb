// GPUs as the package lists them, with stand-ins for the vendors' drivers (crates/fake-gpu). A process
// has one driver for its life, so every case is a process of its own.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { capabilitiesCompiled, gpuDevices, GpuVendor } from "uform";
import * as fake from "./fake-gpus.mjs";
import { modelPath, root } from "./support.mjs";

const drivers = fake.makeDrivers();
const counts = join(drivers.folder, "counts");
test.after(() => drivers.remove());

const mixed = {
  FAKE_CUDA_DEVICES: "NVIDIA H200:9.0:132:143771,V100:7.0:80:32510",
  FAKE_HIP_DEVICES: "MI300X:gfx942:304:196608",
};

/** Runs arguments of Node's in a process with the stand-ins. */
const node = (args, env = mixed) =>
  fake.node(drivers.folder, args, { FAKE_GPU_COUNTS: counts, ...env });

/** What an expression is, as JSON, in a process with the stand-ins. */
const value = async (expression, env) =>
  JSON.parse(
    await node(["-p", `const uform = require("uform"); JSON.stringify(${expression})`], env),
  );

test("a machine's GPUs are NVIDIA's, then AMD's, in plain data", async () => {
  const found = await value("uform.gpuDevices()");
  assert.deepEqual(found, [
    {
      vendor: GpuVendor.Nvidia,
      vendorOrdinal: 0,
      gpuClass: "nvidia-hopper",
      computeUnits: 132,
      memoryBytes: 143771 * 2 ** 20,
      name: "NVIDIA H200",
      uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00",
      pciAddress: "0000:c0:00.0",
    },
    {
      vendor: GpuVendor.Nvidia,
      vendorOrdinal: 1,
      gpuClass: null,
      computeUnits: 80,
      memoryBytes: 32510 * 2 ** 20,
      name: "V100",
      uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01",
      pciAddress: "0000:b0:00.0",
    },
    {
      vendor: GpuVendor.Amd,
      vendorOrdinal: 0,
      gpuClass: "amd-cdna3",
      computeUnits: 304,
      memoryBytes: 196608 * 2 ** 20,
      name: "MI300X",
      uuid: "GPU-5e3bb2a7c14d1f00",
      pciAddress: "0000:c0:00.0",
    },
  ]);
  // To list takes no context, and makes nothing.
  for (const line of readFileSync(counts, "utf8").trim().split("\n")) {
    assert.deepEqual(new Set(Object.values(JSON.parse(line))), new Set([0]), line);
  }
});

test("a driver that does not work is no GPU, and quiet", async () => {
  const cases = [
    [{ FAKE_CUDA_DEVICES: "", FAKE_HIP_DEVICES: "" }, 0],
    [{ ...mixed, FAKE_CUDA_FAULT: "code34@1" }, 0],
    [{ ...mixed, FAKE_CUDA_FAULT: "code917@1" }, 0],
    [{ ...mixed, FAKE_CUDA_FAULT: "missing:cuStreamCreate" }, 1],
    [{ ...mixed, FAKE_CUDA_FAULT: "missing:cuDeviceGetUuid" }, 3],
    [{ ...mixed, FAKE_CUDA_FAULT: "missing:hipMalloc" }, 2],
  ];
  for (const [env, count] of cases) {
    const found = await value("[uform.gpuDevices().length, uform.capabilitiesAvailable()]", env);
    assert.equal(found[0], count, JSON.stringify(env));
    const words = found[1].split(",");
    assert.deepEqual([words.includes("cuda"), words.includes("hip")], [count > 1, count % 2 > 0]);
  }
  const broken = mkdtempSync(join(tmpdir(), "uform-broken-"));
  const hip = ["so.7", "so.6", "so.5", "so"].map((end) => `libamdhip64.${end}`);
  for (const name of ["libcuda.so.1", ...hip]) writeFileSync(join(broken, name), "not a library");
  assert.deepEqual(await value("uform.gpuDevices()", { LD_LIBRARY_PATH: broken }), []);
  rmSync(broken, { recursive: true });
});

test("this machine's list is the same whoever asks", () => {
  assert.deepEqual(gpuDevices(), gpuDevices());
  assert.notEqual(gpuDevices(), gpuDevices());
  const words = capabilitiesCompiled().split(",");
  assert.ok(words.includes("cuda") && words.includes("hip"));
});

test("no driver is touched until a program asks for GPUs", async () => {
  const maps = `require("node:fs").readFileSync("/proc/self/maps", "utf8")`;
  const loaded = `${maps}.match(/lib(?:cuda|amdhip64)\\.so\\.\\d/g)`;
  const quiet = `(() => {
    const model = uform.Model.loadRam(${JSON.stringify(modelPath)});
    model.encodeTextSync("text");
    model.free();
    return ${loaded};
  })()`;
  assert.deepEqual(await value(`[${quiet}, uform.gpuDevices().length, ${loaded} !== null]`), [
    null,
    3,
    true,
  ]);
});

test("workers see the same GPUs, in one process with the main thread", async () => {
  const code = `
    const { gpuDevices } = require("uform");
    const { Worker, isMainThread, parentPort } = require("node:worker_threads");
    const names = gpuDevices().map(({ name }) => name).join();
    new Worker(
      'const { gpuDevices } = require("uform");' +
        'require("node:worker_threads").parentPort.postMessage(gpuDevices().map(({ name }) => name).join())',
      { eval: true },
    ).on("message", (found) => console.log(found === names ? names : "different"));`;
  assert.equal(await node(["-e", code]), "NVIDIA H200,V100,MI300X\n");
});

test("info lists them, for people and for programs", async () => {
  const program = join(root, "dist/cli/main.js");
  const { gpus, capabilities } = JSON.parse(await node([program, "info", "--json"]));
  assert.deepEqual(
    gpus.map(({ name }) => name),
    ["NVIDIA H200", "V100", "MI300X"],
  );
  const words = capabilities.available.filter((word) => word === "cuda" || word === "hip");
  assert.deepEqual(words, ["cuda", "hip"]);
  const table = await node([program, "info"]);
  assert.match(table, /^GPU 0 +NVIDIA H200: nvidia-hopper, 132 compute units, 140\.4 GiB$/m);
  assert.match(table, /^GPU 1 +V100: of no class, 80 compute units, 31\.7 GiB$/m);
  assert.match(table, /^GPU 2 +MI300X: amd-cdna3, 304 compute units, 192 GiB$/m);
  const bare = await node([program, "info"], { FAKE_CUDA_DEVICES: "", FAKE_HIP_DEVICES: "" });
  assert.doesNotMatch(bare, /GPU/);
});
