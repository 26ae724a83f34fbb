// What the tests of the package share.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The repository's root, from which `uform` resolves to the package itself. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** The folder of all-MiniLM-L6-v2. */
export const modelPath = process.env.UFORM_TEST_MODEL ?? `${root}models/all-MiniLM-L6-v2`;
assert.ok(existsSync(modelPath), `no test model at ${modelPath}; set UFORM_TEST_MODEL`);

/** How often to repeat: a few times, or in `npm run test:soak` the full count. */
export const times = (few, full) => (process.env.UFORM_SOAK ? full : few);

/** More work than any test waits for: the test that submits it cancels it. */
export const endless = Array.from(
  { length: 4000 },
  (_, index) => `${index} ` + "the quick brown fox jumps over the lazy dog again and ".repeat(4),
);

/** An error of a class, with a message that names what it must. */
export function failure(type, ...words) {
  return (error) => {
    assert.equal(error?.constructor, type, `${error?.stack ?? error}`);
    assert.equal(error.name, type.name);
    for (const word of words) assert.ok(error.message.includes(word), `${word}: ${error.message}`);
    return true;
  };
}

/** Lets everything settle that needs only the event loop to turn. */
export const turns = (count = 10) =>
  Array.from({ length: count }).reduce(
    (before) => before.then(() => new Promise(setImmediate)),
    Promise.resolve(),
  );
