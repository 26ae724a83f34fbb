// The bench's own parts, without the tools it measures.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { Model } from "../../dist/index.mjs";
import { chart, spread, ticksAround } from "./chart.mjs";
import { here, model, peers } from "./places.mjs";
import { Program } from "./program.mjs";
import { readMilliseconds } from "./reading.mjs";
import { tables } from "./report.mjs";
import { filled } from "./tables.mjs";
import { median, percentile } from "./statistics.mjs";
import { corpus, queries, shortTexts, textOfTokens } from "./texts.mjs";
import { uform } from "./tools.mjs";

test("medians and percentiles are values of the list", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
  assert.equal(median([9, 1, 5]), 5);
  assert.equal(median([4, 1, 3, 2]), 3);
  assert.equal(percentile(hundred, 50), 50);
  assert.equal(percentile(hundred, 99), 99);
  assert.equal(percentile(hundred, 100), 100);
  assert.equal(percentile([7], 99), 7);
});

test("texts have the tokens that the plots say", () => {
  const encoder = Model.loadRam(model);
  const mean = (texts) => {
    const { tokens } = encoder.encodeTextSync(texts);
    return tokens.reduce((sum, count) => sum + count, 0) / texts.length;
  };
  for (const tokens of [8, 16, 32, 64, 128, 256])
    for (const seed of [0, 1]) assert.equal(mean([textOfTokens(tokens, seed)]), tokens);
  assert.notEqual(textOfTokens(8, 0), textOfTokens(8, 1));
  assert.ok(Math.abs(mean(queries()) - 8) < 1);
  assert.ok(Math.abs(mean(shortTexts()) - 16) < 1);
  assert.deepEqual(corpus(3), corpus(5).slice(0, 3));
  encoder.free();
});

test("a program answers calls one by one and to many callers, and gives its vectors in order", async () => {
  const program = new Program(uform("auto", 1).command);
  const texts = queries().slice(0, 6);
  const calls = [texts.slice(0, 1), texts.slice(1, 4), texts.slice(4)];
  for (const callers of [1, 3]) {
    const { times, wall, vectors } = await program.request({ calls, callers, vectors: true });
    assert.equal(times.length, calls.length);
    assert.ok(times.every((time) => time > 0 && time <= wall));
    const encoder = Model.loadRam(model);
    const expected = encoder.encodeTextSync(texts);
    assert.deepEqual(
      vectors,
      texts.map((_, row) => Array.from(expected.row(row))),
    );
    encoder.free();
  }
  assert.equal((await program.request({ calls })).vectors, undefined);
  assert.ok(program.peakMegabytes() > 10);
  // 6 layers of 12 · 384² weights, in two bytes or four.
  assert.ok([2, 4].includes((await program.weightBytes) / (6 * 12 * 384 ** 2)));
  await program.end();
});

test("memory is read by one thread or several", async () => {
  for (const threads of [1, 3]) {
    const milliseconds = await readMilliseconds(64 << 20, threads);
    // Faster than any memory there is, or slower than any disk, would be something else.
    assert.ok(milliseconds > 0.01 && milliseconds < 10_000, `${milliseconds} ms`);
  }
});

test("a program that ends without an answer is an error with what it said", async () => {
  const script = `console.error("no such model"); process.exit(3)`;
  const program = new Program([process.execPath, "--eval", script]);
  await assert.rejects(program.request({ calls: [["a"]] }), /ended with 3\nno such model/);
  const missing = new Program([join(here, "no-such-program")]);
  await assert.rejects(missing.request({ calls: [["a"]] }), /ENOENT/);
});

const python = spawnSync("python3", ["--version"]).status === 0;
test("the protocol in Python is the same", { skip: !python && "SKIPPED: no python3" }, async () => {
  const script = `
import array, sys
sys.path.insert(0, sys.argv[1])
from serve import serve
def embed(texts):
    print("what libraries print is no reply")
    return array.array("d", map(len, texts))
serve({"fake": "1.2.3"}, embed)`;
  const program = new Program(["python3", "-c", script, peers]);
  assert.deepEqual(await program.versions, { fake: "1.2.3" });
  const calls = [["a"], ["bb", "ccc"]];
  const { times, wall, vectors } = await program.request({ calls, vectors: true });
  assert.equal(times.length, 2);
  assert.ok(times.every((time) => time > 0 && time <= wall));
  assert.deepEqual(vectors, [1, 2, 3]);
  assert.equal((await program.request({ calls })).vectors, undefined);
  await program.end();
});

const round = (factor) => ({
  versions: { some: "1.0.0" },
  query: 4 / factor,
  short: 100 * factor,
  corpus: 50 * factor,
  ways: { one: 50 * factor, batches: 10 * factor },
  cold: 1,
  peakShort: 100,
  peak: 200,
  cosine: 0.9,
  callers: [{ callers: 64, p50: 1, p99: 30 / factor, rate: 80 * factor }],
});
const ourRound = (factor) => ({ ...round(factor), reading: 0.5 });
const run = {
  date: "2020-02-20",
  machine: { cpu: "a CPU", cores: 2, memory: 8 * 2 ** 30, system: "Linux 6" },
  versions: { node: "20.0.0" },
  settings: { model: "a model", threads: 2, rounds: 3, size: "full", texts: 10 },
  tools: [
    { name: "uform auto", peer: "uform", threads: 2, rounds: [2, 4, 20].map(ourRound) },
    { name: "some tool", peer: "some", threads: 2, rounds: [1, 1, 10].map(round) },
    { name: "broken", peer: "broken", threads: 2, failure: "it ended", rounds: [] },
  ],
  loop: { open: { p99: 1, worst: 2 }, encode: { p99: 3, worst: 4 } },
};

test("tables show medians, and the median of each round's ratio", () => {
  const lines = tables(run).split("\n");
  const cells = (start) =>
    lines
      .filter((line) => line.startsWith(`| ${start}`))
      .map((line) =>
        line
          .split("|")
          .slice(2, -1)
          .map((cell) => cell.trim()),
      );
  const [ours] = cells("uform auto ");
  assert.deepEqual(ours.slice(0, 5), ["1.00", "0.50", "2.00", "400", "200 (one)"]);
  const [figures, ratios] = cells("some tool");
  assert.deepEqual(figures, [
    "4.00",
    "–",
    "–",
    "100",
    "50 (one)",
    "80",
    "30.0",
    "1.00",
    "100",
    "200",
    "0.9000",
  ]);
  assert.deepEqual(ratios, [
    "2.00×",
    "2.00×",
    "2.00×",
    "2.00×",
    "2.00×",
    "1.00×",
    "1.00×",
    "1.00×",
  ]);
  assert.ok(lines.includes("broken FAILED: see above."));
});

test("a page gets the figures of a run between its marks, and nothing else changes", () => {
  const page = "Before.\n\n<!-- bench: summary -->\nold\n<!-- /bench -->\n\nAfter.\n";
  const once = filled(page, run);
  assert.match(
    once,
    /^Before\.\n\n<!-- bench: summary -->\n\n\| .*\n\n<!-- \/bench -->\n\nAfter\.\n$/s,
  );
  assert.match(once, /\| one short query, ms +\| +1\.00 \|/);
  assert.match(once, /2020-02-20: a model, 2 threads, a CPU \(2 cores, 8 GiB, Linux 6\)/);
  assert.equal(filled(once, run), once);
  const [tool] = run.tools;
  const rounds = tool.rounds.map((round) => ({ ...round, query: 7 }));
  assert.match(
    filled(once, { ...run, tools: [{ ...tool, rounds }] }),
    /short query, ms +\| +7\.00 /,
  );
  assert.throws(() => filled("<!-- bench: sumary -->\n<!-- /bench -->", run), /sumary is no block/);
});

test("axes enclose what they show, and names keep their distance", () => {
  assert.deepEqual(ticksAround(3, 40), [2, 5, 10, 20, 50]);
  assert.deepEqual(ticksAround(10, 10), [10, 20]);
  assert.deepEqual(ticksAround(0.5, 90000), [0.1, 1, 10, 100, 1000, 10000, 100000]);
  assert.deepEqual(spread([10, 12, 90], 15, 100), [10, 25, 90]);
  assert.deepEqual(spread([80, 95, 99], 15, 100), [70, 85, 100]);
});

test("a kept run becomes two plots with every tool's name", () => {
  const folder = mkdtempSync(join(tmpdir(), "uform-bench-"));
  const lengths = [8, 256].map((tokens) => ({ tokens, rate: 1000 / tokens }));
  const callers = [1, 64].map((callers) => ({ callers, p50: callers, p99: 2 * callers, rate: 9 }));
  const tools = ["a <fast> & good one", "another"].map((name, i) => ({
    name,
    peer: `peer ${i}`,
    threads: 2,
    rounds: [{ lengths, callers }],
  }));
  delete tools[1].rounds[0].callers; // a tool that serves one caller
  writeFileSync(join(folder, "run.json"), JSON.stringify({ ...run, tools }));
  execFileSync(process.execPath, [join(here, "plots.mjs"), join(folder, "run.json")], {
    stdio: "pipe",
  });
  const [throughput, latency] = ["throughput.svg", "latency.svg"].map((name) =>
    readFileSync(join(folder, name), "utf8"),
  );
  assert.match(throughput, /a &#60;fast&#62; &#38; good one<\/text>/);
  assert.match(throughput, /another<\/text>/);
  assert.doesNotMatch(latency, /another/);
  for (const svg of [throughput, latency]) {
    assert.match(svg, /prefers-color-scheme:dark/);
    assert.doesNotMatch(svg, /NaN|undefined|Infinity/);
  }
  rmSync(folder, { recursive: true });
});

test("a chart without a figure is an error", () => {
  const figure = {
    title: "Nothing",
    caption: "",
    x: { title: "", ticks: [1, 2] },
    y: { title: "" },
  };
  assert.throws(
    () => chart({ ...figure, panels: [{ title: "", lines: [] }] }),
    /Nothing: no figures/,
  );
});
