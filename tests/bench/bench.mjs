// `npm run bench`: uform beside the tools people use today, on one model.
//
//   npm run bench -- [--rounds 3] [--texts 192] [--only REGEX]
//   npm run bench -- --install [--python INTERPRETER]     the other tools, once
//
// Every figure comes from a fresh process; the tools take turns, so that a busy
// moment of the machine hits all of them; the table shows medians over the
// rounds. Ratios within one table count, absolute figures belong to a machine.

import { fork } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { install } from "./install.mjs";
import { median } from "./median.mjs";
import { here, onnx, REFERENCE_TEXTS } from "./places.mjs";
import { tools } from "./tools.mjs";

const LOOP_TEXTS = 2000;
const YARDSTICK = "ort fp32";
const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    texts: { type: "string", default: "192" },
    only: { type: "string", default: "." },
    install: { type: "boolean", default: false },
    python: { type: "string" },
  },
});
const rounds = atLeastOne("rounds");
const texts = atLeastOne("texts");
if (texts > REFERENCE_TEXTS)
  throw new Error(`--texts takes at most ${REFERENCE_TEXTS}: no more have reference vectors`);

if (options.install) install(options.python);
const peersInstalled = existsSync(join(here, "node_modules")) && existsSync(onnx);
const threads = availableParallelism();
const columns = columnsToRun();
const results = new Map(columns.map((column) => [column.title, []]));
for (let round = 1; round <= rounds; round++) {
  for (const { title, tool, threads } of columns) {
    console.error(`round ${round} of ${rounds}: ${title}`);
    results.get(title).push(await measure(tool, threads));
  }
}
const loop = await report(fork(join(here, "loop.mjs"), [LOOP_TEXTS]));
print();

function columnsToRun() {
  const ours = [...new Set([1, threads])].map((threads) => ({
    title: `uform ${threads}T`,
    tool: "uform",
    threads,
  }));
  const others = Object.keys(tools)
    .filter((tool) => tool !== "uform" && peersInstalled)
    .map((tool) => ({ title: tool, tool, threads }));
  return [...ours, ...others].filter(({ title }) => new RegExp(options.only).test(title));
}

/** One tool in one fresh process. */
async function measure(tool, threads) {
  const start = performance.now();
  const child = fork(join(here, "worker.mjs"), [tool, threads, texts], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  let cold;
  child.once("message", () => (cold = (performance.now() - start) / 1000));
  const { result } = await report(child, (message) => message.result);
  const corpus = Math.max(...tools[tool].policies.map((policy) => result[policy]));
  return { ...result, corpus, cold };
}

/** The first message of a child that `wanted` accepts; a child that ends without one is an error. */
function report(child, wanted = () => true) {
  return new Promise((resolve, reject) => {
    child.on("message", (message) => wanted(message) && resolve(message));
    child.once("error", reject);
    child.once("exit", (code, signal) =>
      reject(new Error(`${child.spawnargs.slice(1).join(" ")} ended with ${signal ?? code}`)),
    );
  });
}

function print() {
  const rows = [
    ["one short query, p50, ms", "query", 2],
    ["32 short texts, texts/s", "short", 0],
    ["mixed corpus, best way, texts/s", "corpus", 0],
    ["  one text a call", "one", 0],
    ["  batches of 32", "batches", 0],
    ["  batches of 32, sorted by length", "sorted", 0],
    ["  all in one call", "whole", 0],
    ["cold start to first vector, s", "cold", 2],
    ["peak memory, short texts, MB", "peakShort", 0],
    ["peak memory, everything, MB", "peak", 0],
    ["least cosine to f32", "cosine", 6],
  ];
  const titles = columns.map((column) => column.title);
  const best = `uform ${threads}T`;
  const ratio = titles.includes(best) && titles.includes(YARDSTICK);
  const line = (name, cells) =>
    console.log(`| ${name.padEnd(33)} |${cells.map((cell) => ` ${cell.padStart(9)} |`).join("")}`);

  console.log(describeRun());
  line("", [...titles, ...(ratio ? ["÷ ort f32"] : [])]);
  line(
    "---",
    [...titles, ...(ratio ? [""] : [])].map(() => "---:"),
  );
  for (const [name, key, digits] of rows) {
    const cells = titles.map((title) => middle(title, key));
    if (cells.every((cell) => cell === undefined)) continue;
    // Cosines are all near 1: their quotient would say nothing.
    const quotient = key === "cosine" ? NaN : middle(best, key) / middle(YARDSTICK, key);
    const shown = cells.map((cell) => cell?.toFixed(digits) ?? "–");
    line(name, [
      ...shown,
      ...(ratio ? [Number.isFinite(quotient) ? `${quotient.toFixed(2)}×` : ""] : []),
    ]);
  }
  console.log(
    `\nEvent-loop delay of uform, ms: ${delay("a model opens", loop.open)}; ${delay(`${LOOP_TEXTS} texts are embedded`, loop.encode)}.`,
  );
  if (!peersInstalled)
    console.log(
      "\nThe other tools are not installed: npm run bench -- --install (several gigabytes).",
    );
}

/** The median of one measure over the rounds; undefined where the tool has no such measure. */
function middle(title, key) {
  const values = (results.get(title) ?? [])
    .map((result) => result[key])
    .filter((value) => value !== undefined);
  return values.length > 0 ? median(values) : undefined;
}

function delay(when, { p99, worst }) {
  return `p99 ${p99.toFixed(1)}, worst ${worst.toFixed(1)} while ${when}`;
}

function describeRun() {
  const version = (folder) =>
    JSON.parse(readFileSync(join(here, folder, "package.json"), "utf8")).version;
  const peers = peersInstalled ? ["onnxruntime-node", "@huggingface/transformers"] : [];
  const versions = [
    `uform ${version("../..")}`,
    `Node.js ${process.versions.node}`,
    ...peers.map((name) => `${name} ${version(`node_modules/${name}`)}`),
  ];
  return [
    `all-MiniLM-L6-v2 on ${cpus()[0].model}, ${threads} threads, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`,
    `${versions.join(", ")}; ${new Date().toISOString().slice(0, 10)}`,
    `medians of ${rounds} rounds; the corpus has ${texts} texts\n`,
  ].join("\n");
}

function atLeastOne(name) {
  const value = Number(options[name]);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`--${name} takes a whole number of at least 1, not ${options[name]}`);
  return value;
}
