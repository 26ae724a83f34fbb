// `npm run bench -- --install`: the other tools, and the model in their format.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { here, model, onnx, REFERENCE_TEXTS } from "./places.mjs";
import { corpus } from "./texts.mjs";

/**
 * Installs the npm packages, then exports the model to ONNX with Python.
 * `python` names an interpreter that has requirements.txt; absent: a virtual environment is made
 * for it here (several gigabytes).
 */
export function install(python) {
  run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
  if (existsSync(onnx)) return;
  python ??= virtualEnvironment();
  const work = mkdtempSync(join(tmpdir(), "uform-bench-"));
  const texts = join(work, "texts.json");
  writeFileSync(texts, JSON.stringify(corpus(REFERENCE_TEXTS)));
  // Beside its destination, so that it appears there whole.
  const fresh = `${onnx}.new`;
  rmSync(fresh, { recursive: true, force: true });
  mkdirSync(join(fresh, "onnx"), { recursive: true });
  run(python, ["export.py", model, texts, fresh]);
  renameSync(fresh, onnx);
  rmSync(work, { recursive: true });
}

function virtualEnvironment() {
  const folder = join(here, ".venv");
  const python = join(folder, "bin/python");
  if (!existsSync(python)) run("python3", ["-m", "venv", folder]);
  run(python, ["-m", "pip", "install", "--requirement", "requirements.txt"]);
  return python;
}

function run(program, args) {
  console.error(`$ ${program} ${args.join(" ")}`);
  execFileSync(program, args, { cwd: here, stdio: "inherit" });
}
