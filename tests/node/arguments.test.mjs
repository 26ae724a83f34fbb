// Everything a caller can get wrong is refused at the edge, naming the key, the value and what would
// be accepted, with nothing half-made. A promise form rejects and never throws.
//
// It is one table. `values` are what a program might put anywhere, by mistake; `options` and
// `positions` say for each key which of them it takes, and what more it takes and refuses. Whatever
// a row does not take must be refused. A key of the surface without a row fails the test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { Executor, gpuDevices, InvalidArgumentError, Model, Mood, ThreadPool } from "uform";
import { modelPath, root } from "./support.mjs";

const model = Model.loadRam(modelPath);
const executor = Executor.forRam({ threads: 1 });
const pool = ThreadPool.spawn({ threads: 1 });
after(() => {
  model.free();
  executor.free();
  pool.free();
});

const { signal } = new AbortController();
const listener = () => {};
const many = 2 ** 53 - 1;

/** Each kind of mistake, and how a message shows the value. `[]` and objects are one value each. */
const none = [];
const twice = [0, 0];
const unknown = [1_000_000];
const plain = {};
const { proxy: revoked, revoke } = Proxy.revocable([], {});
revoke();
const values = new Map([
  // Of the wrong type.
  [null, "null"],
  [true, "true"],
  [false, "false"],
  ["", '""'],
  ["x", '"x"'],
  ["1", '"1"'],
  [1n, "1n"],
  [Symbol("s"), "Symbol(s)"],
  [listener, "a function"],
  [plain, "an object"],
  [revoked, "a proxy that was revoked"],
  [new Date(0), "an object"],
  [new String("x"), "an object"],
  [new URL("data:,x"), "a data: URL"],
  [new Set(["x"]), "an object"],
  [new AbortController(), "an object"],
  [signal, "an object"],
  [executor, "a handle"],
  [model, "a handle"],
  [executor.compiled, "an object"],
  [none, "[]"],
  [["serial"], '["serial"]'],
  // Numbers that are no count, or too large a one.
  [NaN, "NaN"],
  [-1, "-1"],
  [-7, "-7"],
  [0.5, "0.5"],
  [1.5, "1.5"],
  [-0, "-0"],
  [0, "0"],
  [1, "1"],
  [many, String(many)],
  [2 ** 53, String(2 ** 53)],
  [1e300, "1e+300"],
  [Infinity, "Infinity"],
  // Duplicate, and unknown as an id.
  [twice, "[0, 0]"],
  [unknown, "[1000000]"],
  [["cls", "cls"], '["cls", "cls"]'],
  ["haswell", '"haswell"'],
  ["INTEL-HASWELL", '"INTEL-HASWELL"'],
  ["intel-haswell ", '"intel-haswell "'],
  ["aws-g2", '"aws-g2"'],
  ["avg", '"avg"'],
  ["f16", '"f16"'],
  ["Parked", '"Parked"'],
]);

/** Those of them that are strings. */
const strings = [...values.keys()].filter((value) => typeof value === "string");

/**
 * What a key takes.
 * - `absent`: what means the same as leaving it out, besides `undefined`.
 * - `accepted`: what else it takes. Loading a model takes a while, so they are few.
 * - `expected`: words by which a message says what would be accepted.
 * - `refused`: values that are refused in other words, and more values that are refused.
 * - `apart`: values that this table says nothing about.
 */
const options = {
  memoryDomains: {
    absent: [none],
    accepted: [[0]],
    expected: "an array of ids",
    refused: [
      [twice, ["`memoryDomains` is [0, 0]", "accepted"]],
      [unknown, ["no memory domain 1000000", "0"]],
      ...[[-1], [0, 0.5], [NaN], [2 ** 32], [0, -1], [,]].map((ids) => [
        ids,
        ["memoryDomains", "an array of ids"],
      ]),
      [[0, -1], ["[0, -1]"]],
    ],
  },
  threads: {
    absent: [0, -0],
    accepted: [1, 2],
    expected: "a whole number (0 or undefined: absent)",
    refused: [
      [many, ["1 to 1024"]],
      [1025, ["1 to 1024", "1025"]],
    ],
  },
  name: {
    accepted: ["x", "fifteen letters"],
    expected: "a string",
    // Names of up to 15 bytes are taken, each by threads that spin.
    apart: strings.filter((name) => name !== ""),
    refused: ["", "sixteen letters.", "a\0b", "\u00e4".repeat(8)].map((name) => [
      name,
      ["name", "1 to 15 bytes"],
    ]),
  },
  deferredLimit: {
    absent: [0, -0],
    accepted: [1, many],
    expected: "a whole number (0 or undefined: absent)",
  },
  cpuClass: {
    accepted: ["serial"],
    expected: "a string",
    refused: [
      ...strings
        .filter((word) => word !== "aws-g2")
        .map((word) => [word, ["accepted: serial, intel-haswell", JSON.stringify(word)]]),
      ["aws-g2", ["64-bit Arm", "would work: serial"]],
    ],
  },
  precision: {
    accepted: ["auto", "f32", "bf16", "i8"],
    expected: '"auto", "f32", "bf16", "i8"',
  },
  devices: {
    absent: [none],
    expected: "an array of ids",
    // What takes these options in all the table is no executor of GPUs.
    refused: [[0], twice, unknown].map((ids) => [ids, ["for a model on GPUs", "Executor.forVram"]]),
  },
  gpuClass: {
    expected: "a string",
    refused: strings.map((word) => [word, ["for a model on GPUs", "Executor.forVram"]]),
  },
  executor: { accepted: [executor], expected: "an Executor of this package" },
  cache: {
    accepted: [false],
    expected: "true or false",
    // A path is what the other options are tried with.
    refused: [[true, ["`false` for a path"]]],
  },
  signal: { accepted: [signal], expected: "an AbortSignal" },
  onProgress: { accepted: [listener], expected: "a function of (done, total)" },
  pooling: {
    accepted: ["mean", "cls", "max", "last", "mean-sqrt", "weighted-mean"],
    expected: '"mean", "cls", "max", "last", "mean-sqrt", "weighted-mean"',
  },
  normalize: { accepted: [true, false], expected: "true or false" },
  dimensions: {
    accepted: [1, 384],
    expected: "a whole number of at least 1",
    refused: [
      [many, ["1 to 384"]],
      [385, ["1 to 384", "385"]],
    ],
  },
  prompt: {
    expected: "a string",
    refused: strings.map((name) => [name, ["not a prompt of this model: it has none"]]),
  },
  promptText: {
    accepted: strings,
    expected: "a string",
  },
  truncate: { accepted: [true, "error"], expected: 'true, "error"' },
  special: { accepted: ["parse", "text"], expected: '"parse", "text"' },
};

/** The options of each function: how it is called with them, and what ends what it made. */
const encoding = [
  "executor",
  "pooling",
  "normalize",
  "dimensions",
  "prompt",
  "promptText",
  "truncate",
  "special",
];
const loading = ["executor", "memoryDomains", "cpuClass", "precision"];
const functions = {
  "Executor.forRam": {
    call: (given) => Executor.forRam(given),
    keys: ["memoryDomains", "threads", "cpuClass", "deferredLimit"],
  },
  "Executor.onPool": {
    call: (given) => Executor.onPool(pool.address, given),
    keys: ["memoryDomains", "cpuClass", "deferredLimit"],
  },
  "ThreadPool.spawn": {
    call: (given) => ThreadPool.spawn(given),
    keys: ["memoryDomains", "threads", "name"],
  },
  "Model.loadRam": { call: (given) => Model.loadRam(modelPath, given), keys: loading },
  "Model.open": {
    call: (given) => Model.open(modelPath, given),
    keys: [...loading, "devices", "gpuClass", "cache", "signal", "onProgress"],
    deferred: true,
  },
  "model.encodeTextSync": { call: (given) => model.encodeTextSync("x", given), keys: encoding },
  "model.encodeText": {
    call: (given) => model.encodeText("x", given),
    keys: [...encoding, "signal", "onProgress"],
    deferred: true,
  },
  "model.encodeTextStream": {
    call: (given) => model.encodeTextStream(["x"], given).next(),
    keys: [...encoding, "signal"],
    deferred: true,
  },
  "model.tokenize": { call: (given) => model.tokenize("x", given), keys: ["special"] },
  "model.countTokens": { call: (given) => model.countTokens("x", given), keys: ["special"] },
};

/** An executor of GPUs, where there are some: vram.test.mjs runs this file with stand-ins for them. */
if (gpuDevices().length > 0) {
  functions["Executor.forVram"] = {
    call: (given) => Executor.forVram(given),
    keys: [
      "devices",
      "gpuClass",
      "memoryDomains",
      "cpuClass",
      "streams",
      "scratchLimit",
      "deferredLimit",
    ],
    own: {
      devices: {
        ...options.devices,
        accepted: [[0]],
        refused: [
          [twice, ["`devices` is [0, 0]", "twice"]],
          [unknown, ["no device 1000000", "accepted"]],
        ],
      },
      gpuClass: {
        expected: "a string",
        accepted: ["nvidia-hopper", "nvidia-ampere"],
        refused: strings.map((word) => [word, ["accepted: nvidia-ampere", JSON.stringify(word)]]),
      },
      streams: {
        absent: [none],
        accepted: [[0n]],
        expected: "an array of addresses",
        refused: [
          [[-1n], ["streams", "an array of addresses"]],
          [[1n << 64n], ["streams", "an array of addresses"]],
          [[0], ["streams", "an array of addresses"]],
          [
            [0n, 0n],
            ["`streams` has 2", "1 devices"],
          ],
          [[8n], ["`streams`, for device 0: stream 0x8 is not one of"]],
        ],
      },
      scratchLimit: options.deferredLimit,
    },
  };
}

/** Arguments that stand for themselves, in the form of options. */
const path = {
  expected: "the path of a model's folder or .safetensors file",
  accepted: [modelPath],
  refused: [
    [undefined, ["path", "undefined"]],
    ["a\0b", ["path", "\\u0000"]],
  ],
  // What is not there is another error.
  apart: strings.filter((path) => path !== ""),
};
const texts = {
  expected: "a string or an array of strings",
  accepted: [none, ...strings],
  refused: [
    [undefined, ["texts", "undefined"]],
    [twice, ["`texts[0]`", "a string", "received 0"]],
    [[revoked], ["`texts[0]`", "a string", "a proxy that was revoked"]],
    [
      ["x", 7],
      ["`texts[1]`", "a string", "received 7"],
    ],
    [
      ["x", , "y"],
      ["`texts[1]`", "a string", "received undefined"],
    ],
  ],
  // Arrays of strings are taken, others complain about an element.
  apart: [...values.keys()].filter(
    (value) => value !== revoked && Array.isArray(value) && value !== twice,
  ),
};
const mood = {
  absent: [],
  accepted: [Mood.Parked, -0, Mood.Spinning],
  expected: "one of 0, 1",
  refused: [[2, ["mood", "received 2"]]],
};
const poolAddress = {
  expected: "a bigint of at most 64 bits",
  accepted: [pool.address],
  refused: [
    ...[undefined, 0n, -1n, -pool.address, 1n << 64n, pool.address + (1n << 64n)].map((address) => [
      address,
      ["pool", "a bigint of at most 64 bits"],
    ]),
    [1n, ["0x1", "misaligned"]],
    ...[1n, 8n, 64n].map((off) => [
      pool.address + off,
      [(pool.address + off).toString(16), "misaligned"],
    ]),
  ],
};
const positions = {
  "Executor.onPool": {
    key: "pool",
    row: poolAddress,
    call: (value) => Executor.onPool(value),
  },
  "Model.loadRam": { key: "path", row: path, call: (value) => Model.loadRam(value) },
  "Model.open": { key: "source", row: path, call: (value) => Model.open(value), deferred: true },
  "model.encodeTextSync": {
    key: "texts",
    row: texts,
    call: (value) => model.encodeTextSync(value),
  },
  "model.encodeText": {
    key: "texts",
    row: texts,
    call: (value) => model.encodeText(value),
    deferred: true,
  },
  "model.tokenize": { key: "texts", row: texts, call: (value) => model.tokenize(value) },
  "model.countTokens": { key: "texts", row: texts, call: (value) => model.countTokens(value) },
  "executor.drain": { key: "mood", row: mood, call: (value) => executor.drain(value) },
  "executor.drainAsync": {
    key: "mood",
    row: mood,
    call: (value) => executor.drainAsync(value),
    deferred: true,
  },
};

/** What a row refuses: each value, and the words its message must have. */
function refusals(key, { absent = [], accepted = [], expected, refused = [], apart = [] }) {
  const taken = [undefined, ...absent, ...accepted, ...apart];
  const special = new Map(refused);
  const rest = [...values].filter(
    ([value]) => !special.has(value) && !taken.some((one) => Object.is(one, value)),
  );
  return [
    ...rest.map(([value, shown]) => [value, [key, expected, shown]]),
    ...refused.map(([value, words]) => [value, [key, ...words]]),
  ];
}

/** The message of the refusal, which a promise form reports by rejecting. */
async function refusal(call, value, deferred, shown) {
  let failure;
  try {
    const outcome = call(value);
    if (deferred)
      failure = await outcome.then(
        () => undefined,
        (error) => error,
      );
  } catch (error) {
    assert.ok(!deferred, `${shown} threw rather than rejected: ${error}`);
    failure = error;
  }
  assert.ok(failure, `${shown} was accepted`);
  assert.equal(failure.constructor, InvalidArgumentError, `${shown}: ${failure.stack}`);
  return failure.message;
}

async function refuses(call, value, deferred, words, shown) {
  const message = await refusal(call, value, deferred, shown);
  for (const word of words)
    assert.ok(message.includes(word), `${shown}: no ${word} in: ${message}`);
}

/** What the process has that a refused call must not have added to. */
const made = () => /^Threads:.*$/m.exec(readFileSync("/proc/self/status"))[0];

/** Nothing was made or left behind, and the executor takes an immediate call. */
function untouched(before, where) {
  assert.equal(made(), before, `${where} left threads behind`);
  assert.equal(model.encodeTextSync("x", { executor }).rows, 1);
}

async function accepts(call, value) {
  const outcome = await call(value);
  if ([Executor, Model, ThreadPool].some((kind) => outcome instanceof kind)) outcome.free();
}

// The thread of calls without an executor is there from now on.
await model.encodeText("x");

for (const [name, { call, keys, deferred, own }] of Object.entries(functions)) {
  const rows = { ...options, ...own };
  test(`${name} has a row for each of its options, and no other`, async () => {
    const message = await refusal(call, { "no such option": 1 }, deferred, name);
    const [, valid] = /^(?=.*"no such option").*\(valid: (.*)\)$/.exec(message);
    assert.deepEqual(valid.split(", "), keys);
    for (const key of keys) assert.ok(Object.hasOwn(rows, key), key);
  });

  test(`${name} takes what its options are for`, async () => {
    const absent = Object.fromEntries(keys.map((key) => [key, undefined]));
    const bare = [Object.create(null), Object.freeze(Object.create(null))];
    for (const given of [undefined, {}, ...bare, absent]) await accepts(call, given);
    for (const key of keys) {
      const { absent = [], accepted = [] } = rows[key];
      for (const value of [...absent, ...accepted]) await accepts(call, { [key]: value });
    }
  });

  test(`${name} refuses everything else in its options`, async () => {
    const before = made();
    for (const key of keys) {
      for (const [value, words] of refusals(key, rows[key])) {
        const shown = `${name}({ ${key}: ${inspect(value)} })`;
        await refuses(call, { [key]: value }, deferred, words, shown);
      }
    }
    untouched(before, name);
  });

  test(`${name} refuses unknown options, naming the nearest, and what is no object`, async () => {
    const before = made();
    for (const key of keys) {
      for (const slip of [key.toUpperCase(), key.slice(0, -1), `${key}s`]) {
        if (keys.includes(slip)) continue;
        const words = [JSON.stringify(slip), `\`${key}\``, `valid: ${keys.join(", ")}`];
        await refuses(call, { [slip]: undefined }, deferred, words, `${name}: ${slip}`);
      }
    }
    for (const key of ["x", "cache", "__proto__", "constructor", Symbol("s")]) {
      if (keys.includes(key)) continue;
      const given = Object.defineProperty({}, key, { value: 1, enumerable: true });
      const words = ["unknown option", typeof key === "string" ? `"${key}"` : "Symbol(s)"];
      await refuses(call, given, deferred, words, `${name}: ${String(key)}`);
    }
    for (const [value, shown] of values) {
      if (value === plain) continue;
      const words = [`any of ${keys.join(", ")}`, shown];
      await refuses(call, value, deferred, words, `${name}(${inspect(value)})`);
    }
    untouched(before, name);
  });
}

for (const [name, { key, row, call, deferred }] of Object.entries(positions)) {
  test(`${name} takes and refuses its ${key}`, async () => {
    for (const value of [...(row.absent ?? []), ...row.accepted]) await accepts(call, value);
    const before = made();
    for (const [value, words] of refusals(key, row)) {
      await refuses(call, value, deferred, words, `${name}(${inspect(value)})`);
    }
    untouched(before, name);
  });
}

test("a message is of a few lines, whatever is quoted in it", async () => {
  const long = "é".repeat(1 << 20);
  const million = Array.from({ length: 1_000_000 }, (_, index) => index);
  const calls = {
    "memory domains": () => Executor.forRam({ memoryDomains: million }),
    "memory domains to load into": () => Model.open(modelPath, { memoryDomains: million }),
    "an array of strings": () => Executor.forRam({ memoryDomains: [long, long] }),
    "a CPU class": () => Executor.forRam({ cpuClass: long }),
    "a precision": () => Model.loadRam(modelPath, { precision: long }),
    "a pooling": () => model.encodeTextSync("x", { pooling: long }),
    "a prompt": () => model.encodeTextSync("x", { prompt: long }),
    "a pool's name": () => ThreadPool.spawn({ name: long }),
    "a count": () => Executor.forRam({ threads: 1n << 8_000_000n }),
    "an address": () => Executor.onPool(1n << 8_000_000n),
    "an option": () => Executor.forRam({ [long]: 1 }),
    "an option that is a symbol": () => Executor.forRam({ [Symbol(long)]: 1 }),
    "a symbol": () => Executor.forRam({ threads: Symbol(long) }),
    "a signal": () => model.encodeText("x", { signal: long }),
    "a number among texts": () => model.encodeText([1n << 8_000_000n]),
    "a file's name": () => Model.open({ "config.json": new ReadableStream(), [long]: 1 }),
  };
  if (gpuDevices().length > 0) {
    calls.devices = () => Executor.forVram({ devices: million });
    calls["a GPU class"] = () => Executor.forVram({ gpuClass: long });
  }
  for (const [what, call] of Object.entries(calls)) {
    const failure = await (async () => call())().catch((error) => error);
    assert.equal(failure.constructor, InvalidArgumentError, `${what}: ${failure.stack}`);
    assert.ok(failure.message.length < 1000, `${what}: ${failure.message.length} characters`);
  }
  // Nobody quotes a path in part: of one that is longer than any system's the middle is left out.
  for (const call of [() => Model.loadRam(long), () => Model.open(`/${long}`)]) {
    const { message } = await (async () => call())().catch((error) => error);
    assert.ok(message.length < 2112 && / more bytes\)/.test(message), `${message.length}`);
    assert.match(message, /é: .+$/);
  }
});

test("an immediate call says which function takes what it does not", async () => {
  for (const key of ["signal", "onProgress"]) {
    const call = (given) => model.encodeTextSync("x", given);
    await refuses(call, { [key]: undefined }, false, [key, "encodeText takes it"], key);
  }
  for (const config of [undefined, {}, { cpuClass: undefined, deferredLimit: 0 }]) {
    Executor.onPool(pool.address, config).free();
  }
  for (const config of [undefined, {}, { threads: 0, name: undefined }]) {
    ThreadPool.spawn(config).free();
  }
});

test("a prompt by name and one as text exclude each other", async () => {
  const given = { prompt: "query", promptText: "query: " };
  const call = (given) => model.encodeText("x", given);
  await refuses(call, given, true, ["`prompt`", "`promptText`"], "both");
});

test("handles are made by their functions, not by `new`", async () => {
  await refuses(() => new Executor({ threads: 1 }), 0, false, ["Executor.forRam"], "new Executor");
  await refuses(() => new Model(modelPath), 0, false, ["Model.loadRam"], "new Model");
});

test("the type of a class has the words that the engine accepts", async () => {
  const call = (cpuClass) => Executor.forRam({ cpuClass });
  const [, accepted] = /accepted: (.*)$/.exec(await refusal(call, "x", false, "cpuClass"));
  const [, union] = /type CpuClass = ([^;]*);/.exec(
    readFileSync(`${root}dist/hardware.d.ts`, "utf8"),
  );
  assert.deepEqual(union.match(/[^"| ]+/g), accepted.split(", "));
});
