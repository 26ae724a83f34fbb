// Models without a path: from a server, from files, from memory, and from a cache.

import { equal, fail, failure, fails, ok } from "./check.mjs";

/** What a variant consists of. */
const names = [
  "config.json",
  "config_sentence_transformers.json",
  "model.safetensors",
  "modules.json",
  "sentence_bert_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "1_Pooling/config.json",
];
const variant = "mean-sqrt-cut";

export function sources(test, { uform, base }) {
  const { InvalidArgumentError, IoError, NotFoundError, OutOfMemoryError, UnsupportedError } =
    uform;
  const { Executor, Model, Status, UformError } = uform;
  const url = new URL(`fixtures/variants/${variant}/`, base);
  const at = (kind) => new URL(`${kind}/variants/${variant}/`, base);

  const record = async () => {
    const entries = names.map(async (name) => [
      name,
      await (await fetch(new URL(name, url))).arrayBuffer(),
    ]);
    return Object.fromEntries(await Promise.all(entries));
  };
  const mapped = async (convert) =>
    Object.fromEntries(
      Object.entries(await record()).map(([name, bytes]) => [name, convert(bytes, name)]),
    );
  const fileOf = (bytes, name, folder) => {
    const file = new File([bytes], name.split("/").at(-1));
    if (folder) Object.defineProperty(file, "webkitRelativePath", { value: `${folder}/${name}` });
    return file;
  };

  test("every kind of source gives the same model", async () => {
    const first = await Model.open(url);
    const { fingerprint } = first.describe();
    const { data } = await first.encodeText("the sea is blue");
    first.free();
    const kinds = {
      "a URL without a slash": new URL(url.href.slice(0, -1)),
      "a URL that tells no size": at("unsized"),
      buffers: await record(),
      arrays: await mapped((bytes) => new Uint8Array(bytes)),
      blobs: await mapped((bytes) => new Blob([bytes])),
      streams: await mapped((bytes) => new Blob([bytes]).stream()),
      "a folder's files": Object.values(
        await mapped((bytes, name) => fileOf(bytes, name, "chosen folder")),
      ),
    };
    for (const [kind, source] of Object.entries(kinds)) {
      const model = await Model.open(source);
      equal(model.describe().fingerprint, fingerprint, kind);
      equal((await model.encodeText("the sea is blue")).data, data, kind);
      model.free();
    }
  });

  test("files whose folder is not known are a model without folders", async () => {
    const files = await mapped((bytes, name) => fileOf(bytes, name));
    delete files["1_Pooling/config.json"];
    delete files["modules.json"];
    const model = await Model.open(Object.values(files));
    const { rows } = await model.encodeText("the sea", { pooling: "mean" });
    equal(rows, 1);
    model.free();
  });

  test("files that are missing, other than they say, or used up are told by name", async () => {
    const files = await record();
    const without = (name) => ({ ...files, [name]: undefined });
    for (const name of ["config.json", "model.safetensors", "tokenizer.json"]) {
      const rest = Object.fromEntries(Object.entries(files).filter(([key]) => key !== name));
      await fails(Model.open(rest), NotFoundError, name);
    }
    await fails(Model.open(without("config.json")), InvalidArgumentError, "source");
    for (const place of [url, at("app")]) {
      const nothing = new URL("no-such-model?key=secret", place);
      const error = await failure(Model.open(nothing));
      ok(error instanceof NotFoundError && !error.message.includes("secret"), error);
      ok(error.message.startsWith(`${place}no-such-model/config.json: `), error);
    }
    const half = files["model.safetensors"].slice(0, 1000);
    const cut = failure(Model.open({ ...files, "model.safetensors": half }));
    equal((await cut).code, "UFORM_CORRUPT_MODEL");
    const marked = new Blob(["\ufeff", files["tokenizer.json"]]);
    const opening = failure(Model.open({ ...files, "tokenizer.json": marked }));
    ok((await opening).message.startsWith("tokenizer.json: begins with a byte order mark"));
    const streams = await mapped((bytes) => new Blob([bytes]).stream());
    (await Model.open(streams)).free();
    await fails(Model.open(streams), InvalidArgumentError, "stream", ".json");
    const config = new TextEncoder().encode('{"model_type": "llama"}');
    await fails(Model.open({ ...files, "config.json": config }), UnsupportedError, "llama");
  });

  test("what only says that it is a file is refused by name", async () => {
    const files = await record();
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const says = (kind) => ({ [Symbol.toStringTag]: kind });
    for (const file of [
      ...["ArrayBuffer", "Uint8Array", "Blob", "File", "ReadableStream"].map(says),
      new Proxy(files["config.json"], {}),
      new Proxy(new Uint8Array(1), {}),
      new Float32Array(1),
      proxy,
      null,
    ]) {
      const opening = Model.open({ ...files, "config.json": file });
      await fails(opening, InvalidArgumentError, '"config.json"', "`source`", "ReadableStream");
    }
    await fails(Model.open([says("File")]), InvalidArgumentError, "`source`", "File[]");
    const getReader = () => ({ cancel: async () => {} });
    const odd = { ...says("ReadableStream"), getReader };
    await fails(Model.open({ ...files, "config.json": odd }), IoError, "config.json: reading it");
  });

  test("a URL that has nothing beneath it is refused by name", async () => {
    const long = `data:application/json,${"x".repeat(1 << 20)}`;
    const blob = URL.createObjectURL(new Blob(["{}"]));
    for (const [url, kind] of [
      [long, "data:"],
      [blob, "blob:"],
      ["mailto:somebody@example.org", "mailto:"],
    ]) {
      const asked = Model.open(new URL(url));
      const words = ["`source`", `a ${kind} URL`, "a record"];
      const { message } = await fails(asked, InvalidArgumentError, ...words);
      ok(message.length < 1000, `${message.length}`);
    }
    URL.revokeObjectURL(blob);
  });

  test("bytes that were transferred elsewhere are told by name", async () => {
    for (const name of ["config.json", "model.safetensors"]) {
      for (const wrap of [(buffer) => buffer, (buffer) => new Uint8Array(buffer)]) {
        const files = await record();
        const buffer = files[name];
        files[name] = wrap(buffer);
        structuredClone(buffer, { transfer: [buffer] });
        await fails(Model.open(files), InvalidArgumentError, `"${name}"`, "detached", "a copy");
      }
    }
  });

  test("bytes whose buffer is resized meanwhile are told so, unless they are all there", async () => {
    for (const [name, grows] of [
      ["config.json", false],
      ["model.safetensors", false],
      ["model.safetensors", true],
    ]) {
      for (const wrap of [(buffer) => buffer, (buffer) => new Uint8Array(buffer)]) {
        const files = await record();
        const bytes = new Uint8Array(files[name]);
        const buffer = new ArrayBuffer(bytes.length, { maxByteLength: bytes.length + 1 });
        if (!buffer.resizable) return;
        new Uint8Array(buffer).set(bytes);
        const opening = Model.open({ ...files, [name]: wrap(buffer) });
        buffer.resize(grows ? bytes.length + 1 : 7);
        if (grows) (await opening).free();
        else await fails(opening, InvalidArgumentError, `"${name}"`, "resized, to 7 bytes");
      }
    }
  });

  test("bytes that are written to, cut or taken away meanwhile end in a model or an error", async () => {
    const changes = {
      transferred: (buffer) => structuredClone(buffer, { transfer: [buffer] }),
      cut: (buffer) => buffer.resize?.(buffer.byteLength >> 1),
      written: (buffer) => new Uint8Array(buffer).fill(255),
    };
    for (const [kind, change] of Object.entries(changes)) {
      const files = await record();
      for (const [name, bytes] of Object.entries(files)) {
        const buffer = new ArrayBuffer(bytes.byteLength, { maxByteLength: bytes.byteLength });
        new Uint8Array(buffer).set(new Uint8Array(bytes));
        files[name] = buffer;
      }
      const opening = Model.open(files).then(
        (model) => model.free(),
        (error) => ok(error instanceof UformError && error.status !== Status.Internal, kind, error),
      );
      for (let turn = 0; turn < 5; turn++) {
        await new Promise((resolve) => setTimeout(resolve, 0));
        const [buffer] = Object.values(files).filter(({ byteLength }) => byteLength > 0);
        if (buffer !== undefined) change(buffer);
        delete files[Object.keys(files)[0]];
      }
      await opening;
    }
  });

  test("bytes that other threads see are a file, too", async () => {
    if (typeof SharedArrayBuffer === "undefined") return;
    const files = await mapped((bytes) => {
      const shared = new Uint8Array(new SharedArrayBuffer(bytes.byteLength));
      shared.set(new Uint8Array(bytes));
      return shared;
    });
    const model = await Model.open(files);
    equal((await model.encodeText("the sea is blue")).rows, 1);
    model.free();
  });

  test("a server that fails is told", async () => {
    const nobody = new URL("http://127.0.0.1:9/");
    await fails(Model.open(nobody), IoError, "127.0.0.1:9", "cannot be fetched");
    const cut = at(`cut/${Math.random()}`);
    await fails(Model.open(cut), IoError, `${cut}model.safetensors`);
  });

  test("what a URL is asked with, and by whom, is in no message", async () => {
    for (const url of [
      "http://127.0.0.1:9/model?signature=SECRET",
      "http://name:SECRET@127.0.0.1:9/model",
      new URL("?signature=SECRET", at(`cut/${Math.random()}`)),
    ]) {
      const failure = await Model.open(new URL(url)).catch((error) => error);
      ok(failure instanceof IoError, failure);
      ok(!`${failure.message} ${failure.cause?.message}`.includes("SECRET"), failure.message);
    }
  });

  test("a model that the loaded module has no room for goes to one that has", async () => {
    const executor = Executor.forRam();
    const { module } = executor.describe();
    const isNarrow = module !== null && module !== "wasm64";
    // So many bytes are only told of: what is needed is not among them.
    const large = Object.defineProperty(new Blob([]), "size", { value: 2 ** 31 });
    const files = { ...(await record()), "other.safetensors": large };
    if (isNarrow) {
      await fails(Model.open(files, { executor }), OutOfMemoryError, "wasm64", "executor");
    }
    executor.free();
    const model = await Model.open(files).catch((error) => error);
    const isThere = !(model instanceof UnsupportedError);
    if (!isThere) {
      ok(isNarrow && model.message.includes("64-bit"), model);
    } else {
      ok(!isNarrow || model.describe().cpuClass === "wasm64-extended");
      equal((await model.encodeText(["the sea", "is blue"])).rows, 2);
      equal(model.encodeTextSync("the sea").rows, 1);
      if (isNarrow) {
        const other = Executor.forRam();
        const asked = model.encodeText("the sea", { executor: other });
        await fails(asked, InvalidArgumentError, "executor", module);
        other.free();
      }
      model.free();
    }
    // A server tells its size on the way.
    const here = at("huge");
    const [kind, ...words] = isThere
      ? [IoError, `${here}model.safetensors`, ` of ${Number.MAX_SAFE_INTEGER} bytes`]
      : [UnsupportedError, "64-bit", "9007199254"];
    await fails(Model.open(here), kind, ...words);
  });

  test("progress is in bytes, and ends at its total", async () => {
    const steps = [];
    const model = await Model.open(url, { onProgress: (...step) => steps.push(step) });
    const [done, total] = steps.at(-1);
    ok(total > 10_000 && done === total, `${done} of ${total}`);
    for (const [index, [done]] of steps.entries()) ok(done > (steps[index - 1]?.[0] ?? 0));
    model.free();
    const thrown = new Error("enough");
    const onProgress = () => {
      throw thrown;
    };
    equal(await failure(Model.open(url, { onProgress })), thrown);
  });

  test("opening is given up at once, whatever it waits for", async () => {
    for (const source of [at("slow"), await stuck()]) {
      const controller = new AbortController();
      const opening = failure(Model.open(source, { signal: controller.signal }));
      setTimeout(() => controller.abort("changed my mind"), 30);
      equal(await opening, "changed my mind");
    }
  });

  /** Files of which one never comes. */
  const stuck = () =>
    mapped((bytes, name) =>
      name === "model.safetensors"
        ? new ReadableStream({ pull: () => new Promise(() => {}) })
        : bytes,
    );

  test("what a cut download brought is not kept, and what is kept needs no server", async () => {
    await withCaches(async () => {
      const source = at(`cut/${Math.random()}`);
      await fails(Model.open(source, { cache: true }), IoError, "model.safetensors");
      const model = await Model.open(source, { cache: true });
      const { fingerprint } = model.describe();
      model.free();
      const online = globalThis.fetch;
      const asked = [];
      globalThis.fetch = (url) => {
        asked.push(url.href);
        // What was not there then is not there now.
        return names.some((name) => url.href.endsWith(name))
          ? Promise.reject(new TypeError("offline"))
          : Promise.resolve(new Response(null, { status: 404 }));
      };
      try {
        const kept = await Model.open(source, { cache: true });
        equal(kept.describe().fingerprint, fingerprint);
        kept.free();
        ok(asked.some((url) => url.endsWith("model.safetensors")) || fail("nothing was asked"));
      } finally {
        globalThis.fetch = online;
      }
      // Of another size, it is another file.
      globalThis.fetch = async (url, options) => {
        const found = await online(url, options);
        if (!url.href.endsWith("/config.json") || url.href.includes("Pooling")) return found;
        const bytes = new TextEncoder().encode('{"model_type": "llama"}');
        return new Response(bytes, { headers: { "content-length": String(bytes.length) } });
      };
      try {
        await fails(Model.open(source, { cache: true }), UnsupportedError, "llama");
      } finally {
        globalThis.fetch = online;
      }
    });
  });

  test("without a Cache API, asking for it is refused", async () => {
    if (typeof caches !== "undefined") return;
    await fails(Model.open(url, { cache: true }), UnsupportedError, "Cache API");
  });
}

/** Runs with the engine's caches, or with what does the same for this test. */
async function withCaches(run) {
  if (typeof caches !== "undefined") {
    await caches.delete("uform");
    return run();
  }
  const kept = new Map();
  const cache = {
    match: async (key) => kept.get(typeof key === "string" ? key : key.url)?.clone(),
    put: async (key, response) => void kept.set(key, new Response(await response.blob(), response)),
    keys: async (url) => {
      const plain = (key) => new URL(key).origin + new URL(key).pathname;
      return [...kept.keys()].filter((key) => plain(key) === plain(url)).map((url) => ({ url }));
    },
  };
  globalThis.caches = { open: async () => cache };
  try {
    await run();
  } finally {
    delete globalThis.caches;
  }
}
