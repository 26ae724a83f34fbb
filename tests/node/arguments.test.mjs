// Everything a caller can get wrong is refused at the edge, naming the key, the value and
// what would be accepted. A promise form rejects and never throws.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { Executor, InvalidArgumentError, Model } from "uform";
import { failure, modelPath } from "./support.mjs";

const model = Model.loadRam(modelPath);
const executor = Executor.forRam({ threads: 1 });
after(() => {
  model.free();
  executor.free();
});

const immediate = {
  "Executor.forRam": (...given) => Executor.forRam(...given),
  "Model.loadRam": (...given) => Model.loadRam(...given),
  "model.encodeTextSync": (...given) => model.encodeTextSync(...given),
  "executor.drain": (...given) => executor.drain(...given),
  "new Executor": (...given) => new Executor(...given),
  "new Model": (...given) => new Model(...given),
};
const deferred = {
  "Model.open": (...given) => Model.open(...given),
  "model.encodeText": (...given) => model.encodeText(...given),
  "executor.drainAsync": (...given) => executor.drainAsync(...given),
};

/** For each function, what it must refuse and the words its message must have. */
const refused = {};
const refuses = (name, given, ...words) => (refused[name] ??= []).push([given, words]);

const notOptions = [null, 1, "x", true, [], Symbol("s"), 1n, () => {}];
const notCounts = [-1, 1.5, NaN, Infinity, 2 ** 53, "1", 1n, null, true, {}, []];
const notStrings = [1, null, true, {}, ["serial"]];
const notTexts = [undefined, null, 1, {}, new String("x"), Symbol("s"), new Set(["x"])];
const notPaths = [undefined, null, 1, "", "a\0b", new URL("file:///x"), {}];
const notExecutors = [{}, executor.compiled, model, null, "threads"];
const notClasses = ["", "haswell", "INTEL-HASWELL", "intel-haswell "];

for (const options of notOptions) refuses("Executor.forRam", [options], "threads, cpuClass");
for (const key of ["threads", "deferredLimit"]) {
  for (const count of notCounts) refuses("Executor.forRam", [{ [key]: count }], key, "whole");
}
refuses("Executor.forRam", [{ threads: 1_000_000 }], "threads", "1000000");
refuses("Executor.forRam", [{ threads: -7 }], "received -7");
for (const [key, nearest] of [
  ["thread", "`threads`"],
  ["Threads", "`threads`"],
  ["cpuclass", "`cpuClass`"],
  ["deferedLimit", "`deferredLimit`"],
  ["memoryDomains", "valid: threads, cpuClass, deferredLimit"],
]) {
  refuses("Executor.forRam", [{ [key]: undefined }], JSON.stringify(key), nearest);
}
for (const cpuClass of notStrings) {
  refuses("Executor.forRam", [{ cpuClass }], "cpuClass", "a string");
}
for (const cpuClass of notClasses) refuses("Executor.forRam", [{ cpuClass }], "intel-haswell");

for (const load of ["Model.loadRam", "Model.open"]) {
  for (const path of notPaths) refuses(load, [path], "path");
  for (const options of notOptions) refuses(load, [modelPath, options], "precision");
  for (const executor of notExecutors) refuses(load, [modelPath, { executor }], "executor");
  for (const cpuClass of notStrings) refuses(load, [modelPath, { cpuClass }], "cpuClass");
  for (const cpuClass of notClasses) refuses(load, [modelPath, { cpuClass }], "intel-haswell");
  for (const precision of ["f16", "i8", "F32", "", 32, null]) {
    refuses(load, [modelPath, { precision }], "precision", '"auto", "f32", "bf16"');
  }
  refuses(load, [modelPath, { memoryDomains: [0] }], "memoryDomains");
  refuses(load, [modelPath, { cache: true }], "cache");
}

for (const encode of ["model.encodeTextSync", "model.encodeText"]) {
  for (const texts of notTexts) refuses(encode, [texts], "texts", "array of strings");
  refuses(encode, [["x", 7]], "texts[1]", "7");
  refuses(encode, [["x", , "y"]], "texts[1]", "undefined");
  for (const options of notOptions) refuses(encode, ["x", options], "pooling");
  for (const executor of notExecutors) refuses(encode, ["x", { executor }], "executor");
  for (const dimensions of [...notCounts, 0, 385]) refuses(encode, ["x", { dimensions }], "dim");
  for (const pooling of ["avg", "", null, 1]) refuses(encode, ["x", { pooling }], '"mean", "cls"');
  for (const normalize of [0, 1, "true", null]) refuses(encode, ["x", { normalize }], "normalize");
  for (const truncate of [false, "cut", 1, null]) {
    refuses(encode, ["x", { truncate }], "truncate", 'true, "error"');
  }
  for (const prompt of [1, null, {}]) {
    refuses(encode, ["x", { prompt }], "prompt", "a string");
    refuses(encode, ["x", { promptText: prompt }], "promptText", "a string");
  }
  refuses(encode, ["x", { normalise: true }], '"normalise"', "`normalize`");
}

const signal = new AbortController().signal;
refuses("Model.loadRam", [modelPath, { signal }], '"signal"');
refuses("model.encodeTextSync", ["x", { signal }], '"signal"');
for (const signal of [null, {}, new AbortController(), "x"]) {
  refuses("Model.open", [modelPath, { signal }], "an AbortSignal");
  refuses("model.encodeText", ["x", { signal }], "an AbortSignal");
}
for (const onProgress of [null, {}, "x"]) {
  refuses("Model.open", [modelPath, { onProgress }], "a function");
  refuses("model.encodeText", ["x", { onProgress }], "a function");
}
for (const mood of [2, -1, 0.5, "Parked", null, {}]) {
  refuses("executor.drain", [mood], "mood", "0, 1");
  refuses("executor.drainAsync", [mood], "mood", "0, 1");
}
refuses("new Executor", [{ threads: 1 }], "Executor.forRam");
refuses("new Model", [modelPath], "Model.loadRam");

for (const [name, call] of Object.entries(immediate)) {
  test(`${name} throws for each of ${refused[name].length} wrong arguments`, () => {
    for (const [given, words] of refused[name]) {
      const shown = `${name}(${inspect(given)})`;
      assert.throws(() => call(...given), failure(InvalidArgumentError, ...words), shown);
    }
  });
}
for (const [name, call] of Object.entries(deferred)) {
  test(`${name} rejects each of ${refused[name].length} wrong arguments`, async () => {
    for (const [given, words] of refused[name]) {
      const shown = `${name}(${inspect(given)})`;
      const promise = call(...given);
      await assert.rejects(promise, failure(InvalidArgumentError, ...words), shown);
    }
  });
}

test("undefined and 0 mean absent", () => {
  for (const config of [undefined, {}, { threads: undefined }, { threads: 0, deferredLimit: 0 }]) {
    Executor.forRam(config).free();
  }
});
