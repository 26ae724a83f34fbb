// Two processes on one machine, as they would run on two: `npm run demo:mesh`, which gives them
// stand-ins for eight GPUs and a model of random weights. Each process is member.mjs.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [model] = process.argv.slice(2);
if (model === undefined) throw new Error("usage: main.mjs MODEL-FOLDER");
const program = fileURLToPath(new URL("member.mjs", import.meta.url));
// On several machines: a directory on a file system that all of them see.
const directory = mkdtempSync(join(tmpdir(), "uform-mesh-"));
const count = 2;

const members = Array.from({ length: count }, async (_, index) => {
  const member = spawn(process.execPath, [
    program,
    ...["--index", index, "--count", count, "--directory", directory, "--job", "demo"].map(String),
    ...["--devices", [0, 1, 2, 3].map((device) => 4 * index + device).join(",")],
    ...["--model", model],
  ]);
  for (const stream of [member.stdout, member.stderr]) {
    createInterface(stream).on("line", (line) => console.log(`[${index}] ${line}`));
  }
  const [code, signal] = await once(member, "close");
  if (code !== 0) throw new Error(`process ${index} ended with ${code ?? signal}`);
});
const ends = await Promise.allSettled(members);
rmSync(directory, { recursive: true });
const failed = ends.find((end) => end.status === "rejected");
if (failed) throw failed.reason;
