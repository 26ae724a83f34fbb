// What is measured of one tool, in one fresh process.

import { existsSync, readFileSync } from "node:fs";
import { reference } from "./places.mjs";
import { Program } from "./program.mjs";
import { readMilliseconds } from "./reading.mjs";
import { median, percentile } from "./statistics.mjs";
import { corpus, queries, shortTexts, textOfTokens } from "./texts.mjs";

const BATCH = 32;
const LENGTHS = [8, 16, 32, 64, 128, 256];
const CALLERS = [1, 2, 4, 8, 16, 32, 64];

/** How much of everything: enough for figures, or (`--brief`) to see that all of it runs. */
export const plans = {
  full: {
    texts: 192,
    queries: 200,
    calls: 9,
    milliseconds: 1500,
    callerTexts: 512,
    lengthTexts: BATCH,
    lengthMilliseconds: 500,
  },
  brief: {
    texts: 12,
    queries: 10,
    calls: 1,
    milliseconds: 0,
    callerTexts: 64,
    lengthTexts: 1,
    lengthMilliseconds: 0,
  },
};

/** The ways to put texts of mixed lengths to a tool: the same texts in calls of different sizes. */
const callsBy = {
  one: (texts) => inCalls(texts, 1),
  batches: (texts) => inCalls(texts, BATCH),
  sorted: (texts) =>
    inCalls(
      texts.toSorted((a, b) => b.length - a.length),
      BATCH,
    ),
  whole: (texts) => [texts],
};

/**
 * Times in milliseconds, rates in texts a second, memory in MiB, cold start in seconds.
 * With `curves`, rates by length and latencies by callers as well, for the plots.
 */
export async function measure(tool, plan, curves) {
  const start = performance.now();
  const program = new Program(tool.command, environment(tool));
  try {
    await program.request({ calls: [["a red bicycle"]] });
    const cold = (performance.now() - start) / 1000;
    const result = {
      versions: await program.versions,
      cold,
      query: await queryMilliseconds(program, plan),
      reading: await weightsMilliseconds(program, tool),
      short: await shortTextsPerSecond(program, plan),
      peakShort: program.peakMegabytes(),
      ways: await corpusTextsPerSecond(program, tool, plan),
      peak: program.peakMegabytes(),
    };
    result.corpus = Math.max(...Object.values(result.ways));
    if (tool.callers) {
      const levels = curves ? CALLERS : CALLERS.slice(-1);
      result.callers = await latencies(program, levels, plan);
    }
    if (curves) result.lengths = await ratesByLength(program, plan);
    // Last: vectors as text take memory and time of their own.
    if (existsSync(reference)) result.cosine = await leastCosine(program, plan);
    return result;
  } finally {
    await program.end();
  }
}

/** The same threads for all, however a library asks for them, and no look at the network. */
function environment({ threads, env }) {
  const count = String(threads);
  return {
    OMP_NUM_THREADS: count,
    MKL_NUM_THREADS: count,
    RAYON_NUM_THREADS: count,
    TOKENIZERS_PARALLELISM: "true",
    HF_HUB_OFFLINE: "1",
    ...env,
  };
}

/** The median over single queries, one after the other. */
async function queryMilliseconds(program, plan) {
  const texts = queries().slice(0, plan.queries);
  const calls = inCalls(texts, 1);
  await program.request({ calls: calls.slice(0, 20) }); // warms up
  return median((await program.request({ calls })).times);
}

/** To read the weights once, with as many threads; undefined where a program does not say how many there are. */
async function weightsMilliseconds(program, { threads }) {
  const bytes = await program.weightBytes;
  return bytes === undefined ? undefined : readMilliseconds(bytes, threads);
}

async function shortTextsPerSecond(program, plan) {
  const texts = shortTexts();
  const times = await repeated(program, [texts], plan.calls, plan.milliseconds);
  return (1000 * texts.length) / median(times);
}

async function corpusTextsPerSecond(program, tool, plan) {
  const texts = corpus(plan.texts);
  const rates = {};
  for (const way of tool.ways) {
    const { wall } = await program.request({ calls: callsBy[way](texts) });
    rates[way] = (1000 * texts.length) / wall;
  }
  return rates;
}

/** Short texts by so many callers at a time, each with one text a call. */
async function latencies(program, levels, plan) {
  const texts = shortTexts();
  const calls = Array.from({ length: plan.callerTexts }, (_, i) => [texts[i % texts.length]]);
  const found = [];
  for (const callers of levels) {
    await program.request({ calls: calls.slice(0, callers), callers });
    const { times, wall } = await program.request({ calls, callers });
    const rate = (1000 * calls.length) / wall;
    found.push({ callers, p50: percentile(times, 50), p99: percentile(times, 99), rate });
  }
  return found;
}

/** Texts of one length, so that nobody pads: in batches or one a call, whichever is faster. */
async function ratesByLength(program, plan) {
  const found = [];
  for (const tokens of LENGTHS) {
    const texts = Array.from({ length: plan.lengthTexts }, (_, i) => textOfTokens(tokens, i));
    const rates = [];
    for (const calls of [callsBy.batches(texts), callsBy.one(texts)]) {
      const times = await repeated(program, calls, 1, plan.lengthMilliseconds);
      rates.push((1000 * texts.length) / median(times));
    }
    found.push({ tokens, rate: Math.max(...rates) });
  }
  return found;
}

/** Wall times of the same calls, after one run that warms up: at least `count` of them, for at least so long. */
async function repeated(program, calls, count, milliseconds) {
  await program.request({ calls });
  const times = [];
  for (let sum = 0; times.length < count || sum < milliseconds; sum += times.at(-1)) {
    times.push((await program.request({ calls })).wall);
  }
  return times;
}

/** Between the corpus's texts, one a call as is kindest to tools that pad, and the reference. */
async function leastCosine(program, plan) {
  const { vectors } = await program.request({
    calls: callsBy.one(corpus(plan.texts)),
    vectors: true,
  });
  const bytes = readFileSync(reference);
  const expected = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  const cosines = vectors.map((vector, row) => {
    const other = expected.subarray(row * vector.length, (row + 1) * vector.length);
    const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    return dot(vector, other) / Math.sqrt(dot(vector, vector) * dot(other, other));
  });
  return Math.min(...cosines);
}

function inCalls(texts, size) {
  const calls = [];
  for (let i = 0; i < texts.length; i += size) calls.push(texts.slice(i, i + size));
  return calls;
}
