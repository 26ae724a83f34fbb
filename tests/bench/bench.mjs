// `npm run bench`: uform beside the tools people use today, on one model.
//
//   npm run bench                                    uform and onnxruntime-node: minutes
//   npm run bench -- --peers candle,llama.cpp        beside those peers
//   npm run bench -- --all                           every peer, every precision, and the curves: three quarters of an hour
//   npm run bench -- --install [--peers …|--all]     brings what those peers need, once, then measures
//
//   --rounds 3           how often each tool is measured
//   --threads 2          for every tool; absent: the cores there are
//   --precisions f32,…   uform's, or `all`; absent: what it takes by itself
//   --curves             rates by length and latencies by callers, which `npm run bench:plots` draws
//   --json FILE          every figure of every round
//   --brief              a small part of the work: shows that all of it runs, its figures are worthless
//   --venv FOLDER        for --install: a virtual environment that has formats/requirements.txt
//
// Every tool is a program of its own under peers/, in a fresh process each time;
// the tools take turns, so that a busy moment of the machine hits all of them;
// tables show medians over the rounds, and ratios within a round. Ratios count:
// absolute figures belong to a machine.

import { fork } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { Model } from "../../dist/index.mjs";
import { install } from "./install.mjs";
import { measure, plans } from "./measure.mjs";
import { here, model, reference } from "./places.mjs";
import { tables } from "./report.mjs";
import { isInstalled, peers, toolsOf, uform } from "./tools.mjs";

const QUICK = ["onnxruntime-node"];
const PRECISIONS = ["auto", "f32", "bf16", "i8"];
const LOOP_TEXTS = { full: 2000, brief: 50 };

const { values: options } = parseArgs({
  options: {
    all: { type: "boolean", default: false },
    brief: { type: "boolean", default: false },
    curves: { type: "boolean", default: false },
    install: { type: "boolean", default: false },
    json: { type: "string" },
    peers: { type: "string" },
    precisions: { type: "string" },
    rounds: { type: "string", default: "3" },
    threads: { type: "string", default: String(availableParallelism()) },
    venv: { type: "string" },
  },
});
const rounds = atLeastOne("rounds");
const threads = atLeastOne("threads");
const size = options.brief ? "brief" : "full";
const names = peersToMeasure();

if (options.install) install(names, options.venv);
const tools = [...ours(), ...names.flatMap((name) => toolsOf(name, threads))];
const results = tools.map((tool) => ({ tool, rounds: [], failure: undefined }));
const loop = await loopDelays();
for (let round = 1; round <= rounds; round++) {
  for (const result of results.filter(({ failure }) => failure === undefined)) {
    console.error(`round ${round} of ${rounds}: ${result.tool.name}`);
    await measureOnce(result);
    // After each tool: a run that is broken off keeps what it has.
    if (options.json !== undefined) keep(options.json);
  }
}
console.log(tables(record()));
if (!existsSync(reference)) console.log("No cosines: no reference vectors before --install.");

/** One more round of a tool; one that fails is not measured again. */
async function measureOnce(result) {
  try {
    result.rounds.push(await measure(result.tool, plans[size], options.curves || options.all));
  } catch (error) {
    result.failure = error.message;
    console.error(`${result.tool.name} failed: ${error.message}`);
    process.exitCode = 1;
  }
}

function keep(file) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(record())}\n`);
}

/** The run so far: all there is to report, and what --json keeps. */
function record() {
  return {
    date: new Date().toISOString().slice(0, 10),
    machine: {
      cpu: cpus()[0].model,
      cores: availableParallelism(),
      memory: totalmem(),
      system: `Linux ${release()}`,
    },
    versions: Object.assign(
      { node: process.versions.node },
      ...results.flatMap(({ rounds }) => rounds.map(({ versions }) => versions)),
    ),
    settings: { model: "all-MiniLM-L6-v2", threads, rounds, size, texts: plans[size].texts },
    tools: results.map(({ tool: { name, peer, threads }, rounds, failure }) => ({
      name,
      peer,
      threads,
      failure,
      rounds,
    })),
    loop,
  };
}

/** The peers that were asked for; when none was, the quick ones if they are there. */
function peersToMeasure() {
  if (options.all) return known(Object.keys(peers));
  if (options.peers !== undefined) return known(options.peers.split(",").filter(Boolean));
  if (options.install || QUICK.every(isInstalled)) return QUICK;
  console.error(`Without ${QUICK.join(", ")}: npm run bench -- --install (several gigabytes).`);
  return [];
}

function known(names) {
  for (const name of names) {
    if (!Object.hasOwn(peers, name))
      throw new Error(`--peers takes ${Object.keys(peers).join(", ")}, not ${name}`);
    if (!options.install && !isInstalled(name))
      throw new Error(`${name} is not installed: npm run bench -- --install --peers ${name}`);
  }
  return names;
}

/** uform at each precision; its first one on a single thread as well. */
function ours() {
  const everything = options.precisions === "all" || (options.all && !options.precisions);
  const precisions = everything
    ? PRECISIONS.filter(isAccepted)
    : (options.precisions ?? "auto").split(",");
  const [first] = precisions;
  const alone = { ...uform(first, 1), name: `uform ${first}, 1 thread` };
  const tools = precisions.map((precision) => uform(precision, threads));
  return threads > 1 ? [...tools, alone] : tools;
}

/** Whether this build computes in a precision: the model is asked. */
function isAccepted(precision) {
  try {
    Model.loadRam(model, { precision }).free();
    return true;
  } catch (error) {
    if (["UFORM_INVALID_ARGUMENT", "UFORM_UNSUPPORTED"].includes(error.code)) return false;
    throw error;
  }
}

/** How long the event loop waits while uform works, in a process of its own. */
function loopDelays() {
  return new Promise((resolve, reject) => {
    const child = fork(join(here, "loop.mjs"), [threads, LOOP_TEXTS[size]]);
    child.once("message", resolve);
    child.once("error", reject);
    child.once("exit", (code, signal) =>
      reject(new Error(`loop.mjs ended with ${signal ?? code}`)),
    );
  });
}

function atLeastOne(name) {
  const value = Number(options[name]);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`--${name} takes a whole number of at least 1, not ${options[name]}`);
  return value;
}
