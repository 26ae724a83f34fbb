// The command line as its user has it: processes, their output, their exit codes.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { readdirSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as after } from "node:timers/promises";
import { test } from "node:test";
import { capabilitiesAvailable, capabilitiesCompiled, Model } from "uform";
import { modelPath, root } from "./support.mjs";

const program = join(root, "dist/cli/main.js");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const folder = mkdtempSync(join(tmpdir(), "uform-cli-"));
const model = Model.loadRam(modelPath);
test.after(() => {
  model.free();
  rmSync(folder, { recursive: true });
});

const env = { ...process.env, UFORM_MODEL: modelPath };

/** Runs it to its end. */
function uform(args, { input = "", cwd = folder, env: own = env } = {}) {
  const options = { input, cwd, env: own, maxBuffer: 1 << 28, timeout: 60_000 };
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    [program, ...args],
    options,
  );
  return { status, signal, stdout: stdout.toString(), stderr: stderr.toString() };
}

/** Runs it, expects success without a word on standard error, and returns what it wrote. */
function well(args, options) {
  const { status, stdout, stderr } = uform(args, options);
  assert.deepEqual({ status, stderr }, { status: 0, stderr: "" }, args.join(" "));
  return stdout;
}

const rows = (lines) =>
  lines
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
const write = (name, content) => {
  writeFileSync(join(folder, name), content);
  return name;
};

/** The array file of that name: its shape, and its values in rows. */
function npy(name) {
  const file = readFileSync(join(folder, name));
  assert.equal(file.subarray(0, 8).toString("latin1"), "\x93NUMPY\x01\x00");
  const end = 10 + file.readUInt16LE(8);
  assert.equal(end % 64, 0, "numbers are aligned");
  const header = file.subarray(10, end).toString("latin1");
  const pattern = /^\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n$/;
  const [, ...shape] = pattern.exec(header).map(Number);
  const values = new Float32Array(
    file.buffer.slice(file.byteOffset + end, file.byteOffset + file.length),
  );
  assert.equal(values.length, shape[0] * shape[1]);
  return { shape, row: (index) => values.subarray(index * shape[1], (index + 1) * shape[1]) };
}

test("help and version go to standard output, and nothing else does", () => {
  for (const flag of ["--version", "-v"]) assert.equal(well([flag]), `${version}\n`);
  for (const flag of ["--help", "-h"]) {
    assert.match(well([flag]), /^Usage: uform <command>/);
    assert.match(well(["info", flag]), /^Usage: uform info/);
    assert.match(well(["embed", "--threads", "2", flag]), /^Usage: uform embed/);
    assert.match(well(["quantize", flag]), /^Usage: uform quantize/);
  }
});

test("info tells the machine as the package sees it, for people and for programs", () => {
  const found = JSON.parse(well(["info", "--json"]));
  assert.deepEqual(Object.keys(found), [
    "package",
    "addon",
    "node",
    "platform",
    "cpu",
    "cores",
    "memory",
    "gpus",
    "capabilities",
    "error",
  ]);
  assert.deepEqual([found.package, found.addon, found.error], [version, version, null]);
  assert.equal(found.node, process.versions.node);
  assert.match(found.platform, /^linux-x64, glibc \d/);
  assert.equal(found.cpu.class, model.describe().cpuClass);
  assert.ok(found.cpu.classes.includes(found.cpu.class) && found.cpu.classes.includes("serial"));
  assert.ok(found.cores.usable >= 1 && found.cores.usable <= found.cores.online);
  assert.deepEqual([found.memory.problem, found.memory.memoryDomains[0].allowed], [null, true]);
  assert.ok(found.memory.memoryDomains.every(({ bytes }) => bytes > 0));
  assert.deepEqual(found.capabilities, {
    compiled: capabilitiesCompiled().split(","),
    available: capabilitiesAvailable().split(","),
  });
  const table = well(["info"]);
  const words = [
    version,
    found.cpu.class,
    `${found.cores.usable}: `,
    "memory domain 0",
    "compiled",
  ];
  for (const word of words) {
    assert.ok(table.includes(word), word);
  }
});

test("info counts the cores that taskset leaves, and says so", (t) => {
  const args = ["-c", "0", process.execPath, program, "info", "--json"];
  const { error, status, stdout } = spawnSync("taskset", args, { encoding: "utf8" });
  if (error || status !== 0) return t.skip("SKIPPED: no taskset, or no core 0");
  const { usable, limit, online, affinity } = JSON.parse(stdout).cores;
  assert.deepEqual([usable, affinity], [1, 1]);
  assert.equal(limit, online === 1 ? "machine" : "affinity");
});

test("info without an addon tells what to install, and fails", () => {
  const bare = join(folder, "bare");
  mkdirSync(bare);
  cpSync(join(root, "dist"), join(bare, "dist"), { recursive: true });
  cpSync(join(root, "package.json"), join(bare, "package.json"));
  const args = [join(bare, "dist/cli/main.js"), "info", "--json"];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  assert.deepEqual([status, stderr], [1, ""]);
  const found = JSON.parse(stdout);
  assert.deepEqual([found.package, found.addon, found.cpu], [version, null, null]);
  assert.match(found.error, /npm install @uform\/linux-x64-gnu/);
});

test("lines are texts: a BOM, CRLF, empty lines, ill-formed bytes and a missing end", () => {
  const cases = [
    ["", []],
    ["\n", [""]],
    ["one", ["one"]],
    ["one\n", ["one"]],
    ["one\r\ntwo\r\n", ["one", "two"]],
    ["\ufeffone\n\n\ntwo", ["one", "", "", "two"]],
    [Buffer.from("a\xffb\nc\xe2\x82", "latin1"), ["a\ufffdb", "c\ufffd"]],
    ["a\rb\n", ["a\rb"]],
    ["\u2028\n", ["\u2028"]],
  ];
  for (const [input, texts] of cases) {
    const out = well(["embed"], { input });
    const found = out === "" ? [] : rows(out);
    assert.deepEqual(
      found.map(({ text }) => text),
      texts,
      JSON.stringify(input),
    );
  }
});

test("vectors are the package's own, bit for bit, in both formats", () => {
  const texts = ["a red bicycle", "", "ein rotes Fahrrad", "中文 👩‍👩‍👧"];
  write("texts.txt", `${texts.join("\n")}\n`);
  const found = rows(well(["embed", "texts.txt"]));
  assert.equal(well(["embed", "texts.txt", "--out", "vectors.npy"]), "");
  assert.equal(well(["embed", "texts.txt", "--out", "vectors.jsonl"]), "");
  assert.deepEqual(rows(readFileSync(join(folder, "vectors.jsonl"), "utf8")), found);
  const array = npy("vectors.npy");
  const expected = model.encodeTextSync(texts);
  assert.deepEqual(array.shape, [texts.length, expected.dimensions]);
  for (const [index, text] of texts.entries()) {
    assert.equal(found[index].text, text);
    assert.deepEqual(Float32Array.from(found[index].embedding), expected.row(index));
    assert.deepEqual(array.row(index), expected.row(index));
  }
});

test("files follow each other, with standard input where it is named", () => {
  write("first.txt", "one\ntwo");
  write("last.txt", "four\n");
  const found = rows(well(["embed", "first.txt", "-", "last.txt"], { input: "three\n" }));
  assert.deepEqual(
    found.map(({ text }) => text),
    ["one", "two", "three", "four"],
  );
});

test("more texts than a batch has, lines that chunks cut, and no text at all", () => {
  const texts = Array.from({ length: 2500 }, (_, index) => (index % 7 ? "é" : `text ${index}`));
  texts[100] = "word ".repeat(30_000);
  write("many.txt", texts.join("\n"));
  const { status, stderr } = uform(["embed", "many.txt", "--out", "many.npy", "--dimensions", "8"]);
  assert.equal(status, 0, stderr);
  assert.match(stderr, /^uform: 1 of 2500 texts have more than 256 tokens, and were cut\n$/);
  const array = npy("many.npy");
  assert.deepEqual(array.shape, [2500, 8]);
  const expected = model.encodeTextSync(texts.slice(0, 120), { dimensions: 8 });
  for (let row = 0; row < expected.rows; row++) assert.deepEqual(array.row(row), expected.row(row));

  well(["embed", "--out", "none.npy"]);
  assert.deepEqual(npy("none.npy").shape, [0, 384]);
  well(["embed", "--out", "none.jsonl"]);
  assert.equal(statSync(join(folder, "none.jsonl")).size, 0);
});

test("options reach the model", () => {
  const [text] = ["which bicycle?"];
  const options = [
    "--threads",
    "1",
    "--pooling",
    "cls",
    "--dimensions=4",
    "--prompt-text",
    "query: ",
  ];
  const [found] = rows(well(["embed", ...options], { input: text }));
  const expected = model.encodeTextSync(text, {
    pooling: "cls",
    dimensions: 4,
    promptText: "query: ",
  });
  assert.deepEqual(Float32Array.from(found.embedding), expected.row(0));
});

test("a model is the named one, the environment's, or the only one in ./models", () => {
  const { UFORM_MODEL: _, ...bare } = env;
  const none = uform(["embed"], { env: bare });
  assert.equal(none.status, 2);
  for (const word of ["--model", "UFORM_MODEL", "./models", "hf download"]) {
    assert.ok(none.stderr.includes(word), none.stderr);
  }
  const cwd = join(folder, "project");
  mkdirSync(join(cwd, "models"), { recursive: true });
  symlinkSync(modelPath, join(cwd, "models/first"));
  assert.equal(rows(well(["embed"], { input: "x", cwd, env: bare })).length, 1);
  symlinkSync(modelPath, join(cwd, "models/second"));
  const several = uform(["embed"], { cwd, env: bare });
  assert.equal(several.status, 2);
  assert.match(several.stderr, /--model: models\/first, models\/second/);
  const named = { input: "x", cwd, env: { ...bare, UFORM_MODEL: "/no/such" } };
  assert.equal(rows(well(["embed", "--model", "models/second"], named)).length, 1);
});

/** What is not understood: the arguments, and the words the message must have. */
const misunderstood = [
  [[], "a command is missing", "Usage: uform"],
  [["zip"], '"zip" is not a command', "info, embed, quantize"],
  [["quantise"], "did you mean quantize?"],
  [["ebmed"], "did you mean embed?"],
  [["toString"], "is not a command"],
  [["info", "now"], "info takes no arguments", "now"],
  [["info", "--jsn"], "--jsn is not an option", "did you mean --json?"],
  [["info", "--json=yes"], "--json takes no value", '"yes"'],
  [["embed", "--modle", "x"], "--modle is not an option", "did you mean --model?"],
  [["embed", "-m", "x"], "-m is not an option", "--model"],
  [["embed", "--__proto__"], "is not an option"],
  [["embed", "--model"], "--model needs a value"],
  [["embed", "--model", "--out"], "--model needs a value", "--model=--out"],
  [["embed", "--threads", "1", "--threads", "2"], "--threads is there twice"],
  [["embed", "-", "-"], "- is there twice"],
  ...["0", "-1", "1.5", "1e3", "many", "", "99999999999999999999"].map((threads) => [
    ["embed", `--threads=${threads}`],
    "--threads takes a whole number of at least 1",
    JSON.stringify(threads),
  ]),
  [["embed", "--threads", "1000000"], "threads", "1000000"],
  [["embed", "--dimensions", "385"], "385", "1 to 384"],
  [["embed", "--pooling", "avg"], '"mean", "cls"', '"avg"'],
  [["embed", "--prompt", "query"], '"query"', "it has none"],
  [["embed", "--truncate", "cut"], "--truncate takes error", '"cut"'],
  [["embed", "--out", "vectors.csv"], "--out", ".jsonl, .ndjson or .npy", '"vectors.csv"'],
  [["quantize", "--weights", "i8"], "a model and a new folder", "uform quantize IN OUT"],
  [["quantize", modelPath, "--weights", "i8"], "a model and a new folder"],
  [["quantize", "a", "b", "c", "--weights", "i8"], "c was given as well"],
  [["quantize", modelPath, "new"], "--weights is missing", "i8 or f16"],
  [["quantize", modelPath, "new", "--weights", "i4"], "--weights takes i8, f16", '"i4"'],
  [["quantize", modelPath, "new", "--wieghts", "i8"], "did you mean --weights?"],
  [["quantize", modelPath, modelPath, "--weights", "i8"], modelPath, "new or empty"],
];

test("what is not understood says what would be, and exits with 2", () => {
  for (const [args, ...words] of misunderstood) {
    const { status, stdout, stderr } = uform(args);
    assert.deepEqual([status, stdout], [2, ""], `${args.join(" ")}: ${stderr}`);
    assert.match(stderr, /^uform: /);
    for (const word of words) assert.ok(stderr.includes(word), `${word}: ${stderr}`);
  }
});

test("what fails says why, exits with 1, and leaves no file", () => {
  mkdirSync(join(folder, "target.npy"));
  write("long.txt", `short\n${"word ".repeat(400)}\n`);
  const before = readdirSync(folder);
  for (const [args, ...words] of [
    [["embed", "no-such.txt"], "no-such.txt: no such file"],
    [["embed", folder], folder, "a folder"],
    [["embed", "--model", "/no/such"], "/no/such"],
    [["embed", "--out", "no/such/folder.npy"], "no/such/folder.npy"],
    [["embed", "--out", "target.npy"], "target.npy", "not a regular file"],
    [["embed", "long.txt", "--truncate", "error", "--out", "new.npy"], "long.txt:2", "256", "402"],
    [["embed", "/proc/self/mem", "--out", "new.jsonl"], "EIO"],
    [["quantize", "/no/such", "new", "--weights", "i8"], "/no/such"],
    [
      ["quantize", modelPath, "no/such/new", "--weights", "i8"],
      "no/such/new",
      "there is no folder",
    ],
  ]) {
    const { status, stdout, stderr } = uform(args);
    assert.deepEqual([status, stdout], [1, ""], `${args.join(" ")}: ${stderr}`);
    for (const word of words) assert.ok(stderr.includes(word), `${word}: ${stderr}`);
    assert.deepEqual(readdirSync(folder), before, args.join(" "));
  }
});

/** Starts it on lines that never end; what it wrote so far is in `stdout`. */
function endless(args) {
  const child = spawn(process.execPath, [program, "embed", ...args], { cwd: folder, env });
  let stderr = "";
  child.stderr.on("data", (text) => (stderr += text));
  child.stdin.on("error", () => {});
  const feed = () => child.stdin.writable && child.stdin.write("another line\n".repeat(1000), feed);
  feed();
  return { child, errors: () => stderr };
}

test("a reader that has had enough ends it quietly", async () => {
  const { child, errors } = endless([]);
  await once(child.stdout, "data");
  child.stdout.destroy();
  const [code, signal] = await once(child, "exit");
  assert.deepEqual([code, signal, errors()], [0, null, ""]);
});

test("output is there while input is waited for", async () => {
  const child = spawn(process.execPath, [program, "embed"], { env });
  for (const text of ["first", "second"]) {
    child.stdin.write(`${text}\n`);
    const [line] = await once(child.stdout, "data");
    assert.ok(line.toString().startsWith(`{"text":"${text}"`));
  }
  child.stdin.end();
  assert.deepEqual(await once(child, "exit"), [0, null]);
});

test("a slow reader is waited for, in bounded memory", async () => {
  const { child } = endless([]);
  await once(child.stdout, "data");
  child.stdout.pause();
  const resident = () =>
    /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`))[1] / 1e3;
  await after(1000);
  const before = resident();
  await after(1500);
  assert.ok(resident() - before < 50, `${before} MB grew to ${resident()}`);
  child.kill("SIGKILL");
  await once(child, "exit");
});

test("a signal leaves what was there, and nothing half-made", async () => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    write("kept.npy", "old");
    const before = readdirSync(folder);
    const { child, errors } = endless(["--out", "kept.npy"]);
    const started = () => readdirSync(folder).some((name) => name.endsWith(".part"));
    while (!started()) await after(10);
    child.kill(signal);
    const ended = await once(child, "exit");
    assert.deepEqual([...ended, errors()], [null, signal, ""]);
    assert.deepEqual(readdirSync(folder), before);
    assert.equal(readFileSync(join(folder, "kept.npy"), "utf8"), "old");
  }
});

test("an output replaced a file only its owner could read by one that everybody could", () => {
  write("secret.jsonl", "old");
  chmodSync(join(folder, "secret.jsonl"), 0o600);
  well(["embed", "--out", "secret.jsonl"], { input: "x" });
  assert.equal(statSync(join(folder, "secret.jsonl")).mode & 0o777, 0o600);
});

test("a folder as standard input passed for one without lines", () => {
  const file = openSync(folder);
  const options = { stdio: [file, "pipe", "pipe"], env, encoding: "utf8" };
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, "embed"], options);
  closeSync(file);
  assert.deepEqual([status, stdout], [1, ""]);
  assert.match(stderr, /standard input is a folder/);
});

test("an output that is a link is written where the link leads", () => {
  mkdirSync(join(folder, "elsewhere"));
  write("elsewhere/real.jsonl", "old");
  symlinkSync("elsewhere/real.jsonl", join(folder, "link.jsonl"));
  well(["embed", "--out", "link.jsonl"], { input: "x" });
  assert.equal(rows(readFileSync(join(folder, "elsewhere/real.jsonl"), "utf8"))[0].text, "x");
});

test("quantize writes the model in a half or a quarter of the bytes, and tells how near it is", () => {
  const texts = ["a red bicycle", "", "Wo steht das rote Fahrrad?", "中文 👩‍👩‍👧"];
  const original = Model.loadRam(modelPath, { precision: "f32" });
  const [expected, before] = [original.encodeTextSync(texts), original.describe()];
  original.free();
  for (const [weights, most, precisions, least] of [
    ["f16", 46e6, ["f32"], 0.99999],
    ["i8", 24e6, ["f32", "i8"], 0.995],
  ]) {
    const args = ["quantize", modelPath, weights, "--weights", weights];
    const [sizes, ...cosines] = well(args).trimEnd().split("\n");
    const bytes = statSync(join(folder, weights, "model.safetensors")).size;
    assert.ok(bytes <= most, `${bytes}`);
    assert.equal(sizes, `90.9 MB of weights became ${(bytes / 1e6).toFixed(1)} MB`);
    const pattern = /over \d+ texts, computed in (\w+): least (\d\.\d{6}), mean \d\.\d{6}$/;
    const found = cosines.map((line) => pattern.exec(line));
    assert.deepEqual(
      found.map(([, precision]) => precision),
      precisions,
    );
    assert.ok(found.every(([, , cosine]) => cosine >= least && cosine <= 1));

    for (const precision of ["auto", ...precisions]) {
      const small = Model.loadRam(join(folder, weights), { precision });
      const { parameters, dimensions, tokenLimit, pooling } = small.describe();
      assert.deepEqual(
        { parameters, dimensions, tokenLimit, pooling },
        {
          parameters: before.parameters,
          dimensions: before.dimensions,
          tokenLimit: before.tokenLimit,
          pooling: before.pooling,
        },
      );
      const vectors = small.encodeTextSync(texts);
      small.free();
      for (let row = 0; row < texts.length; row++) {
        const other = expected.row(row);
        const cosine = vectors.row(row).reduce((sum, value, at) => sum + value * other[at], 0);
        assert.ok(cosine >= (precision === "auto" ? 0.995 : least), `${precision}: ${cosine}`);
      }
    }
  }
  const twice = uform(["quantize", "i8", "again", "--weights", "f16"]);
  assert.equal(twice.status, 2);
  assert.match(twice.stderr, /quantized already/);
});

test("a signal to quantize leaves a whole model or none", async () => {
  for (const [signal, wait] of [
    ["SIGINT", 0],
    ["SIGTERM", 50],
    ["SIGHUP", 300],
  ]) {
    const into = `after-${signal}`;
    const before = readdirSync(folder);
    const args = ["quantize", modelPath, into, "--weights", "i8"];
    const child = spawn(process.execPath, [program, ...args], { cwd: folder, env });
    const ended = once(child, "exit");
    const started = () => readdirSync(folder).length > before.length;
    while (!started() && child.exitCode === null) await after(1);
    await after(wait);
    child.kill(signal);
    const [code, by] = await ended;
    const there = readdirSync(folder).filter((name) => !before.includes(name));
    if (by === null) assert.equal(code, 0);
    else assert.equal(by, signal);
    // It may have been done before the signal came.
    assert.ok(
      there.length === 0 ? by !== null : there.length === 1 && there[0] === into,
      `${there}`,
    );
    if (there.length > 0) Model.loadRam(join(folder, into)).free();
  }
});

test("text that Windows wrote as UTF-16 is read as such, by its mark", () => {
  const lines = "a red bicycle\r\nein Fahrrad \u{1f6b2} \ud83d\r\n\r\n東京";
  const expected = rows(well(["embed"], { input: lines.toWellFormed?.() ?? lines }));
  const little = Buffer.from(`\ufeff${lines}`, "utf16le");
  const big = Buffer.from(little).swap16();
  for (const input of [little, big]) {
    assert.deepEqual(rows(well(["embed"], { input })), expected);
    const file = write("utf16.txt", input);
    assert.deepEqual(rows(well(["embed", file])), expected);
  }
  // A mark alone has no lines, half a unit is ill-formed, and two bytes are too few for any other mark.
  assert.equal(well(["embed"], { input: Buffer.from([0xff, 0xfe]) }), "");
  const half = rows(well(["embed"], { input: Buffer.from([0xff, 0xfe, 0x61, 0, 0x62]) }));
  assert.deepEqual(
    half.map(({ text }) => text),
    ["a\ufffd"],
  );
  assert.equal(rows(well(["embed"], { input: "ab" }))[0].text, "ab");
  const wide = uform(["embed"], { input: Buffer.from([0xff, 0xfe, 0, 0, 0x61, 0, 0, 0]) });
  assert.equal(wide.status, 1);
  assert.match(wide.stderr, /standard input: begins with the mark of UTF-32; save it as UTF-8/);
});
