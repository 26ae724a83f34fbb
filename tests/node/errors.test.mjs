// Failures are values a program can branch on, the same from either module system.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import * as esm from "uform";
import { failure } from "./support.mjs";

const cjs = createRequire(import.meta.url)("uform");
const { Model, NotFoundError, Status, UformError } = esm;

test("a message of our own is bounded, and keeps both of its ends", () => {
  const { message } = new UformError(Status.Io, `what${"x".repeat(1 << 20)}way out`);
  assert.ok(message.length < 2112, `${message.length}`);
  assert.ok(message.startsWith("whatx") && message.endsWith("xway out"));
  assert.ok(message.includes("… (1046539 more characters) …"));
});

test("both module systems export the same things", () => {
  const markers = ["__esModule", "module.exports", "default"];
  const exported = Object.keys(esm).filter((name) => !markers.includes(name));
  assert.deepEqual(exported.sort(), Object.keys(cjs).sort());
  for (const name of exported) assert.equal(esm[name], cjs[name], name);
});

test("each status but two has an error class of its name", () => {
  const numbers = Object.values(Status).filter((status) => typeof status === "number");
  assert.deepEqual(
    numbers,
    Array.from({ length: 14 }, (_, index) => index + 1),
  );
  for (const status of numbers) {
    if (status === Status.Aborted || status === Status.Internal) continue;
    const type = esm[`${Status[status]}Error`];
    const cause = new Error("because");
    const error = new type("what happened", { cause });
    assert.ok(error instanceof UformError && error instanceof Error);
    assert.equal(error.status, status);
    assert.equal(error.name, type.name);
    assert.equal(error.cause, cause);
    assert.match(error.code, /^UFORM_[A-Z_]+$/);
    assert.equal(error.code.replaceAll("_", ""), `UFORM${Status[status].toUpperCase()}`);
    assert.match(String(error.stack), new RegExp(`^${type.name}: what happened`));
  }
});

test("a failure carries its code, its status and the caller's stack", async () => {
  const check = (error) => {
    failure(NotFoundError, "/no/such/model")(error);
    assert.equal(error.code, "UFORM_NOT_FOUND");
    assert.equal(error.status, Status.NotFound);
    assert.match(error.stack, /asker/);
    return true;
  };
  const asker = async () => await Model.open("/no/such/model");
  assert.throws(function asker() {
    Model.loadRam("/no/such/model");
  }, check);
  await assert.rejects(asker, check);
});
