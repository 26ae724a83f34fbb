// The packages as they would be published: packed, judged by publint and
// attw, installed from their tarballs into an empty folder, and used from there
// in every way a program can.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const model = process.env.UFORM_TEST_MODEL ?? join(root, "models/all-MiniLM-L6-v2");
const tool = (name) => join(root, "node_modules/.bin", name);

const folder = mkdtempSync(join(tmpdir(), "uform-package-"));
const app = join(folder, "app");
let tarballs;
let manifests;

before(() => {
  const packed = run(
    "npm",
    [
      "pack",
      "--json",
      "--ignore-scripts",
      "--pack-destination",
      folder,
      ".",
      "./npm/linux-x64-gnu",
    ],
    root,
  );
  manifests = JSON.parse(packed);
  tarballs = manifests.map(({ filename }) => join(folder, filename));
  cpSync(join(here, "app"), app, { recursive: true });
  run(
    "npm",
    ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--offline", ...tarballs],
    app,
  );
});
after(() => rmSync(folder, { recursive: true }));

describe("the tarballs", () => {
  test("hold what is used, and nothing of the workshop", () => {
    const [main, platform] = manifests.map(({ files }) => files.map(({ path }) => path));
    assert.deepEqual(platform.toSorted(), ["LICENSE", "bundled.mjs", "package.json", "uform.node"]);
    const strays = main.filter(
      (path) =>
        !/^(dist\/[\w/-]+(\.m?js|\.d\.m?ts)|dist\/web\/(web\.cjs|wasm[\w-]+\.wasm|package\.json)|LICENSE|README\.md|package\.json)$/.test(
          path,
        ),
    );
    assert.deepEqual(strays, []);
    const modules = main.filter((path) => path.endsWith(".wasm"));
    assert.deepEqual(modules.toSorted(), [
      "dist/web/wasm32-relaxed.wasm",
      "dist/web/wasm32.wasm",
      "dist/web/wasm64.wasm",
    ]);
  });

  test("have no install scripts", () => {
    for (const path of ["package.json", "npm/linux-x64-gnu/package.json"]) {
      const { scripts = {} } = JSON.parse(readFileSync(join(root, path), "utf8"));
      const hooks = Object.keys(scripts).filter((name) =>
        /^(pre|post)?(install|prepare)$/.test(name),
      );
      assert.deepEqual(hooks, [], path);
    }
  });

  test("satisfy publint", () => {
    for (const tarball of tarballs) run(tool("publint"), ["run", tarball, "--strict"], folder);
  });

  test("satisfy attw", () => {
    const attw = (...args) =>
      run(tool("attw"), [tarballs[0], "--no-definitely-typed", ...args], folder);
    attw("--entrypoints", ".");
    // What is WebAssembly's is for engines that have ES modules.
    attw("--entrypoints", "web", "--profile", "esm-only");
  });
});

describe("the addon", () => {
  test("needs nothing that a system without hwloc lacks", () => {
    const needed = run("ldd", [join(root, "npm/linux-x64-gnu/uform.node")], root);
    const names = needed
      .trim()
      .split("\n")
      .map((line) => line.trim().split(" ")[0].split("/").at(-1));
    const always = /^(linux-vdso|ld-linux-x86-64|libc|libm|libgcc_s|libpthread|libdl)\.so/;
    assert.deepEqual(
      names.filter((name) => !always.test(name)),
      [],
    );
    assert.ok(
      names.some((name) => name.startsWith("libc.so")),
      needed,
    );
  });
});

describe("installed in an empty folder", () => {
  for (const program of ["esm.mjs", "cjs.cjs", "worker.mjs", "both.mjs", "web.mjs"]) {
    test(`${program} embeds and compares`, () => {
      assert.equal(run(process.execPath, [program, model], app).trim(), "close");
    });
  }

  test("TypeScript consumers, ESM and CommonJS, compile strictly and run", () => {
    run(tool("tsc"), ["--project", ".", "--typeRoots", join(root, "node_modules/@types")], app);
    for (const program of ["built/esm.mjs", "built/cjs.cjs"]) {
      assert.equal(run(process.execPath, [program, model], app).trim(), "close", program);
    }
  });

  test("esbuild's bundles, ESM and CommonJS, embed and compare", () => {
    for (const [program, format, bundle] of [
      ["esm.mjs", "esm", "esm.bundle.mjs"],
      ["cjs.cjs", "cjs", "cjs.bundle.cjs"],
    ]) {
      const how = ["--bundle", "--minify", "--platform=node", `--format=${format}`];
      run(tool("esbuild"), [program, ...how, `--outfile=${bundle}`], app);
      assert.equal(run(process.execPath, [bundle, model], app).trim(), "close", bundle);
    }
  });

  test("esbuild's bundle for a browser has the WebAssembly build, and nothing of Node.js", () => {
    const entry = `import { load, Executor } from "uform"; await load(); console.log(Executor.forRam().describe().module);`;
    writeFileSync(join(app, "page.mjs"), entry);
    const how = ["--bundle", "--minify", "--platform=browser", "--format=esm"];
    run(tool("esbuild"), ["page.mjs", ...how, "--outfile=page/dist/page.js"], app);
    const bundle = readFileSync(join(app, "page/dist/page.js"), "utf8");
    assert.doesNotMatch(bundle, /createRequire|linux-x64-gnu/);
    // esbuild leaves the file to be copied to where the bundle looks for it.
    const [, path] = /new URL\("([^"]+wasm32\.wasm)",import\.meta\.url\)/.exec(bundle);
    cpSync(join(app, "node_modules/uform/dist/web/wasm32.wasm"), join(app, "page/dist", path));
    writeFileSync(join(app, "page/package.json"), `{ "type": "module" }`);
    assert.equal(run(process.execPath, ["page/dist/page.js"], app).trim(), "wasm32");
  });

  test("npx uform runs the command line", () => {
    const found = JSON.parse(run("npx", ["--offline", "uform", "info", "--json"], app));
    const { version } = manifests[0];
    assert.deepEqual([found.package, found.addon, found.error], [version, version, null]);
    const texts = join(folder, "texts.txt");
    writeFileSync(texts, "a red bicycle\n");
    const line = run("npx", ["--offline", "uform", "embed", texts, "--model", model], app);
    assert.equal(JSON.parse(line).embedding.length, 384);
  });

  test("importing it takes less than 500 ms", () => {
    // Ten times the 50 ms it should take, so that a busy machine does not fail it.
    const measure = `const start = performance.now(); await import("uform"); console.log(performance.now() - start);`;
    writeFileSync(join(app, "time.mjs"), measure);
    const times = [1, 2, 3].map(() => Number(run(process.execPath, ["time.mjs"], app)));
    assert.ok(Math.min(...times) < 500, `${times} ms`);
  });

  describe("an addon that does not load was always said to be missing. The error tells that", () => {
    const name = "@uform/linux-x64-gnu";
    const script = `import("uform").then(({ Executor }) => Executor.forRam()).catch((error) => console.log(error.message))`;
    /** The app's packages, changed, and what the error says there. */
    const messageAfter = (called, change) => {
      const copy = join(folder, called);
      cpSync(join(app, "node_modules"), join(copy, "node_modules"), { recursive: true });
      change(join(copy, "node_modules", name));
      return run(process.execPath, ["--eval", script], copy);
    };

    test("it is not installed", () => {
      const message = messageAfter("bare", (addon) => rmSync(addon, { recursive: true }));
      assert.match(message, /not found from \S+uform\.js.*`npm install @uform\/linux-x64-gnu`/);
      assert.doesNotMatch(message, /bundler/);
    });

    test("it is installed without its file", () => {
      const message = messageAfter("copied", (addon) => rmSync(join(addon, "uform.node")));
      assert.match(message, /is installed, but its file \S+uform\.node is missing/);
    });

    test("it is there, and the system refuses it", () => {
      const message = messageAfter("cut", (addon) => writeFileSync(join(addon, "uform.node"), "x"));
      assert.match(message, /\S+uform\.node, cannot be loaded on \S+ with glibc \S+: \S+/);
    });

    for (const [format, bundle] of [
      ["esm", "moved.mjs"],
      ["cjs", "moved.cjs"],
    ]) {
      test(`a bundle was moved away from it (${format})`, () => {
        writeFileSync(join(app, "caught.mjs"), script);
        const how = ["--bundle", "--platform=node", `--format=${format}`];
        run(tool("esbuild"), ["caught.mjs", ...how, `--outfile=${join(folder, bundle)}`], app);
        const message = run(process.execPath, [join(folder, bundle)], folder);
        assert.ok(message.includes(`not found from ${join(folder, bundle)}`), message);
        assert.match(message, /keep uform out of the bundle/);
      });
    }
  });
});

/** Runs to the end and returns standard output; anything but success, or a word on standard error, fails the test. */
function run(program, args, cwd) {
  const quiet = program === process.execPath;
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd,
    encoding: "utf8",
    timeout: 120_000,
  });
  if (error) throw error;
  assert.equal(status, 0, `${program} ${args.join(" ")}\n${stdout}${stderr}`);
  if (quiet) assert.equal(stderr, "", `${program} ${args.join(" ")}`);
  return stdout;
}
