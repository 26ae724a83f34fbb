// The examples, run as a person would run them.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeDrivers } from "../tests/node/fake-gpus.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const model = process.env.UFORM_TEST_MODEL ?? join(root, "models/all-MiniLM-L6-v2");

const start = (script, args = [], env = {}) =>
  spawn(process.execPath, [script, ...args], { cwd: root, env: { ...process.env, ...env } });

describe("semantic search", () => {
  const search = async (...args) => {
    const child = start("examples/semantic-search/main.mjs", ["--model", model, ...args]);
    child.stdin.end();
    const [output, errors, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, "exit"),
    ]);
    return { output, errors, code };
  };

  test("finds the passage that answers the question, and names its file", async () => {
    const { output, errors, code } = await search(
      "README.md",
      "LICENSE",
      "--query",
      "may I sue someone over a patent?",
      "--top",
      "1",
    );
    assert.equal(errors, "");
    assert.equal(code, 0);
    assert.match(output, /Embedding: .*done in/);
    assert.match(output, /0\.\d{3} {2}LICENSE\n.*patent/i);
    assert.match(output, /Query embedded in [\d.]+ ms/);
  });

  test("without a question and without a terminal it answers a question of its own", async () => {
    const { output, errors, code } = await search("--limit", "50");
    assert.equal(errors, "");
    assert.equal(code, 0);
    assert.match(output, /node_modules\/.*readme/i);
  });

  test("a folder that is not there ends it with code 1", async () => {
    const { errors, code } = await search("no-such-folder");
    assert.equal(code, 1);
    assert.match(errors, /no-such-folder/);
  });
});

describe("embedding service", () => {
  let service;
  let address;

  before(async () => {
    service = start("examples/embedding-service/server.mjs", [], {
      PORT: "0",
      MODEL: model,
      DEFERRED_LIMIT: "2",
    });
    const [line] = await once(createInterface({ input: service.stdout }), "line");
    address = `http://localhost:${/\d+$/.exec(line)[0]}/embed`;
  });
  after(() => service.kill("SIGKILL"));

  const post = (body) =>
    fetch(address, {
      method: "POST",
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  const many = Array.from(
    { length: 100 },
    (_, i) => `text number ${i} is about nothing in particular`,
  );

  test("answers one vector a text", async () => {
    const response = await post({ texts: ["a red bicycle", "a bike painted red"] });
    assert.equal(response.status, 200);
    const { dimensions, vectors } = await response.json();
    assert.equal(dimensions, 384);
    assert.deepEqual(
      vectors.map((vector) => vector.length),
      [384, 384],
    );
  });

  for (const body of [
    "not JSON",
    "null",
    {},
    { texts: "one" },
    { texts: [1] },
    { texts: Array(257).fill("") },
  ]) {
    test(`refuses ${JSON.stringify(body).slice(0, 30)} with 400`, async () => {
      const response = await post(body);
      assert.equal(response.status, 400);
      assert.equal(typeof (await response.json()).error, "string");
    });
  }

  test("pushes back with 429 when too many calls wait, and loses none of the others", async () => {
    const responses = await Promise.all(Array.from({ length: 20 }, () => post({ texts: many })));
    const refused = responses.filter((response) => response.status === 429);
    const answered = responses.filter((response) => response.status === 200);
    assert.equal(refused.length + answered.length, 20);
    assert.ok(
      refused.length > 0 && answered.length > 0,
      `${refused.length} refused, ${answered.length} answered`,
    );
    assert.equal(refused[0].headers.get("retry-after"), "1");
    for (const response of answered)
      assert.equal((await response.json()).vectors.length, many.length);
  });

  test("on SIGTERM it answers what it has, then ends with code 0 and nothing on standard error", async () => {
    const errors = text(service.stderr);
    const pending = [post({ texts: many }), post({ texts: many })];
    await new Promise((resolve) => setTimeout(resolve, 50));
    service.kill("SIGTERM");
    for (const response of await Promise.all(pending)) assert.equal(response.status, 200);
    const [code] = await once(service, "exit");
    assert.equal(code, 0);
    assert.equal(await errors, "");
  });
});

describe("mesh", () => {
  test("two processes have the mean of their texts", async () => {
    const folder = mkdtempSync(join(tmpdir(), "uform-mesh-"));
    try {
      const cargo = (...args) => {
        const { status, stderr } = spawnSync("cargo", args, { cwd: root, encoding: "utf8" });
        assert.equal(status, 0, stderr);
      };
      const tiny = ["run", "--quiet", "-p", "uform", "--example", "tiny_model", "--"];
      cargo("xtask", "fake-gpu", folder);
      cargo(...tiny, join(folder, "model"), "small");
      const child = start("examples/mesh/main.mjs", [join(folder, "model")], {
        LD_LIBRARY_PATH: folder,
        FAKE_CUDA_DEVICES: Array(8).fill("H200:9.0:132:1024").join(","),
      });
      const [output, errors, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, "exit"),
      ]);
      assert.equal(errors, "");
      assert.equal(code, 0, output);
      assert.match(output, /^\[0\] joined: GPUs 0 to 3 of 8 \(nvidia-hopper, peer-read\)$/m);
      assert.match(output, /^\[1\] joined: GPUs 4 to 7 of 8 /m);
      const means = [...output.matchAll(/^\[[01]\] mean of 8 texts: (.*)$/gm)];
      assert.equal(means.length, 2, output);
      assert.equal(means[0][1], means[1][1]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("the documentation's programs", () => {
  const pages = readdirSync(join(root, "docs")).filter((name) => name.endsWith(".md"));
  const found = ["README.md", ...pages.map((name) => `docs/${name}`)].flatMap((page) =>
    [...readFileSync(join(root, page), "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map(
      ([, program], index) => ({ name: `${page}, number ${index + 1}`, program }),
    ),
  );
  // Those of a page have an address, or import a module's file: tests/bundlers builds and runs their like.
  const programs = found.filter(({ program }) => !/location\.href|\.wasm"/.test(program));
  const isServer = ({ program }) => program.includes(".listen(8080)");

  // Those of GPUs run with stand-ins for the driver.
  const drivers = makeDrivers();
  after(() => drivers.remove());
  const gpus = {
    LD_LIBRARY_PATH: drivers.folder,
    FAKE_CUDA_DEVICES: "H200:9.0:132:1024,H200:9.0:132:1024",
  };

  const run = (program) => {
    const child = start("--input-type=module", [], program.includes("forVram") ? gpus : {});
    // The model may be elsewhere than where a checkout has it.
    child.stdin.end(program.replace("models/all-MiniLM-L6-v2", model));
    return child;
  };

  test("are found", () => {
    assert.ok(programs.length >= 5);
    assert.equal(programs.filter(isServer).length, 1);
  });

  for (const { name, program } of programs.filter((program) => !isServer(program))) {
    test(`${name} runs as it stands, and prints what it says`, async () => {
      const child = run(program);
      const [output, errors, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, "exit"),
      ]);
      assert.equal(errors, "");
      assert.equal(code, 0);
      const promised = [...program.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)];
      for (const [, line] of promised) assert.ok(output.split("\n").includes(line), output);
    });
  }

  test("the server answers a vector for each text, and 400 to what is not JSON", async () => {
    const { program } = programs.find(isServer);
    // On a free port, which it tells.
    const tells = ".listen(0, () => console.log(server.address().port))";
    const child = run(program.replace(".listen(8080)", tells));
    try {
      const [port] = await once(createInterface({ input: child.stdout }), "line");
      const post = (body) => fetch(`http://localhost:${port}/`, { method: "POST", body });
      const response = await post(JSON.stringify({ texts: ["a red bicycle", "a bike"] }));
      assert.equal(response.status, 200, await response.clone().text());
      const vectors = await response.json();
      assert.deepEqual(
        vectors.map((vector) => vector.length),
        [384, 384],
      );
      assert.equal((await post("not JSON")).status, 400);
    } finally {
      child.kill("SIGKILL");
    }
  });
});
