// What a test of a user's program does with the package. Each check gets the package, and what the test runner has.

const { readFileSync } = require("node:fs");

const path = process.env.MODEL;
const TEXT = "a red bicycle";
const vector = JSON.parse(process.env.VECTOR);
const names = ["config.json", "tokenizer.json", "model.safetensors", "modules.json"];

/** The model's files as bytes of the realm that this runs in. */
const files = () =>
  Object.fromEntries(
    [...names, "1_Pooling/config.json"].map((name) => [
      name,
      new Uint8Array(readFileSync(`${path}/${name}`)),
    ]),
  );

exports.checks = {
  async "a model embeds"({ Executor, Model }, expect) {
    const model = await Model.open(path);
    const executor = Executor.forRam({ threads: 1 });
    const { data } = await model.encodeText(TEXT, { executor });
    const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    expect(dot(data, vector) / Math.sqrt(dot(data, data) * dot(vector, vector))).toBeGreaterThan(
      0.99999,
    );
    model.free();
    executor.free();
  },

  async "the vectors are arrays of the test's realm"({ Model }, expect) {
    const model = await Model.open(path);
    const found = await model.encodeText([TEXT, TEXT]);
    expect(found.data).toBeInstanceOf(Float32Array);
    expect(found.row(1)).toBeInstanceOf(Float32Array);
    expect(found.tokens).toBeInstanceOf(Uint32Array);
    expect(found.truncated).toBeInstanceOf(Uint8Array);
    expect(found.row(1)).toStrictEqual(new Float32Array(found.row(0)));
    model.free();
  },

  async "bytes of the test's realm are bytes"({ Model }, expect) {
    const [named, given] = [await Model.open(path), await Model.open(files())];
    const { data } = await named.encodeText(TEXT);
    const same = await given.encodeText(TEXT);
    expect(Array.from(same.data)).toStrictEqual(Array.from(data));
    named.free();
    given.free();
  },

  async "a signal of the test's realm aborts"({ Model }, expect) {
    const controller = new AbortController();
    controller.abort(new Error("enough"));
    await expect(Model.open(path, { signal: controller.signal })).rejects.toThrow("enough");
  },

  async "errors are errors of the test's realm"({ Model, NotFoundError }, expect) {
    const failure = await Model.open("no/such/model").catch((failure) => failure);
    expect(failure).toBeInstanceOf(NotFoundError);
    expect(failure).toBeInstanceOf(Error);
  },
};
