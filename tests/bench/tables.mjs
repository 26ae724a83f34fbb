// `npm run bench:tables`: writes the figures of docs/bench.json into the Markdown, so that each has one source.
//
//   npm run bench:tables              README.md, docs/benchmarks.md and docs/scaling.md, from docs/bench.json
//   npm run bench:tables -- --check   changes nothing; fails when a file says something else than the JSON
//
// What stands between `<!-- bench: NAME -->` and `<!-- /bench -->` is the block of that name below.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { root } from "./places.mjs";
import { cell, columns, middle, table } from "./report.mjs";

export const source = "docs/bench.json";
export const written = ["README.md", "docs/benchmarks.md", "docs/scaling.md"];

/** The columns of the README's table: a tool as the record names it, and its title there. */
const SUMMARY = [
  ["uform auto", "uform"],
  ["uform i8", "uform i8"],
  ["uform f32", "uform f32"],
  ["onnxruntime-node fp32", "ORT fp32"],
  ["onnxruntime-node q8", "ORT q8"],
  ["transformers.js fp32", "t.js fp32"],
  ["transformers.js q8", "t.js q8"],
];

/** Its rows: a title, and the column of the report that has the figures. */
const SUMMARY_ROWS = [
  ["one short query, ms", "one query, ms"],
  ["32 short texts, texts/s", "32 short, texts/s"],
  ["mixed corpus, texts/s", "corpus, texts/s"],
  ["64 callers of one text, texts/s", "64 callers, texts/s"],
  ["their 99th percentile, ms", "their p99, ms"],
  ["cold start to first vector, s", "cold start, s"],
  ["peak memory, MiB", "peak, all, MiB"],
  ["least cosine to the f32 reference", "least cosine"],
];

const SPEED = ["one query, ms", "32 short, texts/s", "corpus, texts/s", "64 callers, texts/s"];
const FOOTPRINT = ["cold start, s", "peak, short, MiB", "peak, all, MiB", "least cosine"];
const SHARED = ["one query, ms", "32 short, texts/s", "corpus, texts/s"];

/** Bytes of all-MiniLM-L6-v2's dense layers in bf16: six layers of 12 · 384² weights. */
const WEIGHTS = 6 * 12 * 384 ** 2 * 2;
/** The texts of the block `reading`. */
const LONG = 256;

/** What can stand between the marks, by name. */
const blocks = {
  setup,
  summary: (run) => `${summary(run)}\n\n${setup(run, shortNames(run))}`,
  versions: ({ versions }) =>
    wrapped(`${listed(Object.entries(versions).map(([name, version]) => `${name} ${version}`))}.`),
  speed: (run) => byTool(run, [...SPEED, "their p99, ms"].map(figure)),
  footprint: (run) => byTool(run, FOOTPRINT.map(figure)),
  lengths: (run) => byTool(run, points(run, "lengths", "tokens", [["rate", 0]])),
  callers: (run) =>
    byTool(
      run,
      points(run, "callers", "callers", [
        ["p50", 1],
        ["p99", 1],
      ]),
    ),
  loop: ({ loop: { open, encode } }) => {
    const delay = ({ p99, worst }) => `${p99.toFixed(1)} ms (worst ${worst.toFixed(1)} ms)`;
    return wrapped(
      `The event loop's delay had a 99th percentile of ${delay(encode)} while texts were embedded, and of ` +
        `${delay(open)} while a model opened.`,
    );
  },
  threads: (run) => {
    const [one, all] = oneAndAll(run);
    const titles = [`1 thread`, `${run.settings.threads} threads`, "faster by"];
    const rows = SHARED.map((name) => {
      const { title, of, less } = column(name);
      const [a, b] = [one, all].map((rounds) => middle(rounds, of));
      const shown = [one, all].map((rounds) => cell(rounds, { ...column(name), note: undefined }));
      return [title, ...shown, `${(less ? a / b : b / a).toFixed(2)}×`];
    });
    return table(["", ...titles], rows);
  },
  reading: (run) => {
    const [one] = oneAndAll(run);
    const rate = middle(one, ({ lengths }) => lengths.find(({ tokens }) => tokens === LONG).rate);
    const gigabytes = (rate * WEIGHTS) / 1e9;
    return wrapped(
      `One thread computes ${rate.toFixed(0)} texts of ${LONG} tokens a second. It reads ` +
        `${(WEIGHTS / 1e6).toFixed(0)} MB of weights for each, which is ${gigabytes.toFixed(1)} GB/s where they do not ` +
        `stay in a cache that the cores share. A domain with 100 GB/s would feed ${Math.floor(100 / gigabytes)} such cores.`,
    );
  },
  query: (run) => {
    const { threads } = run.settings;
    const [one, all] = oneAndAll(run).map((rounds) => middle(rounds, column("one query, ms").of));
    // Of the time of one thread: what more threads share, and what they do not.
    const shared = (one - all) / (1 - 1 / threads);
    const alone = one - shared;
    const ms = (value) => `${value.toFixed(2)} ms`;
    return wrapped(
      `One query takes ${ms(one)} with one thread and ${ms(all)} with ${threads}. So ${ms(shared)} of it is work ` +
        `that threads share, and ${ms(alone)} is not: waking, tokens, the promise, meetings, and steps too short to ` +
        `share. By that, 8 threads would need ${ms(alone + shared / 8)}, and 32 threads ${ms(alone + shared / 32)}.`,
    );
  },
};

/** The text of a file with every block as `run` has it. */
export function filled(text, run) {
  return text.replace(
    /(<!-- bench: (\w+) -->\n).*?(<!-- \/bench -->)/gs,
    (_, open, name, close) => {
      if (!Object.hasOwn(blocks, name)) {
        throw new Error(`bench: ${name} is no block; there are ${Object.keys(blocks).join(", ")}`);
      }
      return `${open}\n${blocks[name](run)}\n\n${close}`;
    },
  );
}

/** The README's table. */
function summary(run) {
  const tools = SUMMARY.flatMap(([name, title]) => {
    const rounds = roundsOf(run, name);
    return rounds === undefined ? [] : [{ title, rounds }];
  });
  return table(
    ["", ...tools.map(({ title }) => title)],
    SUMMARY_ROWS.map(([title, name]) => [
      title,
      ...tools.map(({ rounds }) => cell(rounds, { ...column(name), note: undefined })),
    ]),
  );
}

/** What ran where. */
function setup({ date, machine, settings, versions }, more = "") {
  const { model, threads, rounds, texts } = settings;
  const gigabytes = Math.round(machine.memory / 2 ** 30);
  const system = machine.system.replace(/^(\w+ \d+\.\d+).*/, "$1");
  return wrapped(
    `Measured on ${date}: ${model}, ${threads} threads, ${machine.cpu} (${machine.cores} cores, ${gigabytes} GiB, ` +
      `${system}), Node.js ${versions.node}; ${rounds === 1 ? "one round" : `medians of ${rounds} rounds`}. ` +
      `The corpus has ${texts} texts. ${more}`.trim(),
  );
}

/** What the README's titles stand for. */
function shortNames({ versions }) {
  const named = { ORT: "onnxruntime-node", "t.js": "transformers.js" };
  const parts = Object.entries(named).filter(([, name]) => versions[name] !== undefined);
  return parts.map(([short, name]) => `${short} is ${name} ${versions[name]}.`).join(" ");
}

/** A table with a row for every tool that has a figure in it. */
function byTool(run, columns) {
  const rows = run.tools
    .filter(({ rounds }) => rounds.length > 0)
    .map(({ name, rounds }) => [name, ...columns.map(({ of }) => of(rounds))])
    .filter(([, ...cells]) => cells.some((cell) => cell !== "–"));
  return table(["", ...columns.map(({ title }) => title)], rows);
}

function figure(name) {
  return { title: name, of: (rounds) => cell(rounds, column(name)) };
}

/** A column for each place at which a curve was measured, with medians of some of its figures. */
function points(run, curve, key, figures) {
  const measured = run.tools.flatMap(({ rounds }) => rounds[0]?.[curve] ?? []);
  const places = [...new Set(measured.map((point) => point[key]))].toSorted((a, b) => a - b);
  return places.map((place) => ({
    title: `${place} ${place === 1 ? key.replace(/s$/, "") : key}`,
    of: (rounds) => {
      const at = (round) => round[curve]?.find((point) => point[key] === place);
      const shown = figures.map(([name, digits]) =>
        middle(rounds, (round) => at(round)?.[name])?.toFixed(digits),
      );
      return shown.includes(undefined) ? "–" : shown.join(" / ");
    },
  }));
}

function column(name) {
  const found = columns.find(({ title }) => title === name);
  if (found === undefined) throw new Error(`the report has no column ${name}`);
  return found;
}

function roundsOf(run, name) {
  const tool = run.tools.find((tool) => tool.name === name);
  return tool && tool.rounds.length > 0 ? tool.rounds : undefined;
}

/** The rounds of uform's default precision, with one thread and with all of them. */
function oneAndAll(run) {
  return ["uform auto, 1 thread", "uform auto"].map((name) => {
    const rounds = roundsOf(run, name);
    if (rounds === undefined) throw new Error(`${source} has no figures of ${name}`);
    return rounds;
  });
}

function listed(names) {
  return names.join(", ").replace(/, ([^,]*)$/, " and $1");
}

/** Prose in lines of a reader's width. A number and its unit stay together. */
function wrapped(text) {
  const lines = [""];
  for (const word of text.split(/ (?!(?:ms|MB|GB)\b)/)) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length > 115) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines.join("\n");
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
  const run = JSON.parse(readFileSync(join(root, source), "utf8"));
  for (const file of written) {
    const before = readFileSync(join(root, file), "utf8");
    const after = filled(before, run);
    if (before === after) continue;
    if (values.check) {
      console.error(`${file} does not say what ${source} says: npm run bench:tables`);
      process.exitCode = 1;
    } else {
      writeFileSync(join(root, file), after);
      console.error(`wrote ${file}`);
    }
  }
}
