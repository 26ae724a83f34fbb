// One tool in a fresh process: `worker.mjs TOOL THREADS TEXTS`. Sends
// { first: true } once it has a vector, and { result } at the end.

import { existsSync, readFileSync } from "node:fs";
import { reference } from "./places.mjs";
import { median } from "./median.mjs";
import { corpus, queries, shortTexts } from "./texts.mjs";
import { tools } from "./tools.mjs";

const BATCH = 32;
const [name, threads, count] = process.argv.slice(2);
const { open, policies } = tools[name];

/** The ways to put a corpus of mixed lengths to a tool; each returns the vectors in the corpus's order. */
const encodeBy = {
  one: (texts) => inBatches(texts, 1),
  batches: (texts) => inBatches(texts, BATCH),
  sorted: async (texts) => {
    const order = texts.map((_, i) => i).sort((a, b) => texts[b].length - texts[a].length);
    const rows = await inBatches(
      order.map((i) => texts[i]),
      BATCH,
    );
    const vectors = [];
    order.forEach((i, row) => (vectors[i] = rows[row]));
    return vectors;
  },
  whole: (texts) => embed(texts),
};

const embed = await open(Number(threads));
await embed(["a red bicycle"]);
process.send({ first: true });

const result = {
  query: await queryMilliseconds(),
  short: await shortTextsPerSecond(),
  peakShort: peakMegabytes(),
};
const texts = corpus(Number(count));
let vectors;
for (const policy of policies) {
  const start = performance.now();
  const rows = await encodeBy[policy](texts);
  result[policy] = (1000 * texts.length) / (performance.now() - start);
  vectors ??= rows;
}
result.peak = peakMegabytes();
result.cosine = leastCosine(vectors);
process.send({ result }, () => process.exit());

async function inBatches(texts, size) {
  const vectors = [];
  for (let i = 0; i < texts.length; i += size)
    vectors.push(...(await embed(texts.slice(i, i + size))));
  return vectors;
}

/** The median over single queries, one after the other. */
async function queryMilliseconds() {
  const times = [];
  for (const query of queries()) {
    const start = performance.now();
    await embed([query]);
    times.push(performance.now() - start);
  }
  return median(times.slice(20)); // the first ones warm up
}

/** 32 short texts a call, for a second and a half. */
async function shortTextsPerSecond() {
  const texts = shortTexts();
  const times = [];
  for (const begin = performance.now(); times.length < 9 || performance.now() - begin < 1500;) {
    const start = performance.now();
    await embed(texts);
    times.push(performance.now() - start);
  }
  return (1000 * texts.length) / median(times.slice(2));
}

/** The most resident memory this process ever had. */
function peakMegabytes() {
  const [, kilobytes] = /^VmHWM:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"));
  return Number(kilobytes) / 1024;
}

/** Against the reference vectors; undefined where they have not been made. */
function leastCosine(vectors) {
  if (!existsSync(reference)) return undefined;
  const bytes = readFileSync(reference);
  const expected = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const cosines = vectors.map((vector, row) => {
    const other = expected.subarray(row * vector.length, (row + 1) * vector.length);
    const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    return dot(vector, other) / Math.sqrt(dot(vector, vector) * dot(other, other));
  });
  return Math.min(...cosines);
}
