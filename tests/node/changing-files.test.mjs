// A model's files that change while they are read: what comes of it is a whole model or an error that says so, never
// a signal, a wait without end, or a model of two halves.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import * as native from "uform";
import * as web from "uform/web";
import { modelPath, times } from "./support.mjs";

await web.load();
const folder = fs.mkdtempSync(join(tmpdir(), "uform-changing-"));
const small = fileURLToPath(new URL("../fixtures/variants/mean-sqrt-cut/", import.meta.url));
const [weights, tokenizer, config] = ["model.safetensors", "tokenizer.json", "config.json"];

/** Who makes the changes: another thread, since some ways to open block this one. */
const changer = new Worker(new URL("changer.mjs", import.meta.url));
after(async () => {
  await changer.terminate();
  fs.rmSync(folder, { recursive: true });
});
const answer = () => new Promise((resolve) => changer.once("message", resolve));

const ways = {
  "Model.open": (path) => native.Model.open(path),
  "Model.loadRam": async (path) => native.Model.loadRam(path),
  "Model.open of WebAssembly": (path) => web.Model.open(path),
  "Model.loadRam of WebAssembly": async (path) => web.Model.loadRam(path),
};

/** The model's vectors as a text; it is freed. */
function vectors(model) {
  const { data } = model.encodeTextSync(["a red bicycle", "the sea is blue"]);
  model.free();
  return data.join();
}

const allowed = new Set(["UFORM_CORRUPT_MODEL", "UFORM_IO", "UFORM_NOT_FOUND"]);

/** A model on disk that is changed again and again. */
class Changing {
  constructor(name, from) {
    this.path = join(folder, name);
    this.from = from;
    fs.cpSync(from, this.path, { recursive: true });
    // The same shapes with other numbers: all stay finite with another sign.
    const bytes = fs.readFileSync(join(from, weights));
    for (let at = 8 + Number(bytes.readBigUInt64LE()); at < bytes.length; at += 4) {
      bytes[at + 3] ^= 0x80;
    }
    this.other = `${this.path}.safetensors`;
    fs.writeFileSync(this.other, bytes);
  }

  /** Puts a file back, last written to long ago. */
  restore(name, from = join(this.from, name)) {
    const path = join(this.path, name);
    fs.rmSync(path, { recursive: true, force: true });
    fs.copyFileSync(from, path);
    fs.utimesSync(path, 1e9, 1e9);
  }

  /** What comes of it while nothing changes: the vectors of either whole model, and how long the opening takes. */
  async quiet(open) {
    const whole = new Set();
    let took = 0;
    for (const from of [this.other, join(this.from, weights)]) {
      this.restore(weights, from);
      const start = performance.now();
      const model = await open(this.path);
      took = performance.now() - start;
      whole.add(vectors(model));
    }
    assert.equal(whole.size, 2);
    return { whole, took };
  }

  /** Opens it while a file changes, not before and at the latest `latest` into it; what came of it, in a word. */
  async round(open, { whole, took }, change, name, latest) {
    const beside = join(folder, "beside");
    if (change === "replaced by a pipe") execFileSync("mkfifo", [beside]);
    if (change === "replaced")
      fs.copyFileSync(name === weights ? this.other : join(this.from, name), beside);
    const [begun, stop] = [answer(), new Int32Array(new SharedArrayBuffer(4))];
    changer.postMessage({
      change,
      path: join(this.path, name),
      other: name === weights ? this.other : join(this.from, name),
      beside,
      after: Math.random() * took * latest,
      stop,
    });
    await begun;
    const ended = answer();
    const [{ value, reason }] = await Promise.allSettled([open(this.path)]);
    Atomics.store(stop, 0, 1);
    await ended;
    if (value === undefined) {
      assert.ok(allowed.has(reason.code), reason);
      return reason.code;
    }
    assert.ok(whole.has(vectors(value)), `${name} ${change}: a model of two halves`);
    return "whole";
  }
}

async function changed(t, model, table, latest, rounds) {
  for (const [way, open] of Object.entries(ways)) {
    const quiet = await model.quiet(open);
    for (const [name, changes] of Object.entries(table)) {
      for (const change of changes) {
        const counts = {};
        for (let round = 0; round < rounds; round++) {
          model.restore(name);
          const what = await model.round(open, quiet, change, name, latest);
          counts[what] = (counts[what] ?? 0) + 1;
        }
        model.restore(name);
        t.diagnostic(`${way}, ${name} ${change}: ${JSON.stringify(counts)}`);
      }
    }
  }
}

test("a small model's files change at some moment while they are read", async (t) => {
  const changes = [
    "cut",
    "emptied",
    "made longer",
    "deleted",
    "replaced",
    "replaced by a pipe",
    "made a folder",
  ];
  const table = { [weights]: changes, [tokenizer]: changes, [config]: changes };
  await changed(t, new Changing("small", small), table, 1.2, times(4, 300));
});

test("a large model's weights are written to all the while they are read", async (t) => {
  const table = { [weights]: ["overwritten here and there", "written anew"] };
  await changed(t, new Changing("large", modelPath), table, 0.4, times(1, 30));
});
