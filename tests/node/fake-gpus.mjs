// Processes that have the stand-ins of crates/fake-gpu for the GPU vendors' drivers. A process has one
// driver of a vendor's for its life, so every case is a process of its own.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { root } from "./support.mjs";

/** A temporary folder for a file of tests, with the stand-ins; `remove` it afterwards. */
export function makeDrivers() {
  const folder = mkdtempSync(join(tmpdir(), "uform-gpus-"));
  const { status, stderr } = spawnSync("cargo", ["xtask", "fake-gpu", folder], {
    cwd: root,
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
  return { folder, remove: () => rmSync(folder, { recursive: true }) };
}

/** Runs Node with the stand-ins; it must end well, and say nothing on standard error. */
export async function node(folder, args, env) {
  const options = { cwd: root, encoding: "utf8", maxBuffer: 64 << 20 };
  // A runner of tests within one would not run any.
  const { NODE_TEST_CONTEXT, ...own } = process.env;
  options.env = { ...own, LD_LIBRARY_PATH: folder, ...env };
  const ran = promisify(execFile)(process.execPath, args, options);
  const { stdout, stderr } = await ran.catch((failure) => {
    // Without the command's line, which may be a whole program.
    const { code, signal, stdout, stderr } = failure;
    assert.fail(`ended with ${code ?? signal}: ${stdout}${stderr}`);
  });
  assert.equal(stderr, "");
  return stdout;
}

let runs = 0;

/**
 * What a function returns that is called in a process with the stand-ins, and what is alive in the
 * drivers when it ends. The function is told the package and an argument; it has nothing else of the
 * file it is written in.
 */
export async function inProcess(folder, env, main, argument) {
  const counts = join(folder, `counts-${runs++}`);
  const code = `(${main})(require("uform"), ${JSON.stringify(argument)})
    .then((value) => console.log(JSON.stringify(value ?? null)))`;
  const printed = await node(folder, ["-e", code], { ...env, FAKE_GPU_COUNTS: counts });
  const alive = {};
  for (const line of readFileSync(counts, "utf8").trim().split("\n").filter(Boolean)) {
    for (const [what, count] of Object.entries(JSON.parse(line))) {
      alive[what] = (alive[what] ?? 0) + count;
    }
  }
  const { launches, ...rest } = alive;
  return { value: JSON.parse(printed), launches, alive: rest };
}

/** That nothing is left in the drivers. */
export function nothingLeft({ alive }, what = "") {
  assert.deepEqual(
    new Set(Object.values(alive)),
    new Set([0]),
    `${what}: ${JSON.stringify(alive)}`,
  );
}
