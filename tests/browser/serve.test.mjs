// The demo's server gives out what lies in its folders, as what it is, and nothing else.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { serve } from "../../examples/browser/serve.mjs";

describe("the demo's server", () => {
  const folder = mkdtempSync(join(tmpdir(), "uform-serve-"));
  const files = ["secret.txt", "page/index.html", "page/a b.mjs", "page/.hidden", "models/m.wasm"];
  let server;
  let address;

  before(async () => {
    mkdirSync(join(folder, "page"));
    mkdirSync(join(folder, "models"));
    for (const file of files) writeFileSync(join(folder, file), file);
    const folders = { "/": join(folder, "page"), "/models/": join(folder, "models") };
    ({ server, address } = await serve(folders));
  });
  after(() => {
    server.close();
    rmSync(folder, { recursive: true });
  });

  /** Unlike fetch, this sends a path as it is. */
  const get = (path, method = "GET") =>
    new Promise((resolve, reject) => {
      const { port } = new URL(address);
      const sent = request({ host: "127.0.0.1", port, path, method }, (response) => {
        let body = "";
        response.on("data", (chunk) => (body += chunk));
        response.on("end", () => resolve({ ...response, status: response.statusCode, body }));
      });
      sent.on("error", reject).end();
    });

  for (const [path, type, body] of [
    ["/", "text/html; charset=utf-8", "page/index.html"],
    ["/index.html?model=x", "text/html; charset=utf-8", "page/index.html"],
    ["/a%20b.mjs", "text/javascript; charset=utf-8", "page/a b.mjs"],
    ["/models/m.wasm", "application/wasm", "models/m.wasm"],
    ["/models/../index.html", "text/html; charset=utf-8", "page/index.html"],
  ]) {
    test(`answers ${path}`, async () => {
      const response = await fetch(new URL(path, address));
      assert.equal(response.status, 200);
      assert.equal(response.headers.get("content-type"), type);
      assert.equal(response.headers.get("content-length"), String(body.length));
      assert.match(response.headers.get("content-security-policy"), /default-src 'self'/);
      assert.equal(await response.text(), body);
    });
  }

  for (const path of [
    "/../secret.txt",
    "/%2e%2e/secret.txt",
    "/..%2fsecret.txt",
    "/models/..%2f..%2fsecret.txt",
    "/..%5csecret.txt",
    "/.hidden",
    "/a/..%2f.hidden",
    "/index.html%00.txt",
    "/%ff",
    "//secret.txt",
    "/models/",
    "/nowhere",
  ]) {
    test(`refuses ${path}`, async () => {
      const { status, body } = await get(path);
      assert.deepEqual([status, body], [404, "404\n"]);
    });
  }

  test("refuses what is not a question", async () => {
    assert.equal((await get("/", "POST")).status, 405);
    const { status, body } = await get("/", "HEAD");
    assert.deepEqual([status, body], [200, ""]);
  });

  test("is a program that says where it is, or that the port is taken", async () => {
    const program = new URL("../../examples/browser/serve.mjs", import.meta.url);
    const start = (port) =>
      spawn(process.execPath, [fileURLToPath(program)], { env: { PORT: port } });
    const { port } = new URL(address);
    const refused = start(port);
    const [message, [code]] = await Promise.all([text(refused.stderr), once(refused, "exit")]);
    assert.match(message, new RegExp(`^Port ${port} is taken: .*\\n$`));
    assert.equal(code, 1);

    const running = start("0");
    const [line] = await once(createInterface({ input: running.stdout }), "line");
    const response = await fetch(/http:\S+/.exec(line)[0]);
    assert.match(await response.text(), /<title>Search text by what it means/);
    running.kill();
    await once(running, "exit");
  });
});
