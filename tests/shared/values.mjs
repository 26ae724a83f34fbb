// Embeddings as plain values: rows, arrays, JSON, bits and bytes.

import { equal, fails, ok } from "./check.mjs";

export function values(test, { uform, base }) {
  const { Embeddings, InvalidArgumentError, Model, TextEmbeddings } = uform;
  const source = new URL("fixtures/variants/mean-sqrt-cut/", base);
  const texts = ["a red bicycle", "the sea", "the sea", "how blue"];

  const testWith = (name, run) =>
    test(name, async () => {
      const model = await Model.open(source);
      try {
        await run(model);
      } finally {
        model.free();
      }
    });

  testWith("embeddings of texts are embeddings", async (model) => {
    const found = await model.encodeText(texts);
    for (const one of [found, model.encodeTextSync(texts)]) {
      ok(one instanceof TextEmbeddings && one instanceof Embeddings);
      ok(one.constructor === TextEmbeddings);
    }
    ok(!("tokens" in Embeddings.prototype));
  });

  testWith("iterating gives the rows", async (model) => {
    const found = await model.encodeText(texts);
    for (const rows of [[...found], Array.from(found)]) {
      equal(rows.length, 4);
      for (const [index, row] of rows.entries()) {
        equal(row, found.row(index));
        ok(row.buffer === found.data.buffer, "a row is a view");
      }
    }
    let count = 0;
    for (const row of found) {
      equal(row.length, found.dimensions);
      count++;
    }
    equal(count, 4);
    equal([...(await model.encodeText([]))], []);
  });

  testWith("arrays and JSON have the numbers as they are", async (model) => {
    const found = await model.encodeText(texts);
    const rows = found.toArray();
    equal(rows.length, 4);
    ok(rows.every((row) => Array.isArray(row) && row.length === found.dimensions));
    equal(rows.flat(), [...found.data]);
    equal(found.toJSON(), rows);
    equal(JSON.parse(JSON.stringify(found)), rows);
    equal(JSON.parse(JSON.stringify({ vectors: found })).vectors, rows);
    equal(JSON.stringify(await model.encodeText([])), "[]");
  });

  /** The vectors of `count` texts, with other numbers. */
  async function withNumbers(model, rows) {
    const dimensions = rows[0]?.length ?? 3;
    const found = await model.encodeText(texts.slice(0, rows.length), { dimensions });
    found.data.set(rows.flat());
    return found;
  }

  testWith("bits are laid out as numpy packs them", async (model) => {
    for (const [rows, bytes] of [
      // numpy.packbits(numpy.array(rows) > 0, axis=1)
      [[[1, -1, 0.5, 0, -0, 2, 3, -4]], [0b10100110]],
      [
        [
          [1, 0, 1],
          [0, 0, 1e-30],
        ],
        [0b10100000, 0b00100000],
      ],
      [[[0, 0, 0, 0, 0, 0, 0, 1, 1]], [0b00000001, 0b10000000]],
      [[[-1]], [0]],
      [
        [[1], [1], [0]],
        [0b10000000, 0b10000000, 0],
      ],
      [[], []],
    ]) {
      const found = (await withNumbers(model, rows)).toBinary();
      ok(found instanceof Uint8Array);
      equal([...found], bytes, JSON.stringify(rows));
    }
  });

  testWith("bytes are numbers divided by their row's scale, and rounded", async (model) => {
    for (const [rows, data, scales] of [
      [[[127, -127, 1, -1, 0]], [127, -127, 1, -1, 0], [1]],
      // Halves away from 0.
      [[[254, 1, -1, 3, -3, 0.5]], [127, 1, -1, 2, -2, 0], [2]],
      [
        [
          [0, 0, -0],
          [0.5, -0.25, 0.125],
        ],
        [0, 0, 0, 127, -64, 32],
        [0, Math.fround(0.5 / 127)],
      ],
      [[[1e-45, -1e-45]], [0, 0], [0]],
      [[[3.4e38, -3.4e38]], [127, -127], [Math.fround(Math.fround(3.4e38) / 127)]],
      [[], [], []],
    ]) {
      const found = (await withNumbers(model, rows)).toInt8();
      ok(found.data instanceof Int8Array && found.scales instanceof Float32Array);
      const shown = JSON.stringify(rows);
      equal([...found.data], data, shown);
      equal([...found.scales], scales, shown);
    }
    // No number is off by more than half a step.
    const found = await model.encodeText(texts);
    const { data, scales } = found.toInt8();
    for (const [index, number] of found.data.entries()) {
      const scale = scales[Math.floor(index / found.dimensions)];
      ok(Math.abs(number - data[index] * scale) <= scale * 0.5001, `number ${index}`);
    }
    equal(Math.max(...data.map(Math.abs)), 127);
  });

  testWith("a description says how vectors are compared", async (model) => {
    equal(model.describe().similarity, "cosine");
  });

  test("what is compared in a way that is not known is refused, naming the file", async () => {
    const files = Object.fromEntries(
      await Promise.all(
        [
          "config.json",
          "modules.json",
          "1_Pooling/config.json",
          "model.safetensors",
          "tokenizer.json",
          "tokenizer_config.json",
          "sentence_bert_config.json",
        ].map(async (name) => [name, await (await fetch(new URL(name, source))).arrayBuffer()]),
      ),
    );
    const bare = await Model.open(files);
    equal(bare.describe().similarity, undefined);
    bare.free();
    const name = "config_sentence_transformers.json";
    const settings = new TextEncoder().encode(JSON.stringify({ similarity_fn_name: "jaccard" }));
    const call = Model.open({ ...files, [name]: settings });
    await fails(call, uform.UnsupportedError, name, '"jaccard"', '"cosine"');
  });

  testWith("a row is asked for by its index", async (model) => {
    const found = await model.encodeText(texts);
    for (const index of [-1, 4, 0.5, "0"]) {
      await fails(() => found.row(index), InvalidArgumentError, "index", "below 4");
    }
  });
}
