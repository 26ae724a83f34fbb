// Importing the package is cheap, and a missing addon is explained.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { modelPath, root } from "./support.mjs";

const run = promisify(execFile);
const node = (code, cwd = root) => run(process.execPath, ["-e", code], { cwd });

test("importing starts no thread, maps no addon, and takes a moment", async () => {
  const { stdout } = await node(`
    const { readFileSync } = require("node:fs");
    const threads = () => /^Threads:.*$/m.exec(readFileSync("/proc/self/status", "utf8"))[0];
    const before = threads();
    const start = performance.now();
    require("uform");
    const took = performance.now() - start;
    const maps = readFileSync("/proc/self/maps", "utf8");
    console.log(JSON.stringify({ took, grew: threads() !== before, maps: /uform\\.node/.test(maps) }));
  `);
  const { took, grew, maps } = JSON.parse(stdout);
  assert.ok(took < 50, `took ${took} ms`);
  assert.deepEqual({ grew, maps }, { grew: false, maps: false });
});

test("loading the addon and a model starts no thread", async () => {
  const { stdout } = await node(`
    const { readFileSync } = require("node:fs");
    const threads = () => Number(/^Threads:\\s+(\\d+)/m.exec(readFileSync("/proc/self/status"))[1]);
    const before = threads();
    const model = require("uform").Model.loadRam(${JSON.stringify(modelPath)});
    model.encodeTextSync("x");
    console.log(threads() - before);
  `);
  assert.equal(stdout.trim(), "0");
});

test("a missing or broken addon is named, with what to do", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "uform-"));
  t.after(() => rm(folder, { recursive: true }));
  await cp(join(root, "dist"), join(folder, "dist"), { recursive: true });
  const explain = (before = "") =>
    node(
      `${before}
      try { require("./dist/index.js").Executor.forRam(); }
      catch (error) { console.log(error.name, error.code, error.message); }`,
      folder,
    ).then(({ stdout }) => stdout);

  const missing = await explain();
  assert.match(missing, /^UnsupportedError UFORM_UNSUPPORTED .*linux-x64 with glibc \d/);
  assert.match(missing, /npm install @uform\/linux-x64-gnu/);
  assert.match(missing, /WebAssembly/);
  assert.doesNotMatch(missing, /bundle/);

  const elsewhere = await explain(`Object.defineProperty(process, "arch", { value: "riscv64" });`);
  assert.match(elsewhere, /no native addon for linux-riscv64 with glibc .*linux-x64-gnu/);
  assert.match(elsewhere, /WebAssembly/);

  const addon = join(folder, "node_modules/@uform/linux-x64-gnu");
  await mkdir(addon, { recursive: true });
  await writeFile(join(addon, "package.json"), `{ "main": "uform.node" }`);
  await writeFile(join(addon, "uform.node"), "not an ELF file");
  const broken = await explain();
  assert.match(broken, /@uform\/linux-x64-gnu\/uform\.node, cannot be loaded on linux-x64.*: ./);
});
