// `npm run bench:plots [-- FILE [FOLDER]]`: draws throughput.svg and latency.svg
// from a run that was kept with `npm run bench -- --curves --json FILE`. Absent:
// docs/bench.json, into its folder.

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { chart } from "./chart.mjs";
import { root } from "./places.mjs";
import { median } from "./statistics.mjs";

const [file = join(root, "docs/bench.json"), folder = dirname(file)] = process.argv.slice(2);
const run = JSON.parse(readFileSync(file, "utf8"));
const peers = [...new Set(run.tools.map(({ peer }) => peer))];
const tools = run.tools.filter(
  ({ threads, rounds }) => threads === run.settings.threads && rounds.length > 0,
);
const brief = run.settings.size === "brief" ? " A trial: these figures are worthless." : "";
const caption =
  `${run.settings.model}, ${run.settings.threads} threads on ${run.machine.cpu}, ${run.date}; ` +
  `${run.settings.rounds === 1 ? "one round" : `medians of ${run.settings.rounds} rounds`}.${brief}`;

write("throughput.svg", {
  title: "Throughput against text length",
  caption,
  x: axis("tokens a text", "lengths", "tokens"),
  y: { title: "texts a second" },
  panels: [
    {
      title: "texts of one length, in calls of 1 or 32, whichever is faster (up is better)",
      lines: lines("lengths", "tokens", "rate"),
    },
  ],
});
write("latency.svg", {
  title: "Latency against concurrent callers",
  caption,
  x: axis("callers, each with one short text at a time", "callers", "callers"),
  y: { title: "milliseconds" },
  panels: [
    { title: "median (down is better)", lines: lines("callers", "callers", "p50") },
    { title: "99th percentile", lines: lines("callers", "callers", "p99") },
  ],
});

function write(name, figure) {
  writeFileSync(join(folder, name), chart(figure));
  console.error(`wrote ${join(folder, name)}`);
}

/** An axis with a tick for every place that was measured. */
function axis(title, curve, key) {
  const measured = tools.flatMap(({ rounds }) => (rounds[0][curve] ?? []).map((at) => at[key]));
  return { title, ticks: [...new Set(measured)].toSorted((a, b) => a - b) };
}

/** A line for each tool that has the curve: medians over its rounds. A peer has a colour, its tools dashes. */
function lines(curve, x, y) {
  const drawn = tools.filter(({ rounds }) => rounds[0][curve] !== undefined);
  return drawn.map(({ name, peer, rounds }) => ({
    name,
    colour: peers.indexOf(peer),
    dash: drawn.filter((other) => other.peer === peer).findIndex((other) => other.name === name),
    points: rounds[0][curve].map((at, i) => [
      at[x],
      median(rounds.map((round) => round[curve][i][y])),
    ]),
  }));
}
