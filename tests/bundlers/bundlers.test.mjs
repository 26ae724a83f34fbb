// The packed package in apps as people build them: by bundlers and without one, in Chromium; and in the
// runtimes beside Node.js. Each embeds the sentence of a fixture.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { serve } from "../../examples/browser/serve.mjs";
import { launch, onPage, skip } from "../browser/chromium.mjs";
import { newerNode, withoutNewerNode } from "../newer-node.mjs";
import { asModule, builds, bundle } from "./build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const model = join(root, "tests/fixtures/variants/cls-f16");
const TEXT = "a red bicycle";
const vectors = JSON.parse(readFileSync(join(model, "vectors.json"), "utf8"));
const expected = vectors.calls[0].vectors[vectors.texts.indexOf(TEXT)];

const folder = mkdtempSync(join(tmpdir(), "uform-bundlers-"));
const app = join(folder, "app");

before(() => {
  const packing = ["pack", "--json", "--ignore-scripts", "--pack-destination", folder];
  const [{ filename }] = JSON.parse(run("npm", packing, root));
  cpSync(join(here, "app"), app, { recursive: true });
  writeFileSync(join(app, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--offline", "--omit=optional"];
  run("npm", ["install", ...options, join(folder, filename)], app);
});
after(() => rmSync(folder, { recursive: true }));

describe("in Chromium, built by", { skip }, () => {
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser?.close());

  for (const [name, build] of Object.entries(builds)) {
    test(name, async () => {
      const out = emptyFolder(name);
      await build(app, out);
      const { page, worker } = await outcomeOf(browser, out);
      assertClose(page.vector);
      assert.deepEqual(worker, page);
    });
  }

  test("esbuild, with the module's address handed over", async () => {
    const out = emptyFolder("explicit");
    await bundle(app, out, ["explicit.mjs"], { loader: { ".wasm": "file" } });
    writeFileSync(join(out, "index.html"), asModule("explicit.mjs"));
    const { page } = await outcomeOf(browser, out);
    assertClose(page.vector);
    assert.equal(page.module, "wasm32");
  });
});

describe("in", () => {
  const tool = (path) => join(here, "node_modules", path);

  for (const [name, program, args] of [
    [`Node.js ${process.version}`, process.execPath, ["files.mjs", "uform/web"]],
    ["a newer Node.js", newerNode, ["files.mjs", "uform/web"]],
    ["Deno", tool("@deno/linux-x64-glibc/deno"), ["run", "--allow-read", "files.mjs", "uform"]],
  ]) {
    test(name, { skip: program === newerNode && withoutNewerNode }, () => {
      assertClose(JSON.parse(run(program, [...args, model, TEXT], app)).vector);
    });
  }

  test("workerd", async () => {
    const out = emptyFolder("workerd");
    // The files beside it are modules of the configuration, not of the bundle.
    const external = ["model/*", "*.wasm"];
    await bundle(app, out, ["workerd.mjs"], { conditions: ["workerd"], external });
    cpSync(join(app, "node_modules/uform/dist/web/wasm32.wasm"), join(out, "uform/wasm32.wasm"));
    cpSync(model, join(out, "model"), { recursive: true });
    cpSync(join(here, "workerd.capnp"), join(out, "workerd.capnp"));
    const workerd = spawn(
      tool("@cloudflare/workerd-linux-64/bin/workerd"),
      ["serve", "workerd.capnp", "--control-fd=3", "--socket-addr=http=localhost:0"],
      { cwd: out, stdio: ["ignore", "inherit", "inherit", "pipe"] },
    );
    try {
      const [line] = await once(createInterface({ input: workerd.stdio[3] }), "line");
      const response = await fetch(`http://localhost:${JSON.parse(line).port}/`, {
        method: "POST",
        body: TEXT,
      });
      const answer = await response.text();
      assert.equal(response.status, 200, answer);
      assertClose(JSON.parse(answer).vector);
    } finally {
      workerd.kill();
    }
  });
});

/** What the app in a folder says, opened in a page. */
async function outcomeOf(browser, out) {
  const { server, address } = await serve({ "/": out, "/model/": model });
  try {
    return await onPage(browser, address, async (page) => {
      return page.evaluate(async () => {
        while (!globalThis.outcome) await new Promise((resolve) => setTimeout(resolve, 10));
        return globalThis.outcome;
      });
    });
  } finally {
    server.close();
  }
}

/** The published tolerance: a cosine of 0.99999 with the reference. NaN fails. */
function assertClose(vector) {
  assert.equal(vector.length, expected.length);
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  const cosine = dot(vector, expected) / Math.sqrt(dot(vector, vector) * dot(expected, expected));
  assert.ok(cosine > 0.99999, `cosine ${cosine}`);
}

function emptyFolder(name) {
  const path = join(folder, name.replaceAll(/\W/g, "-"));
  mkdirSync(path);
  return path;
}

/** Runs to the end and returns standard output; anything but success fails the test. */
function run(program, args, cwd) {
  const options = { cwd, encoding: "utf8", timeout: 120_000 };
  const { status, stdout, stderr, error } = spawnSync(program, args, options);
  if (error) throw error;
  assert.equal(status, 0, `${program} ${args.join(" ")}\n${stdout}${stderr}`);
  return stdout;
}
