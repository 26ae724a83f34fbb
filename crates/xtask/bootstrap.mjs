// The door of a fresh checkout: makes sure of what Rust cannot bring by itself
// (a linker, what compiles hwloc and ForkUnion, pip, the npm packages), then hands over to
// `cargo xtask`.
//
// Usage: node crates/xtask/bootstrap.mjs <verb> [argument …]
// As root on Debian it installs what is missing; otherwise it names the one
// command to run, and stops. Only a browser may be missing: the tests in it say that they are skipped.

import { spawnSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const model = join(root, "models", "all-MiniLM-L6-v2");
const verbsWithModel = ["fetch-model", "gpu-check", "test", "bench", "demo", "demo-browser"];
const compiler = join(root, "target", "nvrtc");
const verbsWithCompiler = ["kernels", "test"];

const [verb, ...rest] = process.argv.slice(2);

if (Number(process.versions.node.split(".")[0]) < 20)
  stop(`Node.js 20 or newer is needed; this is ${process.version}.`);
if (!works("cargo", ["--version"]))
  stop("Rust is missing: install it with rustup, then run the same command again.");
installSystemPackages(missingSystemPackages());
installNpmPackages(root);
if (verb === "test") {
  // Bundlers, runtimes and frameworks, a gigabyte that nothing else needs.
  for (const folder of ["bundlers", "frameworks"]) installNpmPackages(join(root, "tests", folder));
  if (!works("chromium", ["--version"])) installBrowser();
}
process.exit(run("cargo", ["xtask", verb, ...rest]));

/** The Debian packages that this verb needs and this machine lacks. */
function missingSystemPackages() {
  const packages = [];
  // `cc --version` would not tell whether the C library's start files are there.
  const aProgram = ["-x", "c", "-", "-o", "/dev/null"];
  const canLink = works("cc", aProgram, "int main(void) { return 0; }");
  if (!canLink) packages.push("gcc", "libc6-dev");
  const tools = { make: "make", "pkg-config": "pkg-config", bzip2: "bzip2" };
  for (const [program, name] of Object.entries(tools)) {
    if (!works(program, ["--version"])) packages.push(name);
  }
  // ForkUnion is C++; its library is linked statically, which comes with the compiler.
  const staticCxx = ["-x", "c++", "-static-libstdc++", "-", "-o", "/dev/null"];
  const canCompileCxx = works("c++", staticCxx, "#include <atomic>\nint main() { return 0; }");
  if (!canCompileCxx) packages.push("g++");
  // The kernels of Arm are tested on the other machines there are.
  if (verb === "test" && process.platform === "linux" && process.arch !== "arm64") {
    const arm = "aarch64-linux-gnu";
    const canLinkForArm = works(`${arm}-gcc`, aProgram, "int main(void) { return 0; }");
    if (!canLinkForArm) packages.push(`gcc-${arm}`, "libc6-dev-arm64-cross");
    if (!works("qemu-aarch64", ["--version"])) packages.push("qemu-user");
  }
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
  if (!works("apt-get", ["--version"])) {
    stop(
      `Missing on this machine: ${packages.join(", ")} (Debian's names). Install them, then run the same command again.`,
    );
  }
  if (process.getuid() !== 0) {
    stop(`Missing on this machine: ${packages.join(", ")}. Run this once, then the same command again:\n
    sudo apt-get update && sudo apt-get ${aptInstall(packages).join(" ")}`);
  }
  if (!installed(packages)) {
    stop(`apt-get could not install ${packages.join(", ")}: see its message above.`);
  }
}

function installBrowser() {
  const can = process.getuid() === 0 && works("apt-get", ["--version"]);
  if (!can || !installed(["chromium"])) {
    console.error("There is no Chromium here: the tests in a browser will be skipped.");
  }
}

/** Whether apt-get, as root, has installed the packages. */
function installed(packages) {
  return [["update"], aptInstall(packages)].every(
    (step) => run("apt-get", ["--quiet", ...step], { DEBIAN_FRONTEND: "noninteractive" }) === 0,
  );
}

function aptInstall(packages) {
  return ["install", "--yes", "--no-install-recommends", ...packages];
}

function installNpmPackages(folder) {
  const modified = (path) => (existsSync(path) ? statSync(path).mtimeMs : 0);
  // npm writes this file last, so it dates a finished installation.
  const installed = modified(join(folder, "node_modules", ".package-lock.json"));
  if (installed >= modified(join(folder, "package-lock.json")) && installed > 0) return;
  const install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder];
  if (run("npm", install) !== 0) {
    stop(`npm could not install the packages of ${folder}: see its message above.`);
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
