// `npm run bench -- --install`: what the peers need, each part once.

import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import * as places from "./places.mjs";
import { corpus } from "./texts.mjs";
import { peers } from "./tools.mjs";

const NPM = ["--ignore-scripts", "--no-audit", "--no-fund"];
const formats = join(places.here, "formats");
const candleSource = join(places.peers, "candle");

/** What a part leaves behind, what it stands on, and how it is made. */
const parts = {
  packages: { makes: places.packages, from: [], make: () => run("npm", ["ci", ...NPM]) },
  python: { makes: places.python, from: [], make: virtualEnvironment },
  reference: { makes: places.reference, from: ["python"], make: writeReference },
  onnx: { makes: places.onnx, from: ["python"], make: exportBy("export-onnx.py") },
  gguf: { makes: places.gguf, from: ["python"], make: exportBy("export-gguf.py") },
  llama: {
    makes: join(places.llama, "node_modules"),
    from: [],
    // The binding for this platform is a dependency of its own; the optional ones are builds for GPUs.
    make: () => run("npm", ["ci", "--omit=optional", ...NPM], { cwd: places.llama }),
  },
  mkl: { makes: places.mkl, from: ["python"], make: installMkl },
  candle: { makes: places.candle, from: ["mkl"], make: buildCandle },
};

/**
 * Brings what the named peers need, and the reference vectors. `python` is the folder of a virtual
 * environment that has formats/requirements.txt; absent: one is made (several gigabytes).
 */
export function install(names, python) {
  mkdirSync(places.installed, { recursive: true });
  const environment = dirname(dirname(places.python));
  if (python !== undefined && !existsSync(environment)) symlinkSync(python, environment);
  for (const part of ["reference", ...names.flatMap((name) => peers[name].parts)]) bring(part);
}

function bring(part) {
  const { makes, from, make } = parts[part];
  if (existsSync(makes)) return;
  from.forEach(bring);
  make(makes);
}

function virtualEnvironment() {
  const folder = dirname(dirname(places.python));
  whole(folder, (fresh) => {
    run("python3", ["-m", "venv", fresh]);
    const requirements = join(formats, "requirements.txt");
    run(join(fresh, "bin/python"), ["-m", "pip", "install", "--requirement", requirements]);
  });
}

function exportBy(program) {
  return (folder) =>
    whole(folder, (fresh) => {
      mkdirSync(fresh);
      run(places.python, [join(formats, program), places.model, fresh]);
    });
}

function writeReference(file) {
  const work = mkdtempSync(join(tmpdir(), "uform-bench-"));
  const texts = join(work, "texts.json");
  writeFileSync(texts, JSON.stringify(corpus(places.REFERENCE_TEXTS)));
  whole(file, (fresh) =>
    run(places.python, [join(formats, "reference.py"), places.model, texts, fresh]),
  );
  rmSync(work, { recursive: true });
}

/** MKL as its vendor puts it on PyPI: libraries and headers, which land in `lib` and `include`. */
function installMkl(folder) {
  const packages = ["mkl-static", "mkl-include", "intel-openmp"];
  const options = ["--no-deps", "--ignore-installed", "--no-warn-script-location"];
  whole(folder, (fresh) =>
    run(places.python, ["-m", "pip", "install", "--prefix", fresh, ...options, ...packages]),
  );
}

/** For this very CPU, as candle's own documentation advises. Takes ten minutes of CPU time. */
function buildCandle() {
  const target = dirname(dirname(places.candle));
  run("cargo", ["build", "--release", "--locked", "--target-dir", target], {
    cwd: candleSource,
    env: { ...process.env, MKLROOT: places.mkl, RUSTFLAGS: "-C target-cpu=native" },
  });
}

/** Makes something beside its destination, so that it appears there whole or not at all. */
function whole(destination, make) {
  const fresh = `${destination}.new`;
  rmSync(fresh, { recursive: true, force: true });
  make(fresh);
  renameSync(fresh, destination);
}

function run(program, args, options = {}) {
  console.error(`$ ${program} ${args.join(" ")}`);
  execFileSync(program, args, { cwd: places.here, stdio: "inherit", ...options });
}
