// Workers that are terminated at any instruction: the process goes on, and ends as if nothing had happened.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { newerNode, withoutNewerNode } from "../newer-node.mjs";
import { root, times } from "./support.mjs";

const program = fileURLToPath(new URL("terminating.mjs", import.meta.url));

/** Workers a process terminates, and how many at a time. */
const [workers, lanes] = [times(15, 100), 3];

/** How a process ends that terminates workers, and what it printed. */
async function run(node, seed) {
  const child = spawn(node, [program, workers, lanes, seed], { cwd: root, timeout: 250_000 });
  const output = { stdout: "", stderr: "" };
  for (const name of Object.keys(output)) {
    child[name].setEncoding("utf8").on("data", (chunk) => (output[name] += chunk));
  }
  const [exit, signal] = await new Promise((resolve) =>
    child.on("close", (...how) => resolve(how)),
  );
  return { seed, exit, signal, ...output };
}

for (const [name, node, skip] of [
  ["this Node.js", process.execPath, false],
  ["a newer one", newerNode, withoutNewerNode],
]) {
  const rounds = times(2, 50);
  const count = rounds * workers;
  test(`${count} workers terminated in ${name}`, { skip, timeout: 260_000 * rounds }, async () => {
    for (let round = 0; round < rounds; round++) {
      // The seed is told by what failed.
      const seed = Math.floor(Math.random() * 2 ** 31);
      const expected = { seed, exit: 0, signal: null, stdout: "sound", stderr: "" };
      assert.deepEqual(await run(node, seed), expected);
    }
  });
}
