// A model at a path, through `uform/web` in Node.js: as the addon reads it, and its errors as the addon's.
import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, mock, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import * as native from "uform";
import * as web from "uform/web";

const variant = fileURLToPath(new URL("../fixtures/variants/mean-sqrt-cut/", import.meta.url));
const large = fileURLToPath(new URL("../../models/all-MiniLM-L6-v2", import.meta.url));
const folder = fs.mkdtempSync(join(tmpdir(), "uform-paths-"));
after(() => fs.rmSync(folder, { recursive: true }));

/** A copy of the model under a name of its own, which `change` changes. */
function copy(name, change) {
  const path = join(folder, name);
  fs.cpSync(variant, path, { recursive: true });
  change?.(path);
  return path;
}

/** How many files this process has open of those beneath a folder. */
const openFiles = (beneath) =>
  fs.readdirSync("/proc/self/fd").filter((file) => {
    try {
      return fs.readlinkSync(`/proc/self/fd/${file}`).startsWith(beneath);
    } catch {
      return false;
    }
  }).length;

/** Waits until none is open: reads under way end first. */
async function closed(beneath) {
  for (let look = 0; openFiles(beneath) > 0; look++) {
    assert.ok(look < 1000, "files are still open");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

before(() => web.load());

const failure = (promise) =>
  promise.then(
    () => assert.fail("it resolved"),
    (error) => error,
  );

describe("a model at a path", () => {
  for (const [kind, path] of Object.entries({
    "a folder": variant,
    "a folder without a slash": variant.slice(0, -1),
    "a file: URL": pathToFileURL(variant).href,
    "a file of weights": join(variant, "model.safetensors"),
    "a file of weights of another name": copy("named", (path) =>
      fs.renameSync(join(path, "model.safetensors"), join(path, "other.safetensors")),
    ).concat("/other.safetensors"),
    "a large one": large,
  })) {
    test(`${kind} is the addon's`, async () => {
      const models = [await web.Model.open(path), await native.Model.open(path)];
      const [here, there] = models.map((model) => model.describe());
      // In one precision the fingerprint is of every byte.
      assert.equal(here.parameters, there.parameters);
      const same = await native.Model.open(path, { precision: here.precision });
      assert.equal(here.fingerprint, same.describe().fingerprint);
      const { rows } = await models[0].encodeText("the sea is blue");
      assert.equal(rows, 1);
      const now = web.Model.loadRam(path);
      assert.equal(now.describe().fingerprint, here.fingerprint);
      for (const model of [...models, same, now]) model.free();
      await closed(path);
    });
  }

  test("in the working folder", async () => {
    const before = process.cwd();
    process.chdir(copy("here"));
    try {
      for (const path of [".", "model.safetensors"]) (await web.Model.open(path)).free();
    } finally {
      process.chdir(before);
    }
  });

  test("is told as it is read, up to its end", async () => {
    const told = [];
    const model = await web.Model.open(large, { onProgress: (...part) => void told.push(part) });
    model.free();
    const [done, total] = told.at(-1);
    assert.ok(done === total && total > 1 << 20, `${told}`);
  });

  test("is given up by its signal, and its files are closed", async () => {
    for (const turns of [0, 1, 4]) {
      const stop = new AbortController();
      const opening = failure(web.Model.open(large, { signal: stop.signal }));
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
      stop.abort(new Error("enough"));
      assert.equal((await opening).message, "enough");
    }
    await closed(large);
  });

  test("takes nothing that is for URLs", async () => {
    const error = await failure(web.Model.open(variant, { cache: true }));
    assert.equal(error.code, "UFORM_INVALID_ARGUMENT");
  });
});

test("what is wrong with a path is told as by the addon", async () => {
  const at = (name) => join(folder, name);
  fs.writeFileSync(at("model.bin"), "");
  fs.writeFileSync(at("notes.txt"), "");
  fs.symlinkSync("nowhere", at("dangling"));
  const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  for (const path of [
    at("nothing"),
    at("nothing/model.safetensors"),
    at("notes.txt/beneath"),
    at("model.bin"),
    at("notes.txt"),
    at("dangling"),
    copy("without-config", (path) => fs.rmSync(join(path, "config.json"))),
    copy("without-weights", (path) => fs.rmSync(join(path, "model.safetensors"))),
    copy("of-another-framework", (path) => {
      fs.renameSync(join(path, "model.safetensors"), join(path, "pytorch_model.bin"));
    }),
    copy("without-tokenizer", (path) => fs.rmSync(join(path, "tokenizer.json"))),
    copy("folders", (path) => {
      fs.rmSync(join(path, "tokenizer.json"));
      fs.mkdirSync(join(path, "tokenizer.json"));
    }),
    copy("cut", (path) => fs.truncateSync(join(path, "model.safetensors"), 5000)),
    copy("empty", (path) => fs.truncateSync(join(path, "model.safetensors"), 0)),
    copy("pointer", (path) => fs.writeFileSync(join(path, "model.safetensors"), pointer)),
    copy("cut-and-named", (path) => {
      fs.truncateSync(join(path, "model.safetensors"), 5000);
      fs.renameSync(join(path, "model.safetensors"), join(path, "other.safetensors"));
    }).concat("/other.safetensors"),
    copy("bad-json", (path) => fs.writeFileSync(join(path, "config.json"), "{")),
  ]) {
    const error = await failure(native.Model.open(path));
    for (const load of [async () => web.Model.loadRam(path), () => web.Model.open(path)]) {
      const { code, message } = await failure(load());
      assert.equal(`${code} ${message}`, `${error.code} ${error.message}`);
    }
    await closed(folder);
  }
});

describe("a disk that fails", () => {
  let reads;
  beforeEach(() => {
    reads = { now: fs.readSync, later: fs.read };
  });
  afterEach(() => {
    mock.restoreAll();
    syncBuiltinESMExports();
  });

  /** Reads as the disk does, but beyond `limit` as `beyond` does. */
  function failing(limit, beyond) {
    const { now, later } = reads;
    mock.method(fs, "readSync", (file, buffer, start, count, at) =>
      at < limit ? now(file, buffer, start, Math.min(count, limit - at), at) : beyond(),
    );
    mock.method(fs, "read", (file, buffer, start, count, at, done) =>
      at < limit
        ? later(file, buffer, start, Math.min(count, limit - at), at, done)
        : setImmediate(done, new Error("later")),
    );
    syncBuiltinESMExports();
  }

  test("is told with the file and the system's words", async () => {
    failing(50 << 20, () => {
      throw Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" });
    });
    const error = await failure(web.Model.open(large));
    assert.equal(error.code, "UFORM_IO");
    assert.match(error.message, /model\.safetensors: EIO: i\/o error/);
  });

  test("or a file that was cut, with its size", async () => {
    failing(50 << 20, () => 0);
    const error = await failure(web.Model.open(large));
    assert.equal(error.code, "UFORM_CORRUPT_MODEL");
    assert.match(error.message, /model\.safetensors: it had 90868\d+ bytes .* was cut/);
  });

  test("a few bytes at a time are the same model", async () => {
    const { fingerprint } = (await web.Model.open(large)).describe();
    const { now, later } = reads;
    mock.method(fs, "readSync", (file, buffer, start, count, at) =>
      now(file, buffer, start, Math.min(count, 70_001), at),
    );
    mock.method(fs, "read", (file, buffer, start, count, at, done) =>
      later(file, buffer, start, Math.min(count, 300_007), at, done),
    );
    syncBuiltinESMExports();
    const model = await web.Model.open(large);
    assert.equal(model.describe().fingerprint, fingerprint);
    model.free();
  });
});
