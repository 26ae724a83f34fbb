// Texts to tokens without computing.

import { equal, fails, ok } from "./check.mjs";

export function tokens(test, { uform, base }) {
  const { FreedError, InvalidArgumentError, Model } = uform;
  const testWith = (name, run, source = "fixtures/variants/cls-f16/") =>
    test(name, async () => {
      const model = await Model.open(new URL(source, base));
      try {
        await run(model);
      } finally {
        model.free();
      }
    });

  /** What became of which part of a text: `[id, part]`. */
  function parts({ ids, offsets, spans }, texts, index) {
    const found = [];
    for (let token = offsets[index]; token < offsets[index + 1]; token++) {
      found.push([ids[token], texts[index].slice(spans[2 * token], spans[2 * token + 1])]);
    }
    return found;
  }

  testWith(
    "tokens are where the reference finds them, in UTF-16 units",
    async (model) => {
      // Of each text what Python's tokenizers library says: an id, and the part of the text at its offsets.
      const table = [
        ["", []],
        [
          "Héllo,  wörld",
          [
            [7592, "Héllo"],
            [1010, ","],
            [2088, "wörld"],
          ],
        ],
        [
          "unaffable",
          [
            [14477, "una"],
            [20961, "ffa"],
            [3468, "ble"],
          ],
        ],
        [
          "東京🚲e\u0301",
          [
            [1879, "東"],
            [1755, "京"],
            [100, "🚲e"],
          ],
        ],
        [
          "x [SEP] y",
          [
            [1060, "x"],
            [102, "[SEP]"],
            [1061, "y"],
          ],
        ],
        [
          "a\0b\ufffdc\u200dd",
          [
            [5925, "a\0b\ufffdc"],
            [2094, "d"],
          ],
        ],
        // Unpaired surrogates are read as U+FFFD, which is left out.
        [
          "\ud83d x \udc00y",
          [
            [1060, "x"],
            [1061, "y"],
          ],
        ],
        ["İstanbul", [[9960, "İstanbul"]]],
      ];
      const texts = table.map(([text]) => text);
      const found = model.tokenize(texts);
      for (const part of Object.values(found)) ok(part instanceof Uint32Array);
      equal(found.offsets.length, texts.length + 1);
      equal([found.offsets[0], found.offsets.at(-1)], [0, found.ids.length]);
      equal(found.spans.length, 2 * found.ids.length);
      for (const [index, [text, wanted]] of table.entries()) {
        const around = [[101, ""], ...wanted, [102, ""]];
        equal(parts(found, texts, index), around, JSON.stringify(text));
        const [first, last] = [2 * found.offsets[index], 2 * found.offsets[index + 1] - 2];
        equal(
          [...found.spans.slice(first, first + 2), ...found.spans.slice(last, last + 2)],
          [0, 0, 0, 0],
        );
      }
    },
    "model/",
  );

  testWith("what is counted is what was embedded, before any cut", async (model) => {
    const texts = ["a red bicycle", "", "the sea ".repeat(1000), "東京 🚲 \ud800", "[SEP][CLS] x"];
    for (const special of [undefined, "parse", "text"]) {
      const counted = model.countTokens(texts, { special });
      ok(counted instanceof Uint32Array);
      const found = await model.encodeText(texts, { special });
      equal(counted, found.tokens, special);
      equal(model.encodeTextSync(texts, { special }).tokens, found.tokens, special);
      const { offsets } = model.tokenize(texts, { special });
      equal(
        [...counted],
        [...counted.keys()].map((index) => offsets[index + 1] - offsets[index]),
      );
    }
    equal([...model.countTokens("the sea")], [4]);
    equal(model.countTokens([]).length, 0);
    equal(
      Object.values(model.tokenize([])).map((part) => [...part]),
      [[], [0], []],
    );
  });

  testWith("special tokens in a text are read as text when that is asked for", async (model) => {
    const text = "a [SEP] b";
    const [parsed, plain] = [model.tokenize(text), model.tokenize(text, { special: "text" })];
    equal(
      parts(parsed, [text], 0)
        .filter(([id]) => id === 3)
        .map(([, part]) => part),
      ["[SEP]", ""],
    );
    equal(
      parts(plain, [text], 0).map(([, part]) => part),
      ["", "a", "[", "S", "E", "P", "]", "b", ""],
    );
    equal(model.tokenize(text, { special: "parse" }), parsed);
    // Calls with either next to each other are told apart.
    const calls = ["parse", "text", undefined, "text"].map((special) =>
      model.encodeText(text, { special }),
    );
    const [first, second, third, fourth] = await Promise.all(calls);
    equal([first.data, second.data], [third.data, fourth.data]);
    ok(first.data.some((number, index) => number !== second.data[index]));
    equal([...first.tokens, ...second.tokens], [5, 9]);
  });

  testWith("what is no text is refused, and a freed model", async (model) => {
    for (const verb of ["tokenize", "countTokens"]) {
      await fails(
        () => model[verb](1),
        InvalidArgumentError,
        `model.${verb}`,
        "`texts`",
        "received 1",
      );
      await fails(() => model[verb](["a", null]), InvalidArgumentError, "`texts[1]`", "null");
      const wrong = () => model[verb]("a", { special: "plain" });
      await fails(wrong, InvalidArgumentError, "special", '"plain"', '"parse", "text"');
      await fails(() => model[verb]("a", { prompt: "query" }), InvalidArgumentError, '"prompt"');
    }
    model.free();
    for (const verb of ["tokenize", "countTokens"]) await fails(() => model[verb]("a"), FreedError);
  });
}
