// What encodeText gives back.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Embeddings, Executor, InvalidArgumentError, Model } from "uform";
import { failure, modelPath } from "./support.mjs";

const model = Model.loadRam(modelPath);
const executor = Executor.forRam({ threads: 2 });
after(() => {
  model.free();
  executor.free();
});

const texts = ["a red bicycle", "", "ein rotes Fahrrad", "a red bicycle", "自転車 🚲"];

test("one row a text, in order", async () => {
  const found = await model.encodeText(texts, { executor });
  assert.ok(found instanceof Embeddings);
  assert.equal(found.rows, 5);
  assert.equal(found.dimensions, 384);
  assert.ok(found.data instanceof Float32Array && found.data.length === 5 * 384);
  assert.ok(found.tokens instanceof Uint32Array && found.tokens.length === 5);
  assert.ok(found.truncated instanceof Uint8Array && found.truncated.length === 5);
  assert.deepEqual(found.row(0), found.row(3));
  assert.notDeepEqual(found.row(0), found.row(2));
  assert.equal(found.tokens[1], 2);
  for (let index = 0; index < found.rows; index++) {
    const norm = Math.hypot(...found.row(index));
    assert.ok(Math.abs(norm - 1) < 1e-5, `norm ${norm} of row ${index}`);
  }
});

test("a row is a view, and only a row", async () => {
  const found = await model.encodeText(texts, { executor });
  const row = found.row(2);
  assert.equal(row.buffer, found.data.buffer);
  assert.equal(row.length, 384);
  row[0] = 42;
  assert.equal(found.data[2 * 384], 42);
  for (const index of [-1, 5, 0.5, NaN, "0", undefined]) {
    assert.throws(() => found.row(index), failure(InvalidArgumentError, "index", "below 5"));
  }
});

test("every precision points the same way as f32, and the default is one of them", () => {
  const cosine = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  const encode = (precision) => {
    const loaded = Model.loadRam(modelPath, { executor, precision });
    const found = loaded.encodeTextSync(texts, { executor });
    loaded.free();
    return found;
  };
  const [f32, auto] = [encode("f32"), encode(undefined)];
  const bars = { f32: 1 - 1e-6, bf16: 0.9995, i8: 0.995 };
  const found = Object.entries(bars).map(([precision, bar]) => {
    const other = encode(precision);
    for (let index = 0; index < texts.length; index++) {
      const near = cosine(f32.row(index), other.row(index));
      assert.ok(near >= bar, `${precision}, text ${index}: cosine ${near}`);
    }
    return other.data;
  });
  assert.notDeepEqual(found[0], found[1]);
  assert.notDeepEqual(found[1], found[2]);
  assert.ok(found.some((data) => data.every((value, index) => value === auto.data[index])));
});

test("no text, one text, a string", async () => {
  for (const encode of [model.encodeText, model.encodeTextSync]) {
    const none = await encode.call(model, []);
    assert.deepEqual([none.rows, none.dimensions, none.data.length], [0, 384, 0]);
    const [one, string] = [await encode.call(model, ["x"]), await encode.call(model, "x")];
    assert.equal(one.rows, 1);
    assert.deepEqual(one.data, string.data);
  }
});

test("the same bits alone or together, immediate or deferred, on any executor", async () => {
  const together = await model.encodeText(texts, { executor });
  const immediate = model.encodeTextSync(texts);
  assert.deepEqual(immediate.data, together.data);
  for (const [index, text] of texts.entries()) {
    assert.deepEqual(model.encodeTextSync(text, { executor }).data, together.row(index));
    assert.deepEqual((await model.encodeText(text)).data, together.row(index));
  }
});

test("texts are copied before the promise is returned", async () => {
  const mine = [...texts];
  const call = model.encodeText(mine, { executor });
  mine.fill("something else");
  assert.deepEqual((await call).data, model.encodeTextSync(texts).data);
});

test("ill-formed UTF-16 reads as U+FFFD, pairs survive however they were joined", () => {
  const encode = (text) => model.encodeTextSync(text).data;
  for (const [given, meant] of [
    ["lone \ud83d here", "lone \ufffd here"],
    ["lone \ude00 here", "lone \ufffd here"],
    ["at the end \ud83d", "at the end \ufffd"],
    ["\ude00\ud83d swapped", "\ufffd\ufffd swapped"],
    ["joined late ".concat("\ud83d", "\ude00"), "joined late 😀"],
  ]) {
    assert.deepEqual(encode(given), encode(meant), JSON.stringify(given));
  }
  // A NUL ends nothing.
  const { tokens } = model.encodeTextSync(["one\0 two three", "one"]);
  assert.ok(tokens[0] > tokens[1]);
});

test("large results are memory the collector knows", async () => {
  const many = Array.from({ length: 300 }, (_, index) => `text ${index}`);
  const before = process.memoryUsage().external;
  const found = await model.encodeText(many, { executor });
  const after = process.memoryUsage().external;
  assert.ok(after - before >= found.data.byteLength, `${after - before} bytes were reported`);
  assert.deepEqual(found.row(299), model.encodeTextSync("text 299").data);
});

test("dimensions cut before normalising", () => {
  const whole = model.encodeTextSync("x", { normalize: false }).data;
  const cut = model.encodeTextSync("x", { dimensions: 32 });
  assert.equal(cut.dimensions, 32);
  const norm = Math.hypot(...whole.subarray(0, 32));
  for (const [index, number] of cut.data.entries()) {
    assert.ok(Math.abs(number - whole[index] / norm) < 1e-5);
  }
});
