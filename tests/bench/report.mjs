// A run as text: what ran where, the figures, and how far ahead uform is. tables.mjs has the same for the docs.

import { median } from "./statistics.mjs";

/** The columns: a title, where a round keeps the figure, digits; whether less of it is better; no ratio of some. */
export const columns = [
  { title: "one query, ms", of: (round) => round.query, digits: 2, less: true },
  { title: "weights once, ms", of: (round) => round.reading, digits: 2, ratio: false },
  { title: "query by weights", of: byWeights, digits: 2, ratio: false },
  { title: "32 short, texts/s", of: (round) => round.short, digits: 0 },
  { title: "corpus, texts/s", of: (round) => round.corpus, digits: 0, note: bestWay },
  { title: "64 callers, texts/s", of: (round) => many(round)?.rate, digits: 0 },
  { title: "their p99, ms", of: (round) => many(round)?.p99, digits: 1, less: true },
  { title: "cold start, s", of: (round) => round.cold, digits: 2, less: true },
  { title: "peak, short, MiB", of: (round) => round.peakShort, digits: 0, less: true },
  { title: "peak, all, MiB", of: (round) => round.peak, digits: 0, less: true },
  { title: "least cosine", of: (round) => round.cosine, digits: 4, ratio: false },
];

/** Every table of a run, in Markdown. */
export function tables(run) {
  const tools = run.tools.filter(({ rounds }) => rounds.length > 0);
  const ours = tools.filter(
    ({ peer, threads }) => isOurs(peer) && threads === run.settings.threads,
  );
  const others = tools.filter(({ peer }) => !isOurs(peer));
  return [
    heading(run),
    figures(tools),
    ...(others.length > 0 ? ours.map((tool) => ratios(tool, others)) : []),
    loop(run),
    ...run.tools.filter(({ failure }) => failure).map(({ name }) => `${name} FAILED: see above.`),
  ].join("\n\n");
}

/** The median over the rounds of one figure; undefined where a tool has none. */
export function middle(rounds, of) {
  const values = rounds.map(of).filter((value) => value !== undefined);
  return values.length > 0 ? median(values) : undefined;
}

function heading({ date, machine, versions, settings }) {
  const { model, threads, rounds, texts, size } = settings;
  const gigabytes = Math.round(machine.memory / 2 ** 30);
  return [
    `${model}, ${threads} threads on ${machine.cpu} (${machine.cores} cores, ${gigabytes} GiB, ${machine.system}), ${date}`,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", "),
    `${rounds === 1 ? "one round" : `medians of ${rounds} rounds`}; the corpus has ${texts} texts` +
      (size === "brief" ? "; BRIEF: these figures are worthless" : ""),
  ].join("\n");
}

/** The median of a column over a tool's rounds, as text. */
export function cell(rounds, { of, digits, note }) {
  const value = middle(rounds, of)?.toFixed(digits);
  return value === undefined ? "–" : `${value}${note ? ` ${note(rounds)}` : ""}`;
}

function figures(tools) {
  return table(
    ["", ...columns.map(({ title }) => title)],
    tools.map(({ name, rounds }) => [name, ...columns.map((column) => cell(rounds, column))]),
  );
}

/** How many times better `ours` is: the median of the ratios within each round. */
function ratios(ours, others) {
  const compared = columns.filter(({ ratio }) => ratio !== false);
  const ratio = (rounds, { of, less }) => {
    const quotients = rounds.map((round, i) => {
      const [a, b] = [of(ours.rounds[i] ?? {}), of(round)];
      return a === undefined || b === undefined ? undefined : less ? b / a : a / b;
    });
    const value = middle(quotients, (quotient) => quotient);
    return value === undefined ? "–" : `${value.toFixed(2)}×`;
  };
  return table(
    [
      `${ours.name} against`,
      ...compared.map(({ title }) => title.split(", ").slice(0, -1).join(", ")),
    ],
    others.map(({ name, rounds }) => [name, ...compared.map((column) => ratio(rounds, column))]),
  );
}

function loop({ loop }) {
  const delay = ({ p99, worst }) => `p99 ${p99.toFixed(1)}, worst ${worst.toFixed(1)}`;
  return `Event-loop delay of uform, ms: ${delay(loop.open)} while a model opens; ${delay(loop.encode)} while texts are embedded.`;
}

function bestWay(rounds) {
  const [{ ways }] = rounds;
  const medians = Object.keys(ways).map((way) => [middle(rounds, (round) => round.ways[way]), way]);
  return `(${medians.toSorted(([a], [b]) => b - a)[0][1]})`;
}

/** How long a query takes in terms of reading the weights once. */
function byWeights({ query, reading }) {
  return reading === undefined ? undefined : query / reading;
}

/** What 64 callers saw. */
function many(round) {
  return round.callers?.find(({ callers }) => callers === 64);
}

function isOurs(peer) {
  return peer === "uform" || peer === "uform-web";
}

/** A Markdown table. Its first column is text, the others are numbers. */
export function table(header, rows) {
  const widths = header.map((title, i) =>
    Math.max(title.length, ...rows.map((row) => row[i].length)),
  );
  const line = (cells) =>
    `| ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join(" | ")} |`;
  const rule = widths.map((width, i) =>
    i === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );
  return [header, rule, ...rows].map(line).join("\n");
}
