// The worker: it owns the model and the vectors, so that the page stays free while it computes.
//
// A message in is `{ id, verb, … }`; those out are `{ id, progress }` and, at last, `{ id, result }` or
// `{ id, failure }`. The verb "cancel" gives up the call of its id.

import { Executor, load, Model } from "/uform/dist/web/web.js";

const givenUp = new Map(); // id → AbortController of a call that runs
let executor;
let model;
let index;

const verbs = {
  async open({ model: address, wasm, precision }, how) {
    const start = performance.now();
    await load({ wasm: wasm && new URL(`/uform/dist/web/${wasm}.wasm`, location.origin) });
    executor ??= Executor.forRam();
    const cache = "caches" in globalThis; // only localhost and https have it
    const opened = await Model.open(new URL(address), { executor, precision, cache, ...how });
    model?.free();
    model = opened;
    index = undefined;
    const { bytes, dimensions, precision: computed } = model.describe();
    const { module } = executor.describe();
    const milliseconds = performance.now() - start;
    return { milliseconds, bytes, dimensions, precision: computed, module };
  },

  async index({ texts }, how) {
    const start = performance.now();
    index = await model.encodeText(texts, { executor, ...how });
    return { rows: index.rows, milliseconds: performance.now() - start };
  },

  async search({ query, count }) {
    const start = performance.now();
    const { data } = await model.encodeText(query, { executor });
    const nearest = rank(data, index).slice(0, count);
    return { nearest, milliseconds: performance.now() - start };
  },

  async pick({ query, lists }) {
    const { data } = await model.encodeText(query, { executor });
    const vectors = await model.encodeText(lists.flat(), { executor });
    const ranked = rank(data, vectors);
    let first = 0;
    return lists.map(({ length }) => {
      const [from, to] = [first, (first += length)];
      return ranked.find(({ row }) => row >= from && row < to).row - from;
    });
  },
};

addEventListener("message", async ({ data: { id, verb, ...request } }) => {
  if (verb === "cancel") return givenUp.get(id)?.abort();
  const control = new AbortController();
  givenUp.set(id, control);
  const onProgress = (done, total) => postMessage({ id, progress: [done, total] });
  try {
    const how = { signal: control.signal, onProgress };
    postMessage({ id, result: await verbs[verb](request, how) });
  } catch ({ name, message }) {
    postMessage({ id, failure: { name, message } });
  } finally {
    givenUp.delete(id);
  }
});

/** Every row's cosine with the query, best first. The vectors have length 1, so a dot product is the cosine. */
function rank(query, vectors) {
  const scores = [];
  for (let row = 0; row < vectors.rows; row++) {
    const text = vectors.row(row);
    let score = 0;
    for (let i = 0; i < query.length; i++) score += query[i] * text[i];
    scores.push({ row, score });
  }
  return scores.sort((a, b) => b.score - a.score);
}
