// The page's side of the worker: a verb is a promise, which can be given up and tells its progress.

export class Engine {
  #worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  #calls = new Map();
  #last = 0;

  constructor() {
    this.#worker.addEventListener("message", ({ data }) => this.#receive(data));
    // Without a message the script itself, or what it imports, did not load.
    this.#worker.addEventListener("error", ({ message }) =>
      this.#failAll(
        message || "the library did not load: is it built, and served beside this page?",
      ),
    );
  }

  /** Loads a model: `{ milliseconds, bytes, module, precision, dimensions }`. */
  open(model, options) {
    return this.#call("open", { model, ...without(options) }, options);
  }

  /** Embeds texts and keeps their vectors, instead of those of the last call: `{ rows, milliseconds }`. */
  index(texts, options) {
    return this.#call("index", { texts }, options);
  }

  /** The indexed texts nearest to a query: `{ nearest: [{ row, score }], milliseconds }`. */
  search(query, count) {
    return this.#call("search", { query, count });
  }

  /** Of several lists of texts, the place of the one nearest to the query in each. */
  pick(query, lists) {
    return this.#call("pick", { query, lists });
  }

  #call(verb, request, { signal, onProgress } = {}) {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      signal?.addEventListener("abort", () => this.#worker.postMessage({ id, verb: "cancel" }));
      this.#calls.set(id, { resolve, reject, onProgress });
      this.#worker.postMessage({ id, verb, ...request });
    });
  }

  #receive({ id, progress, result, failure }) {
    const call = this.#calls.get(id);
    if (progress) return call?.onProgress?.(...progress);
    this.#calls.delete(id);
    if (failure) call?.reject(Object.assign(new Error(failure.message), { name: failure.name }));
    else call?.resolve(result);
  }

  #failAll(message) {
    for (const { reject } of this.#calls.values()) reject(new Error(message));
    this.#calls.clear();
  }
}

/** Functions and signals stay on this side. */
function without({ signal, onProgress, ...sent } = {}) {
  return sent;
}
