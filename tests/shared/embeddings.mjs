// What encodeText gives back, beside the reference's vectors.

import { cosine, equal, fails, ok } from "./check.mjs";

const variants = [
  "cls-f16",
  "last-gelu-new",
  "max-dense",
  "mean-relu-bf16",
  "mean-sqrt-cut",
  "weighted-prompts",
];

export function embeddings(test, { uform, base }) {
  const { Embeddings, InvalidArgumentError, Model } = uform;
  const at = (path) => new URL(path, base);
  const json = async (path) => (await fetch(at(path))).json();

  test("models of every kind have the reference's vectors", async () => {
    for (const variant of variants) {
      const { texts, calls } = await json(`fixtures/variants/${variant}/vectors.json`);
      const model = await Model.open(at(`fixtures/variants/${variant}/`), { precision: "f32" });
      for (const { options, vectors } of calls) {
        const found = await model.encodeText(texts, options);
        for (const [index, vector] of vectors.entries()) {
          const near = cosine(found.row(index), vector);
          ok(near >= 0.99999, `${variant}, ${JSON.stringify(options)}, text ${index}: ${near}`);
          const off = Math.hypot(...found.row(index)) / Math.hypot(...vector) - 1;
          ok(Math.abs(off) < 1e-4, `${variant}, text ${index}: its length is off by ${off}`);
        }
      }
      model.free();
    }
  });

  test("all-MiniLM-L6-v2 has the reference's vectors in every precision", async () => {
    const { texts: entries, dimensions, token_limit } = await json("fixtures/reference.json");
    const vectors = new Float32Array(
      await (await fetch(at("fixtures/reference.f32"))).arrayBuffer(),
    );
    const every = entries.map(({ text }) => text);
    for (const [precision, least, step] of [
      ["f32", 0.99999, 1],
      ["i8", 0.995, 8],
    ]) {
      const model = await Model.open(at("model/"), { precision });
      equal(model.describe().precision, precision);
      // Emulated precisions are slow, and the native tests have compared all texts.
      const chosen = [...every.keys()].filter((index) => index % step === 0);
      const found = await model.encodeText(chosen.map((index) => every[index]));
      equal(found.dimensions, dimensions);
      for (const [row, index] of chosen.entries()) {
        const vector = vectors.subarray(index * dimensions, (index + 1) * dimensions);
        const near = cosine(found.row(row), vector);
        ok(near >= least, `${precision}, text ${index}: cosine ${near}`);
        equal(found.tokens[row], entries[index].tokens, `tokens of text ${index}`);
        equal(found.truncated[row], Number(entries[index].tokens > token_limit));
      }
      model.free();
    }
  });

  const small = () => Model.open(at("fixtures/variants/mean-sqrt-cut/"));

  test("one row a text, in order", async () => {
    const model = await small();
    const texts = ["a red bicycle", "", "the sea", "a red bicycle", "自転車 🚲"];
    const found = await model.encodeText(texts);
    ok(found instanceof Embeddings && found.data instanceof Float32Array);
    ok(found.tokens instanceof Uint32Array && found.truncated instanceof Uint8Array);
    equal([found.rows, found.data.length], [5, 5 * found.dimensions]);
    equal(found.row(0), found.row(3));
    ok(found.row(0).buffer === found.data.buffer, "a row is a view");
    const [one, other] = [found.row(0), found.row(2)];
    ok(
      one.some((value, index) => value !== other[index]),
      "different texts differ",
    );
    equal(found.tokens[1], 2);
    await fails(() => found.row(5), InvalidArgumentError, "index", "below 5");
    const none = await model.encodeText([]);
    equal([none.rows, none.data.length, none.tokens.length], [0, 0, 0]);
    equal(model.encodeTextSync(texts).data, found.data);
    model.free();
  });

  test("ill-formed UTF-16 is read as U+FFFD", async () => {
    const model = await small();
    const found = await model.encodeText(["\ud800 sea", "\ufffd sea", "sea \udfff", "sea \ufffd"]);
    equal(found.row(0), found.row(1));
    equal(found.row(2), found.row(3));
    model.free();
  });

  test("long texts are cut and told, or refused", async () => {
    const model = await small();
    const { tokenLimit } = model.describe();
    const long = "sea ".repeat(1000);
    const found = await model.encodeText([long, "sea"]);
    ok(found.tokens[0] > tokenLimit, `${found.tokens[0]} tokens`);
    equal([...found.truncated], [1, 0]);
    const refused = model.encodeText([long], { truncate: "error" });
    await fails(refused, InvalidArgumentError, "text 0", String(tokenLimit));
    model.free();
  });

  test("options are the model's or the caller's", async () => {
    const model = await Model.open(at("fixtures/variants/weighted-prompts/"));
    const { dimensions, prompts } = model.describe();
    const normal = await model.encodeText("a red bicycle", { normalize: true, dimensions: 4 });
    equal(normal.dimensions, 4);
    ok(Math.abs(Math.hypot(...normal.data) - 1) < 1e-5, "length 1");
    const [name, text] = Object.entries(prompts)[0];
    const named = await model.encodeText("sea", { prompt: name });
    equal((await model.encodeText("sea", { promptText: text })).data, named.data);
    const unpaired = await model.encodeText("sea", { promptText: "\ud800" });
    equal((await model.encodeText("sea", { promptText: "\ufffd" })).data, unpaired.data);
    await fails(model.encodeText("sea", { prompt: "no such" }), InvalidArgumentError, "no such");
    await fails(
      model.encodeText("sea", { dimensions: dimensions + 1 }),
      InvalidArgumentError,
      `1 to ${dimensions}`,
    );
    for (const pooling of ["mean", "cls", "max", "last", "mean-sqrt", "weighted-mean"]) {
      equal((await model.encodeText("sea", { pooling })).rows, 1);
    }
    model.free();
  });
}
