// Failures, handles and descriptions.

import { equal, fails, failure, ok } from "./check.mjs";

export function errors(test, { uform, base }) {
  const { Executor, InvalidArgumentError, Model, Status, UformError } = uform;
  const source = new URL("fixtures/variants/cls-f16/", base);

  test("each status but two has an error class of its name", () => {
    const numbers = Object.values(Status).filter((status) => typeof status === "number");
    equal(numbers.length, 14);
    for (const status of numbers) {
      if (status === Status.Aborted || status === Status.Internal) continue;
      const type = uform[`${Status[status]}Error`];
      const error = new type("what happened", { cause: 1 });
      ok(error instanceof UformError && error instanceof Error);
      equal([error.status, error.cause, error.name], [status, 1, `${Status[status]}Error`]);
      equal(error.code.replaceAll("_", ""), `UFORM${Status[status].toUpperCase()}`);
    }
  });

  test("what a caller gets wrong is refused by name, and a promise form rejects", async () => {
    await uform.load();
    const model = await Model.open(source);
    const table = [
      [() => Executor.forRam({ thread: 1 }), ["Executor.forRam", '"thread"', "`threads`"]],
      [() => Executor.forRam({ threads: -1 }), ["threads", "-1", "whole number"]],
      [() => Executor.forRam({ threads: 1025 }), ["threads", "1 to 1024"]],
      [() => Executor.forRam({ threads: 2 ** 32 }), ["threads is 4294967296", "1 to 1024"]],
      [() => Executor.forRam({ cpuClass: "haswell" }), ["haswell", "accepted: serial"]],
      [() => Executor.forRam({ cpuClass: "aws-g2" }), ["aws-g2", "would work: "]],
      [() => Executor.forRam({ memoryDomains: [1e6] }), ["memory domain 1000000"]],
      [() => model.encodeTextSync(1), ["`texts`", "received 1"]],
      [() => model.encodeTextSync("x", { dimensions: 2 ** 53 - 1 }), ["is 9007199254740991: "]],
      [() => model.encodeTextSync("x", { signal: null }), ["signal", "encodeText takes it"]],
      [() => model.encodeTextSync("x", { executor: {} }), ["executor", "an Executor"]],
      [() => model.encodeTextSync("x", model.compiled), ["options", "a plain object"]],
    ];
    for (const [work, words] of table) await fails(work, InvalidArgumentError, ...words);
    for (const [call, words] of [
      [() => model.encodeText(["a", 1]), ["`texts[1]`", "received 1"]],
      [() => model.encodeText("x", { pooling: "avg" }), ["pooling", '"avg"', '"mean"']],
      [() => Model.open(source, { precision: "f16" }), ["precision", '"f16"']],
      [() => Model.open(source, { cache: 1 }), ["cache", "true or false"]],
      [() => Model.open(undefined), ["source", "URL"]],
      [() => Model.open(""), ["source"]],
      [() => Model.open({}), ["source", "a record"]],
      [() => Model.open([]), ["source", "File[]"]],
      [() => Model.open({ "config.json": "text" }), ["source", "ArrayBuffer"]],
      [() => Model.open({ "config.json": new ArrayBuffer(0) }, { cache: true }), ["cache"]],
      [() => uform.load({ wasm: 1 }), ["wasm"]],
      [() => uform.load({ module: 1 }), ["load", '"module"']],
    ]) {
      await fails(call, InvalidArgumentError, ...words);
    }
    model.free();
  });

  test("an executor pinned to a class takes models of that class", async () => {
    await uform.load();
    const executor = Executor.forRam({ threads: 1, cpuClass: "serial" });
    const [model, other] = [
      await Model.open(source, { executor }),
      await Model.open(source, { precision: "f32" }),
    ];
    equal(model.describe().cpuClass, "serial");
    equal((await model.encodeText("x", { executor })).rows, 1);
    if (other.describe().cpuClass !== "serial") {
      const call = other.encodeText("x", { executor });
      await fails(call, InvalidArgumentError, "serial", other.describe().cpuClass);
    }
    model.free();
    other.free();
    executor.free();
  });

  test("handles stay where they were made, and only the package makes them", async () => {
    const model = await Model.open(source);
    const executor = Executor.forRam();
    for (const handle of [model, executor, model.compiled, executor.compiled]) {
      equal((await failure(() => structuredClone(handle))).name, "DataCloneError");
    }
    await fails(() => new Model(), InvalidArgumentError, "Model.open");
    await fails(() => new Executor(), InvalidArgumentError, "Executor.forRam");
    if (Symbol.dispose) {
      model[Symbol.dispose]();
      executor[Symbol.dispose]();
    }
    model.free();
    executor.free();
  });

  test("descriptions tell what computes", async () => {
    const model = await Model.open(source, { precision: "f32" });
    const executor = Executor.forRam({ deferredLimit: 2 ** 40 });
    const { module, precision, residency, cpuClass, fingerprint } = model.describe();
    equal([precision, residency], ["f32", "ram"]);
    ok(/^[0-9a-f]{32}$/.test(fingerprint));
    equal([executor.describe().module, executor.describe().deferredLimit], [module, 2 ** 40]);
    ok(uform.capabilitiesAvailable().split(",").includes(cpuClass));
    ok([null, "wasm32", "wasm32-relaxed", "wasm64"].includes(module), `module ${module}`);
    model.free();
    executor.free();
  });
}
