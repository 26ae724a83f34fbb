// The packed package where frameworks take programs apart, and in the realms of test runners: tracers of files,
// Next.js, Jest and vitest. What was traced runs from a copy, elsewhere, with nothing else beside it.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { nodeFileTrace } from "@vercel/nft";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const model = join(root, "tests/fixtures/variants/cls-f16");
const TEXT = "a red bicycle";
const vectors = JSON.parse(readFileSync(join(model, "vectors.json"), "utf8"));
const expected = vectors.calls[0].vectors[vectors.texts.indexOf(TEXT)];

/** Beneath this folder's node_modules: bundlers and test runners follow no links out of it. */
const app = join(here, "tmp");
/** Where copies run: nothing of the checkout is above it. */
const elsewhere = mkdtempSync(join(tmpdir(), "uform-frameworks-"));
const tool = (path) => join(here, "node_modules", path);
const env = {
  ...process.env,
  MODEL: model,
  VECTOR: JSON.stringify(expected),
  NEXT_TELEMETRY_DISABLED: "1",
  TRACING_ROOT: here,
};

before(() => {
  const packing = ["pack", "--json", "--ignore-scripts", "--pack-destination", elsewhere];
  const packed = JSON.parse(run("npm", [...packing, ".", "./npm/linux-x64-gnu"], root));
  rmSync(app, { recursive: true, force: true });
  cpSync(join(here, "app"), app, { recursive: true });
  writeFileSync(join(app, "package.json"), JSON.stringify({ private: true }));
  const tarballs = packed.map(({ filename }) => join(elsewhere, filename));
  const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--offline"];
  run("npm", ["install", ...options, ...tarballs], app);
});
after(() => {
  for (const folder of [app, elsewhere]) rmSync(folder, { recursive: true, force: true });
});

test("a trace of files lost the addon: @vercel/nft's has it, and the copy runs", async () => {
  const programs = ["embed.cjs", "embed.mjs"];
  const paths = programs.map((program) => join(app, program));
  const { fileList } = await nodeFileTrace(paths, { base: app, processCwd: app });
  const copy = join(elsewhere, "traced");
  for (const file of fileList) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    cpSync(join(app, file), join(copy, file));
  }
  for (const program of programs) {
    assertClose(JSON.parse(run(process.execPath, [program, model, TEXT], copy)));
  }
});

describe("the standalone server of Next.js lost the addon", () => {
  for (const bundler of ["turbopack", "webpack"]) {
    test(`built by ${bundler}, it answers from a copy`, async () => {
      const project = join(app, bundler);
      cpSync(join(app, "next"), project, { recursive: true });
      run(process.execPath, [tool("next/dist/bin/next"), "build", `--${bundler}`], project);
      const copy = join(elsewhere, bundler);
      cpSync(join(project, ".next/standalone"), copy, { recursive: true });
      assertClose(await answer(join(copy, "tmp", bundler)));
    });
  }
});

describe("in the realms of Jest", () => {
  const config = {
    rootDir: "jest",
    testRegex: "\\.check\\.cjs$",
    transform: {},
    cacheDirectory: join(elsewhere, "jest"),
  };
  for (const environment of ["node", "jsdom"]) {
    test(`the ${environment} environment`, () => {
      const options = ["--config", JSON.stringify(config), "--watchman=false", "--runInBand"];
      const testEnvironment = ["--env", tool(`jest-environment-${environment}`)];
      run(process.execPath, [tool("jest/bin/jest.js"), ...options, ...testEnvironment], app);
    });
  }
});

test("in the pools and realms of vitest", () => {
  const options = ["run", "--root", "vitest", "--reporter", "json"];
  const { numPassedTests, numTotalTests } = JSON.parse(
    run(process.execPath, [tool("vitest/vitest.mjs"), ...options], app),
  );
  assert.equal(numPassedTests, numTotalTests);
  assert.equal(numTotalTests, 5 * 5);
});

/** What the server in a folder answers. */
async function answer(folder) {
  const port = await freePort();
  const server = spawn(process.execPath, ["server.js"], {
    cwd: folder,
    env: { ...env, PORT: String(port), HOSTNAME: "127.0.0.1" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let told = "";
  server.stderr.on("data", (text) => (told += text));
  try {
    const url = `http://127.0.0.1:${port}/embed?text=${encodeURIComponent(TEXT)}`;
    const response = await patiently(() => fetch(url), server);
    const body = await response.text();
    assert.equal(response.status, 200, `${body}\n${told}`);
    return JSON.parse(body);
  } finally {
    server.kill();
  }
}

/** Tries until the server listens, for a minute at most. */
async function patiently(attempt, server) {
  const end = performance.now() + 60_000;
  for (;;) {
    try {
      return await attempt();
    } catch (failure) {
      if (server.exitCode !== null || performance.now() > end) throw failure;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** The published tolerance: a cosine of 0.99999 with the reference. NaN fails. */
function assertClose(vector) {
  assert.equal(vector.length, expected.length);
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  const cosine = dot(vector, expected) / Math.sqrt(dot(vector, vector) * dot(expected, expected));
  assert.ok(cosine > 0.99999, `cosine ${cosine}`);
}

/** Runs to the end and returns standard output; anything but success fails the test. */
function run(program, args, cwd) {
  const options = { cwd, env, encoding: "utf8", timeout: 240_000 };
  const { status, stdout, stderr, error } = spawnSync(program, args, options);
  if (error) throw error;
  assert.equal(status, 0, `${program} ${args.join(" ")}\n${stdout}${stderr}`);
  return stdout;
}
