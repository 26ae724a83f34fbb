// Models in the memory of GPUs, end to end, with stand-ins for the vendors' drivers (crates/fake-gpu),
// which run the kernels that ship and count what is alive.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { Executor, gpuDevices, Model, UnsupportedError } from "uform";
import { inProcess, makeDrivers, node, nothingLeft } from "./fake-gpus.mjs";
import { failure, modelPath, root } from "./support.mjs";

const drivers = makeDrivers();
/** Random weights, two layers, 64 wide, texts of up to 512 tokens. */
const small = join(drivers.folder, "small");
test.before(() => {
  const { status, stderr } = spawnSync("cargo", ["xtask", "tiny-model", small], {
    cwd: root,
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
});
test.after(() => drivers.remove());

const one = "H200:9.0:132:1024";
const devices = (count) => ({ FAKE_CUDA_DEVICES: Array(count).fill(one).join(",") });
const run = (env, main, argument) =>
  inProcess(drivers.folder, env, main, { folder: small, ...argument });

/** Texts of so many tokens, the two special ones counted. */
const words = ["red", "bicycle", "the", "sea", "is", "blue", "green", "tree", "!"];
const text = (tokens) =>
  Array.from({ length: tokens - 2 }, (_, at) => words[(at * 7 + tokens) % 9]).join(" ");

/** By how much a cosine is below 1; NaN where there is no number. */
function off(one, other) {
  const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  return 1 - dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
}

/** The same in host memory, in f32. */
function expected(folder, texts) {
  const model = Model.loadRam(folder, { precision: "f32" });
  const found = model.encodeTextSync(texts);
  model.free();
  return Array.from(texts, (_, row) => [...found.row(row)]);
}

/** Encodes together, on some devices, and some of the texts alone. */
async function encoded(uform, { folder, precision, devices, texts, alone = [] }) {
  const executor = uform.Executor.forVram({ devices });
  const model = uform.Model.loadVram(folder, { executor, precision });
  const rows = async (found) => {
    const host = await found.toHost();
    const { rows, parts, tokens } = found;
    found.free();
    return {
      parts: parts.map(({ device, rows }) => [device, rows]),
      tokens: [...tokens],
      rows: Array.from({ length: rows }, (_, row) => [...host.row(row)]),
    };
  };
  const together = await rows(await model.encodeText(texts, { executor }));
  const apart = {};
  for (const at of alone) {
    apart[at] = (await rows(await model.encodeText(texts[at], { executor }))).rows[0];
  }
  model.free();
  executor.free();
  return { ...together, apart };
}

const least = { f32: 1e-6, bf16: 1e-4 };

for (const [precision, lengths, alone] of [
  ["bf16", [2, 3, 512, 7, 64, 65, 66, 130, 9], [1, 4, 7]],
  ["f32", [2, 9, 66, 33], [1, 2]],
]) {
  test(`on 1, 2 and 8 devices, ${precision} vectors are the host's, and the same bits`, async () => {
    const texts = lengths.map(text);
    const wanted = expected(small, texts);
    let first;
    for (const chosen of [[0], [2, 1], [0, 1, 2, 3, 4, 5, 6, 7]]) {
      const given = { precision, devices: chosen, texts };
      if (chosen.length === 2) given.alone = alone;
      const found = await run(devices(8), encoded, given);
      nothingLeft(found, chosen);
      const { parts, tokens, rows, apart } = found.value;
      assert.deepEqual(tokens, lengths);
      assert.ok(
        parts.every(([device]) => chosen.includes(device)),
        JSON.stringify(parts),
      );
      assert.equal(parts.length > 1, chosen.length > 1);
      wanted.forEach((row, at) => {
        const by = off(rows[at], row);
        assert.ok(by <= least[precision], `text ${at} on ${chosen} is off by ${by}`);
      });
      first ??= rows;
      assert.deepEqual(rows, first);
      for (const [at, row] of Object.entries(apart)) assert.deepEqual(row, rows[at], at);
    }
  });
}

test("all-MiniLM-L6-v2 gives a text's vector", async () => {
  const texts = ["A red bicycle."];
  const found = await run(devices(1), encoded, {
    folder: modelPath,
    precision: "bf16",
    devices: [0],
    texts,
  });
  nothingLeft(found);
  const by = off(found.value.rows[0], expected(modelPath, texts)[0]);
  assert.ok(by <= least.bf16, `off by ${by}`);
});

test("texts are tokenized for a model on a device, and streamed to it", async () => {
  const texts = [5, 2, 9].map(text);
  const found = await run(
    devices(1),
    async (uform, { folder, texts }) => {
      const executor = uform.Executor.forVram();
      const model = uform.Model.loadVram(folder, { executor, precision: "f32" });
      const counts = [...model.countTokens(texts)];
      const { ids } = model.tokenize(texts);
      const [rows, tokens] = [[], []];
      for await (const part of model.encodeTextStream(texts, { executor })) {
        rows.push(...(await part.toHost()));
        tokens.push(...part.tokens);
        part.free();
      }
      // What is in flight when a stream is left is freed as well.
      async function* source() {
        for (;;) {
          yield "red";
          await new Promise(setImmediate);
        }
      }
      for await (const part of model.encodeTextStream(source(), { executor })) {
        part.free();
        await new Promise((resolve) => setTimeout(resolve, 50));
        break;
      }
      await executor.drainAsync();
      model.free();
      executor.free();
      return { counts, ids: ids.length, tokens, rows: rows.map((row) => [...row]) };
    },
    { texts },
  );
  nothingLeft(found);
  const { counts, ids, tokens, rows } = found.value;
  assert.deepEqual([counts, tokens, ids], [[5, 2, 9], [5, 2, 9], 16]);
  const wanted = expected(small, texts);
  rows.forEach((row, at) => assert.ok(off(row, wanted[at]) <= least.f32, `text ${at}`));
  assert.equal(rows.length, 3);
});

test("what is on the devices, says so, and outlives its executor", async () => {
  const found = await run(
    { ...devices(3), FAKE_NVML_FREE: "512,256,700" },
    async (uform, { folder }) => {
      const assert = require("node:assert/strict");
      const fs = require("node:fs");
      const { Executor, Model, DeviceEmbeddings, Embeddings, Mood } = uform;
      // The one with most memory free, then one that is not driven yet.
      const [first, second] = [Executor.forVram(), Executor.forVram()];
      const ordinals = [first, second].map((executor) => executor.describe().devices[0].ordinal);
      assert.deepEqual(ordinals, [2, 0]);
      first.free();
      second.free();

      const executor = Executor.forVram({
        devices: [1, 0],
        streams: [0n, 0n],
        scratchLimit: 1 << 28,
      });
      const model = await Model.open(folder, { executor });
      const description = model.describe();
      assert.equal(description.residency, "vram");
      assert.deepEqual([description.cpuClass, description.gpuClass], [null, "nvidia-hopper"]);
      assert.deepEqual(description.devices, [1, 0]);
      assert.equal(description.precision, "bf16");
      const texts = ["red", "the sea is blue", ""];
      const vectors = await model.encodeText(texts, { executor, dimensions: 8 });
      assert.ok(vectors instanceof DeviceEmbeddings);
      assert.deepEqual([vectors.rows, vectors.dimensions], [3, 8]);
      assert.deepEqual([...vectors.tokens], [3, 6, 2]);
      assert.deepEqual([...vectors.truncated], [0, 0, 0]);
      const addresses = vectors.parts.map(({ address }) => address);
      assert.ok(addresses.every((address) => typeof address === "bigint" && address > 0n));
      assert.equal(new Set(addresses).size, vectors.parts.length);
      assert.equal(
        vectors.parts.reduce((rows, part) => rows + part.rows, 0),
        3,
      );
      assert.throws(() => structuredClone(vectors));
      assert.throws(() => new DeviceEmbeddings(), { code: "UFORM_INVALID_ARGUMENT" });

      const again = model.encodeTextSync(texts, { executor, dimensions: 8 });
      const hosts = await Promise.all([vectors.toHost(), again.toHost()]);
      assert.ok(hosts[0] instanceof Embeddings);
      assert.deepEqual(hosts[0], hosts[1]);
      again[Symbol.dispose]?.() ?? again.free();
      await assert.rejects(again.toHost(), { code: "UFORM_FREED" });
      again.free();

      const described = executor.describe();
      assert.deepEqual([described.kind, described.residency], ["vram", "vram"]);
      assert.deepEqual(
        described.devices.map(({ scratchBytes, ...rest }) => (assert.ok(scratchBytes > 0), rest)),
        [1, 0].map((ordinal) => ({
          ordinal,
          name: "H200",
          gpuClass: "nvidia-hopper",
          streamBorrowed: false,
          scratchLimit: 1 << 28,
        })),
      );
      executor.drain(Mood.Spinning);
      await executor.drainAsync();
      assert.equal((await model.encodeText([], { executor })).rows, 0);

      // From files, as from a path.
      const names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
      ];
      const files = Object.fromEntries(
        names.map((name) => [name, new Uint8Array(fs.readFileSync(`${folder}/${name}`))]),
      );
      const other = await Model.open(files, { executor, devices: [0], precision: "bf16" });
      assert.deepEqual(other.describe().devices, [0]);
      assert.equal(other.describe().fingerprint, description.fingerprint);
      const elsewhere = await (await other.encodeText(texts, { executor, dimensions: 8 })).toHost();
      assert.deepEqual(elsewhere, hosts[0]);

      model.free();
      other.free();
      executor.free();
      executor.free();
      assert.deepEqual(await vectors.toHost(), hosts[0]);
      vectors.free();
      vectors.free();
      await assert.rejects(vectors.toHost(), { code: "UFORM_FREED" });
      // What was forgotten is the collector's, at the end of the process.
    },
  );
  assert.deepEqual(found.alive.contexts, 0, JSON.stringify(found.alive));
  nothingLeft(found);
});

test("what does not fit is refused, and says what would", async () => {
  const env = {
    FAKE_CUDA_DEVICES: `${one},V100:7.0:80:32510`,
    FAKE_HIP_DEVICES: "MI300X:gfx942:304:1024",
  };
  const found = await run(env, async (uform, { folder }) => {
    const assert = require("node:assert/strict");
    const { Executor, Model } = uform;
    const refused = async (call, code, ...words) => {
      let error;
      try {
        await call();
      } catch (thrown) {
        error = thrown;
      }
      assert.equal(error?.code, code, `${call}: ${error?.stack}`);
      for (const word of words)
        assert.ok(error.message.includes(word), `${word}: ${error.message}`);
    };
    const invalid = "UFORM_INVALID_ARGUMENT";
    const unsupported = "UFORM_UNSUPPORTED";
    for (const [config, code, ...words] of [
      [{ devices: [1] }, unsupported, "device 1, V100", "8.0"],
      [{ devices: [3] }, invalid, "no device 3", "0, 1, 2"],
      [{ devices: [0, 0] }, invalid, "twice"],
      [
        { devices: [0], gpuClass: "amd-cdna3" },
        invalid,
        "amd-cdna3",
        "nvidia-hopper",
        "nvidia-ampere",
      ],
      [{ devices: [0], gpuClass: "nvidia-rubin" }, invalid, "nvidia-rubin", "accepted"],
      [
        { devices: [2], gpuClass: "nvidia-ampere" },
        invalid,
        "nvidia-ampere",
        "MI300X",
        "amd-cdna3",
      ],
      [{ devices: [0, 2], gpuClass: "nvidia-ampere" }, invalid, "MI300X"],
      [{ devices: [0], gpuClass: "hopper" }, invalid, "hopper", "nvidia-hopper"],
      [{ devices: [0], streams: [0n, 0n] }, invalid, "streams", "one a device"],
      [{ devices: [0], streams: [64n] }, invalid, "0x40", "H200"],
      [{ device: 0 }, invalid, '"device"', "`devices`"],
      [{ threads: 2 }, invalid, '"threads"'],
    ]) {
      await refused(() => Executor.forVram(config), code, ...words);
    }

    const vram = Executor.forVram({ devices: [0] });
    const ram = Executor.forRam({ threads: 1 });
    const pinned = Executor.forVram({ devices: [0], gpuClass: "nvidia-ampere" });
    const model = Model.loadVram(folder, { executor: vram });
    const host = Model.loadRam(folder);
    for (const [call, code, ...words] of [
      [() => Model.loadVram(folder), invalid, "any of executor"],
      [() => Model.loadVram(folder, {}), invalid, "`executor`", "Executor.forVram"],
      [() => Model.loadVram(folder, { executor: ram }), invalid, "Executor.forVram"],
      [() => Model.loadVram(folder, { executor: vram, devices: [2] }), invalid, "2 is not one"],
      [
        () => Model.loadVram(folder, { executor: vram, memoryDomains: [0] }),
        invalid,
        "memoryDomains",
      ],
      [() => Model.loadVram(folder, { executor: vram, precision: "i8" }), unsupported, "i8"],
      [
        () => Model.loadVram(folder, { executor: pinned, gpuClass: "nvidia-hopper" }),
        invalid,
        "pinned",
      ],
      [() => Model.loadVram("nowhere", { executor: vram }), "UFORM_NOT_FOUND", "nowhere"],
      [() => Model.loadRam(folder, { executor: vram }), invalid, "Executor.forVram"],
      [
        () => Model.open(folder, { executor: vram, memoryDomains: [0] }),
        invalid,
        "`memoryDomains`",
      ],
      [() => Model.open(folder, { executor: vram, cpuClass: "serial" }), invalid, "`cpuClass`"],
      [
        () => Model.open(folder, { executor: ram, gpuClass: "nvidia-ampere" }),
        invalid,
        "`gpuClass`",
      ],
      [() => model.encodeText("red"), invalid, "the memory of GPUs", "Executor.forVram"],
      [() => model.encodeTextSync("red"), invalid, "the memory of GPUs"],
      [() => model.encodeText("red", { executor: ram }), invalid, "Executor.forVram"],
      [
        () => model.encodeText("red", { executor: pinned }),
        invalid,
        "nvidia-ampere",
        "nvidia-hopper",
      ],
      [() => host.encodeText("red", { executor: vram }), invalid, "host memory"],
      [() => host.encodeTextSync("red", { executor: vram }), invalid, "host memory"],
    ]) {
      await refused(call, code, ...words);
    }
    // A lower class's kernels run, and give the same.
    const lower = Model.loadVram(folder, { executor: pinned });
    assert.equal(lower.describe().gpuClass, "nvidia-ampere");
    const [one, other] = [
      model.encodeTextSync("red sea", { executor: vram }),
      lower.encodeTextSync("red sea", { executor: pinned }),
    ];
    assert.deepEqual(await one.toHost(), await other.toHost());

    // As much scratch as a short text needs, and no more.
    const { scratchBytes } = vram.describe().devices[0];
    const limited = Executor.forVram({ devices: [0], scratchLimit: scratchBytes });
    const long = "the sea is blue ".repeat(100);
    const short = () => model.encodeTextSync("red sea", { executor: limited });
    short().free();
    const tooLong = () => model.encodeTextSync(long, { executor: limited });
    await refused(tooLong, "UFORM_OUT_OF_MEMORY", "scratchLimit", String(scratchBytes));
    const after = short();
    assert.deepEqual(await after.toHost(), await one.toHost());

    // AMD's compiler has the source, and here takes none.
    const amd = Executor.forVram({ devices: [2] });
    assert.equal(amd.describe().devices[0].gpuClass, "amd-cdna3");
    await refused(() => Model.loadVram(folder, { executor: amd }), unsupported, "hiprtc");

    for (const handle of [one, other, after, model, host, lower]) handle.free();
    for (const executor of [vram, ram, pinned, limited, amd]) executor.free();
    await refused(() => host.encodeText("red"), "UFORM_FREED");
    await refused(() => model.encodeText("red", { executor: vram }), "UFORM_FREED");
  });
  nothingLeft(found);
});

/** Loads and encodes, once more after a failure; codes of what failed. */
async function faulty(uform, { folder }) {
  const failed = [];
  const made = [];
  const attempt = async (what, act) => {
    try {
      const value = await act();
      if (typeof value?.free === "function") made.push(value);
      return value;
    } catch (error) {
      if (!(error instanceof uform.UformError)) throw error;
      failed.push([what, error.code, error.message]);
      return undefined;
    }
  };
  const twice = async (what, act) => (await attempt(what, act)) ?? (await attempt(what, act));
  const executor = await twice("forVram", () => uform.Executor.forVram({ devices: [0] }));
  const model = executor && (await twice("load", () => uform.Model.loadVram(folder, { executor })));
  const texts = ["red", "the sea is blue"];
  let rows;
  if (model) {
    const found = await twice("encode", () => model.encodeText(texts, { executor }));
    const host = found && (await twice("toHost", () => found.toHost()));
    rows = host && [...host.data];
    await attempt("sync", () => model.encodeTextSync(texts, { executor }));
  }
  if (executor) {
    await attempt("drain", () => executor.drain());
    await attempt("drainAsync", () => executor.drainAsync());
  }
  for (const handle of made.reverse()) handle.free();
  return { failed, rows };
}

test("running out of memory is an error of that name, wherever, and no more than that", async () => {
  const sound = await run(devices(1), faulty);
  assert.deepEqual(sound.value.failed, []);
  for (let allocation = 1; allocation <= 9; allocation++) {
    const env = { ...devices(1), FAKE_CUDA_FAULT: `oom@${allocation}` };
    const found = await run(env, faulty);
    const what = `allocation ${allocation}: ${JSON.stringify(found.value.failed)}`;
    nothingLeft(found, what);
    assert.ok(found.value.failed.length <= 1, what);
    for (const [, code] of found.value.failed) assert.equal(code, "UFORM_OUT_OF_MEMORY", what);
    assert.deepEqual(found.value.rows, sound.value.rows, what);
    if (allocation <= 3) assert.equal(found.value.failed.length, 1, what);
  }
});

test("a fault is the call's that met it, and every later one's", async () => {
  for (const launch of [1, 4, 19, 20]) {
    const env = { ...devices(1), FAKE_CUDA_FAULT: `fault@${launch}` };
    const found = await run(env, faulty);
    const { failed } = found.value;
    const what = `launch ${launch}: ${JSON.stringify(failed)}`;
    nothingLeft(found, what);
    const steps = failed.map(([step]) => step);
    const expected = ["encode", "encode", "sync", "drain", "drainAsync"];
    const first = steps[0] === "sync" ? expected.indexOf("sync") : 0;
    assert.deepEqual(steps, expected.slice(first), what);
    for (const [, code, message] of failed) {
      assert.equal(code, "UFORM_DEVICE_FAULT", what);
      assert.match(message, /CUDA_ERROR_ILLEGAL_ADDRESS/, what);
    }
    if (launch <= 4) assert.equal(first, 0, what);
  }
});

test("an unknown code, and functions that are missing, are errors or nothing", async () => {
  const sound = (await run(devices(1), faulty)).value.rows;
  const codes = [1, 2, 9, 30, 60, 100].map((call) => `code917@${call}`);
  for (const fault of [...codes, "missing:cuStreamCreate", "code34@1"]) {
    const found = await run({ ...devices(1), FAKE_CUDA_FAULT: fault }, faulty);
    const { failed, rows } = found.value;
    const what = `${fault}: ${JSON.stringify(failed)}`;
    nothingLeft(found, what);
    assert.ok(failed.length > 0 || rows !== undefined, what);
    for (const [, code, message] of failed) {
      assert.match(code, /^UFORM_(DEVICE_FAULT|UNSUPPORTED)$/, what);
      if (code === "UFORM_DEVICE_FAULT") assert.match(message, /917/, what);
    }
    if (failed.length === 0) assert.deepEqual(rows, sound, what);
  }
  for (const fault of ["missing:cuDeviceGetUuid", "multicast-bind"]) {
    const found = await run({ ...devices(1), FAKE_CUDA_FAULT: fault }, faulty);
    nothingLeft(found, fault);
    assert.deepEqual(found.value, { failed: [], rows: sound }, fault);
  }
});

test("the event loop turns while devices are slow, and a call that is given up ends", async () => {
  const env = { ...devices(1), FAKE_CUDA_FAULT: "slow@2:300ms" };
  const found = await run(env, async (uform, { folder }) => {
    const assert = require("node:assert/strict");
    const executor = uform.Executor.forVram();
    const model = uform.Model.loadVram(folder, { executor });
    let turns = 0;
    const timer = setInterval(() => turns++, 5);
    const start = performance.now();
    const call = model.encodeText("the sea is blue", { executor });
    const queued = new AbortController();
    const never = model.encodeText("red", { executor, signal: queued.signal });
    queued.abort(new Error("given up"));
    await assert.rejects(never, /given up/);
    // The caller was not kept, and another immediate call would have to wait.
    assert.throws(() => model.encodeTextSync("red", { executor }), { code: "UFORM_CONTENDED" });
    const vectors = await call;
    assert.ok(performance.now() - start >= 290);
    clearInterval(timer);
    assert.ok(turns >= 3, `${turns} turns`);
    // Given up while it runs.
    const running = new AbortController();
    const long = Array(200).fill("the sea is blue green tree ".repeat(20));
    const begun = model.encodeText(long, { executor, signal: running.signal });
    setTimeout(() => running.abort(new Error("enough")), 20);
    await assert.rejects(begun, /enough/);
    const after = await model.encodeText("the sea is blue", { executor });
    assert.deepEqual(await after.toHost(), await vectors.toHost());
    for (const handle of [vectors, after, model, executor]) handle.free();
  });
  nothingLeft(found);
});

test("copies to the host keep no other call waiting, and as many as are asked for are made", async () => {
  const found = await run(devices(1), async (uform, { folder }) => {
    const assert = require("node:assert/strict");
    const executor = uform.Executor.forVram();
    const model = uform.Model.loadVram(folder, { executor });
    const host = uform.Model.loadRam(folder);
    const vectors = await model.encodeText("the sea is blue", { executor });
    // Neither makes the other wait, nor refuse.
    const pending = Array.from({ length: 3000 }, () => vectors.toHost());
    host.encodeTextSync("red");
    const beside = host.encodeText("red");
    const copies = await Promise.all(pending);
    const { data } = await vectors.toHost();
    for (const copy of copies) assert.deepEqual(copy.data, data);
    await beside;
    // One that is under way when its process ends.
    void vectors.toHost();
    for (const handle of [vectors, model, host, executor]) handle.free();
  });
  nothingLeft(found);
});

test("a process that frees nothing ends by itself, and so does a worker's", async () => {
  const code = `
    const { Executor, Model } = require("uform");
    const executor = Executor.forVram();
    const model = Model.loadVram(${JSON.stringify(small)}, { executor });
    model.encodeText("red", { executor }).then((kept) => {
      globalThis.kept = kept;
      globalThis.more = model.encodeText("the sea is blue", { executor });
      console.log(kept.rows);
    });`;
  assert.equal(await node(drivers.folder, ["-e", code], devices(1)), "1\n");
  const early = code.replace("console.log(kept.rows)", "console.log(2), process.exit()");
  assert.equal(await node(drivers.folder, ["-e", early], devices(1)), "2\n");
  const worker = `
    const { Worker } = require("node:worker_threads");
    const run = () => new Promise((resolve) =>
      new Worker(${JSON.stringify(code)}, { eval: true }).on("exit", resolve));
    run().then(run).then((code) => console.log("ended with", code));`;
  assert.equal(await node(drivers.folder, ["-e", worker], devices(1)), "1\n1\nended with 0\n");
});

test("Executor.forVram takes and refuses what the table of arguments says", async () => {
  const args = ["--test", "--test-reporter=tap", "--test-name-pattern=forVram"];
  const printed = await node(
    drivers.folder,
    [...args, join(root, "tests/node/arguments.test.mjs")],
    devices(1),
  );
  assert.match(printed, /^# pass [4-9]/m, printed);
  assert.match(printed, /^# fail 0/m, printed);
});

test("without a driver, only what asks for GPUs says so", () => {
  if (gpuDevices().length > 0) return;
  assert.throws(() => Executor.forVram(), failure(UnsupportedError, "no GPU"));
});
