// What holds whichever backend computes: in Node.js with the addon, and wherever there is
// WebAssembly. Plain modules, without Node.js: a page runs them as well.
//
//   for (const { name, run } of suite({ uform, base })) …
//
// `uform` is the package's exports, `base` the URL of what `serve.mjs` serves.

import { calls } from "./calls.mjs";
import { embeddings } from "./embeddings.mjs";
import { errors } from "./errors.mjs";
import { sources } from "./sources.mjs";
import { streams } from "./streams.mjs";
import { tokens } from "./tokens.mjs";
import { values } from "./values.mjs";

/** The tests, to be run one after the other: each an async function that throws when it fails. */
export function suite({ uform, base }) {
  const tests = [];
  const test = (name, run) => tests.push({ name, run });
  const given = { uform, base: new URL(base) };
  const parts = [calls, embeddings, errors, sources, streams, tokens, values];
  for (const part of parts) part(test, given);
  return tests;
}
