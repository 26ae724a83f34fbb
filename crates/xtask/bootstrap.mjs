// The door of a fresh checkout: makes sure of what Rust cannot bring by itself
// (a linker, what compiles hwloc and ForkUnion, pip, the npm packages), then hands over to
// `cargo xtask`.
//
// Usage: node crates/xtask/bootstrap.mjs <verb> [argument …]
// As root on Debian it installs what is missing; otherwise it names the one
// command to run, and stops.

import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const model = join(root, "models", "all-MiniLM-L6-v2");
const verbsWithModel = ["fetch-model", "test", "bench", "demo"];
const compiler = join(root, "target", "nvrtc");
const verbsWithCompiler = ["kernels", "test"];

const [verb, ...rest] = process.argv.slice(2);

if (Number(process.versions.node.split(".")[0]) < 20)
  stop(`Node.js 20 or newer is needed; this is ${process.version}.`);
if (!works("cargo", ["--version"]))
  stop("Rust is missing: install it with rustup, then run the same command again.");
installSystemPackages(missingSystemPackages());
installNpmPackages();
process.exit(run("cargo", ["xtask", verb, ...rest]));

/** The Debian packages that this verb needs and this machine lacks. */
function missingSystemPackages() {
  const packages = [];
  // `cc --version` would not tell whether the C library's start files are there.
  const canLink = works("cc", ["-x", "c", "-", "-o", "/dev/null"], "int main(void) { return 0; }");
  if (!canLink) packages.push("gcc", "libc6-dev");
  const tools = { make: "make", "pkg-config": "pkg-config", bzip2: "bzip2" };
  for (const [program, name] of Object.entries(tools)) {
    if (!works(program, ["--version"])) packages.push(name);
  }
  // ForkUnion is C++; its library is linked statically, which comes with the compiler.
  const staticCxx = ["-x", "c++", "-static-libstdc++", "-", "-o", "/dev/null"];
  const canCompileCxx = works("c++", staticCxx, "#include <atomic>\nint main() { return 0; }");
  if (!canCompileCxx) packages.push("g++");
  const downloads =
    (verbsWithModel.includes(verb) && !existsSync(model)) ||
    (verbsWithCompiler.includes(verb) && !existsSync(compiler));
  if (downloads && !works("python3", ["-m", "pip", "--version"])) {
    packages.push("python3", "python3-pip");
  }
  return packages;
}

function installSystemPackages(packages) {
  if (packages.length === 0) return;
  const install = ["install", "--yes", "--no-install-recommends", ...packages];
  if (!works("apt-get", ["--version"])) {
    stop(
      `Missing on this machine: ${packages.join(", ")} (Debian's names). Install them, then run the same command again.`,
    );
  }
  if (process.getuid() !== 0) {
    stop(`Missing on this machine: ${packages.join(", ")}. Run this once, then the same command again:\n
    sudo apt-get update && sudo apt-get ${install.join(" ")}`);
  }
  for (const step of [["update"], install]) {
    if (run("apt-get", ["--quiet", ...step], { DEBIAN_FRONTEND: "noninteractive" }) !== 0) {
      stop(`apt-get could not install ${packages.join(", ")}: see its message above.`);
    }
  }
}

function installNpmPackages() {
  const modified = (path) => (existsSync(path) ? statSync(path).mtimeMs : 0);
  // npm writes this file last, so it dates a finished installation.
  const installed = modified(join(root, "node_modules", ".package-lock.json"));
  if (installed >= modified(join(root, "package-lock.json")) && installed > 0) return;
  if (run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]) !== 0) {
    stop("npm could not install the development packages: see its message above.");
  }
}

function works(program, args, input = "") {
  return spawnSync(program, args, { input, stdio: ["pipe", "ignore", "ignore"] }).status === 0;
}

/** Runs a program in the foreground; returns its exit code. */
function run(program, args, env = {}) {
  console.error(`$ ${program} ${args.join(" ")}`);
  const { status } = spawnSync(program, args, {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  return status ?? 1;
}

function stop(message) {
  console.error(message);
  process.exit(1);
}
