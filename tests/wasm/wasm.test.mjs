// The package through `uform/web`: each module in a Node.js that takes it. Every program here is a process
// of its own, since a module is loaded once in each.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { newerNode, withoutNewerNode } from "../newer-node.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));

const server = new Worker(
  `const { parentPort } = require("node:worker_threads");
   import(${JSON.stringify(new URL("../shared/serve.mjs", import.meta.url).href)})
     .then(({ serve }) => serve())
     .then(({ base }) => parentPort.postMessage(base));`,
  { eval: true },
);
const base = await new Promise((resolve) => server.once("message", resolve));
after(() => server.terminate());

/** Runs a program; its output, when it ends well. */
function run(node, ...args) {
  const { status, stdout, stderr } = spawnSync(node, args, {
    cwd: root,
    encoding: "utf8",
    timeout: 280_000,
  });
  assert.equal(status, 0, `${stdout}${stderr}`);
  assert.equal(stderr, "");
  return stdout;
}

/** Runs statements after an import of the package; what they print. */
const script = (node, ...lines) =>
  run(
    node,
    "--input-type=module",
    "--eval",
    [`import * as uform from "uform/web"; const { Executor, Model, load } = uform;`, ...lines].join(
      "\n",
    ),
  );

/** A module of one function, which uses `i8x16.relaxed_swizzle`. */
const relaxedSimd = [
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0],
  ...[10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11],
];

/** The module that the package takes by itself in a Node.js. */
const bestOf = (node) => {
  const asked = `console.log(WebAssembly.validate(Uint8Array.of(${relaxedSimd})))`;
  return script(node, asked) === "true\n" ? "wasm32-relaxed" : "wasm32";
};
const best = bestOf(process.execPath);

describe("the shared tests", () => {
  for (const [module, node] of [
    ["wasm32", process.execPath],
    ["wasm32-relaxed", newerNode],
    ["wasm64", newerNode],
  ]) {
    const skip = node === newerNode && withoutNewerNode;
    test(`on ${module}`, { skip }, () => {
      const told = run(node, "tests/wasm/shared.mjs", base, module);
      assert.ok(told.split("\n").filter((line) => line.startsWith("ok ")).length > 25, told);
    });
  }
});

describe("loading", () => {
  test("of a file asks for nothing of fetch, which Node.js would load for it", () => {
    script(
      process.execPath,
      `for (const name of ["fetch", "Headers", "Request", "Response"]) {
         const get = () => { throw new Error(name + " was asked for"); };
         Object.defineProperty(globalThis, name, { get });
       }
       await load();
       Executor.forRam().free();`,
    );
  });

  test("a constructor before it throws an error that says so", () => {
    const told = script(
      process.execPath,
      `for (const work of [() => Executor.forRam(), () => uform.capabilitiesCompiled()]) {
         try { work(); } catch (error) { console.log(error.name, error.code, error.message); }
       }
       // There are none, whatever is loaded.
       console.log(uform.gpuDevices().length);`,
    );
    const lines = told.trim().split("\n");
    assert.equal(lines.pop(), "0");
    assert.equal(lines.length, 2);
    for (const line of lines)
      assert.match(line, /^UnsupportedError .*await load\(\) or Model.open/);
  });

  test("takes a URL, a response, bytes or a module, once", () => {
    for (const wasm of [
      '"wasm32"',
      "file",
      `new Response(await readFile(file))`,
      `await readFile(file)`,
      `(await readFile(file)).buffer`,
      `await WebAssembly.compile(await readFile(file))`,
    ]) {
      const told = script(
        process.execPath,
        `import { readFile } from "node:fs/promises";
         const file = new URL(import.meta.resolve("uform/wasm32.wasm"));
         const wasm = ${wasm};
         await Promise.all([load({ wasm }), load({ wasm }), load()]);
         console.log(Executor.forRam().describe().module);
         await load({ wasm: new ArrayBuffer(8) }).catch(({ message }) => console.log(message));`,
      );
      assert.match(told, /^wasm32\nload: `wasm` was given, and another module is loaded already/);
    }
  });

  test("refuses what is not a module of the package, and tries again", () => {
    const told = script(
      process.execPath,
      `import { readFile } from "node:fs/promises";
       const empty = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0);
       const whole = await readFile(new URL(import.meta.resolve("uform/wasm32.wasm")));
       const older = Buffer.from(whole);
       older.write("9.9.9", older.lastIndexOf("wasm32 ") + 7);
       const newer = Uint8Array.of(...empty, 1, 5, 1, 96, 0, 1, 85);
       const detached = Uint8Array.from(whole);
       structuredClone(detached.buffer, { transfer: [detached.buffer] });
       const read = new Response(whole);
       await read.arrayBuffer();
       const longer = Buffer.concat([whole, Buffer.of(1)]);
       const changed = Buffer.from(whole);
       for (let at = 1 << 17; WebAssembly.validate(changed); at += 1000) changed[at] ^= 0x55;
       const says = { [Symbol.toStringTag]: "Response" };
       for (const wasm of [
         empty,
         older,
         new Uint8Array(8),
         new URL("http://127.0.0.1:9/x.wasm"),
         new Response("", { status: 404 }),
         newer,
         whole.subarray(0, whole.length >> 1),
         detached,
         detached.buffer,
         read,
         new URL("data:text/html," + "x".repeat(1 << 20)),
         new URL("http://name:SECRET@127.0.0.1:9/x.wasm?key=SECRET"),
         longer,
         changed,
         says,
         new Response("", { status: 500, statusText: "x".repeat(1 << 20) }),
       ]) {
         await load({ wasm }).catch(({ code, message }) => console.log(code, message));
       }
       await load();
       console.log(Executor.forRam().describe().module);`,
    );
    const lines = told.trim().split("\n");
    assert.match(lines[0], /UFORM_INVALID_ARGUMENT .*another module/);
    assert.match(lines[1], /UFORM_INVALID_ARGUMENT .* of uform 9\.9\.9, .* of uform \d/);
    assert.match(lines[2], /UFORM_INVALID_ARGUMENT .*no WebAssembly module: it has 8 bytes/);
    assert.match(lines[3], /UFORM_IO .*cannot be fetched/);
    assert.match(lines[4], /UFORM_IO .*answered with 404/);
    assert.match(lines[5], /UFORM_UNSUPPORTED .*does not compile/);
    const isNotWhole =
      / does not end where its \d+ bytes do: it was cut, or something was appended/;
    assert.match(lines[6], /^UFORM_INVALID_ARGUMENT /);
    assert.match(lines[6], isNotWhole);
    assert.match(lines[7], /UFORM_INVALID_ARGUMENT .*detached/);
    assert.match(lines[8], /UFORM_INVALID_ARGUMENT .*detached/);
    assert.match(lines[9], /UFORM_INVALID_ARGUMENT .*was read before/);
    assert.match(lines[10], /UFORM_INVALID_ARGUMENT load: a data: URL is no WebAssembly module/);
    assert.match(lines[11], /UFORM_IO load: http:\/\/127\.0\.0\.1:9\/x\.wasm cannot be fetched/);
    assert.match(lines[12], /^UFORM_INVALID_ARGUMENT /);
    assert.match(lines[12], isNotWhole);
    assert.match(
      lines[13],
      /UFORM_UNSUPPORTED .*does not compile `wasm`: .*was changed on its way/,
    );
    assert.match(
      lines[14],
      /UFORM_INVALID_ARGUMENT .*a Response, .* for `wasm` but received an obj/,
    );
    assert.match(lines[15], /^UFORM_IO load: the response was answered with 500 xxx/);
    assert.ok(!told.includes("SECRET") && told.length < 8000, told);
    assert.equal(lines[16], best);
  });

  test("takes bytes that other threads see, and data in a URL", () => {
    for (const wasm of [
      `Object.assign(new Uint8Array(new SharedArrayBuffer(bytes.length)), bytes)`,
      `new URL("data:application/wasm;base64," + bytes.toString("base64"))`,
      `new URL(URL.createObjectURL(new Blob([bytes])))`,
    ]) {
      const told = script(
        process.execPath,
        `import { readFile } from "node:fs/promises";
         const bytes = await readFile(new URL(import.meta.resolve("uform/wasm32.wasm")));
         await load({ wasm: ${wasm} });
         console.log(Executor.forRam().describe().module);`,
      );
      assert.equal(told, "wasm32\n");
    }
  });

  test("from a pipe is refused, rather than waited for", (t) => {
    const folder = mkdtempSync(join(tmpdir(), "uform-pipe-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const pipe = join(folder, "x.wasm");
    execFileSync("mkfifo", [pipe]);
    const told = script(
      process.execPath,
      `const wasm = new URL(${JSON.stringify(pathToFileURL(pipe).href)});
       await load({ wasm }).catch(({ code, message }) => console.log(code, message));`,
    );
    assert.match(told, /^UFORM_IO load: .*x\.wasm cannot be fetched: not a regular file\n$/);
  });

  test("that never ends keeps no one who gave up on it", () => {
    const told = script(
      process.execPath,
      `import { createServer } from "node:net";
       const server = createServer(() => {}).listen(0, "127.0.0.1", async () => {
         load({ wasm: new URL(\`http://127.0.0.1:\${server.address().port}/x.wasm\`) }).catch(() => {});
         const signal = AbortSignal.timeout(100);
         for (const source of [".", { "config.json": new Uint8Array(1) }]) {
           await Model.open(source, { signal }).catch(({ name }) => console.log(name));
         }
         process.exit();
       });`,
    );
    assert.equal(told, "TimeoutError\nTimeoutError\n");
  });

  test("is out of memory where the engine is, and tries again", () => {
    const told = script(
      process.execPath,
      `const { instantiate, compile } = WebAssembly;
       const refuse = (where) => async () => {
         throw new RangeError(\`WebAssembly.\${where}(): Out of memory: Cannot allocate Wasm memory\`);
       };
       const show = ({ name, code, message }) => console.log(name, code, message);
       WebAssembly.instantiate = refuse("instantiate");
       await load().catch(show);
       Object.assign(WebAssembly, { instantiate, compile: refuse("compile") });
       await load().catch(show);
       Object.assign(WebAssembly, { compile });
       await load();
       console.log(Executor.forRam().describe().module);`,
    );
    const lines = told.trim().split("\n");
    assert.equal(lines.length, 3, told);
    for (const line of lines.slice(0, 2)) {
      assert.match(line, /^OutOfMemoryError UFORM_OUT_OF_MEMORY .*Out of memory.*free what/);
    }
    assert.equal(lines[2], best);
  });

  test("has bytes before their owner has them back", () => {
    const told = script(
      process.execPath,
      `import { readFile } from "node:fs/promises";
       const bytes = await readFile(new URL(import.meta.resolve("uform/wasm32.wasm")));
       const given = (bytes) => {
         const { buffer } = Uint8Array.from(bytes);
         const loading = load({ wasm: buffer });
         structuredClone(buffer, { transfer: [buffer] });
         return loading;
       };
       await given(bytes.subarray(1)).catch(({ code, message }) => console.log(code, message));
       await given(bytes);
       console.log(Executor.forRam().describe().module);`,
    );
    assert.match(told, /^UFORM_INVALID_ARGUMENT .* begins with 61 73 6d .*\nwasm32\n$/);
  });

  test("of several at once ends each in what is its own", () => {
    const junk = "`wasm` is no WebAssembly module";
    const another = "another module is loaded already";
    for (const [asked, ends] of [
      ["[load({ wasm: junk }), load(), Model.open(url)]", [junk, best, best]],
      ["[load({ wasm: junk }), load({ wasm: new Uint8Array(5) })]", [junk, junk]],
      ["[load({ wasm: junk }), load({ wasm: junk }), load()]", [junk, junk, best]],
      ["[load(), load({ wasm: junk }), load()]", [best, another, best]],
      [`[load(), load({ wasm: "${best}" }), load({ wasm: "wasm64" })]`, [best, best, another]],
    ]) {
      const told = script(
        process.execPath,
        `const url = new URL("fixtures/variants/mean-sqrt-cut/", ${JSON.stringify(base)});
         const junk = new Uint8Array(3);
         const module = () => Executor.forRam().describe().module;
         const ends = ${asked}.map((ends) => ends.then(module, ({ message }) => message));
         console.log(JSON.stringify(await Promise.all(ends)));`,
      );
      const got = JSON.parse(told);
      assert.equal(got.length, ends.length, told);
      for (const [index, end] of ends.entries()) assert.ok(got[index].includes(end), told);
    }
  });

  test("of a file that a bundler left behind says where it belongs", (t) => {
    const folder = mkdtempSync(join(tmpdir(), "uform-"));
    t.after(() => rmSync(folder, { recursive: true }));
    copyFileSync(join(root, "dist/web/web.js"), join(folder, "web.mjs"));
    const told = run(
      process.execPath,
      "--eval",
      `import(${JSON.stringify(join(folder, "web.mjs"))})
         .then(({ load }) => load())
         .catch(({ code, message }) => console.log(code, message));`,
    );
    assert.match(
      told,
      /^UFORM_IO load: file:.* cannot be fetched: .* put .* uform\/wasm32.* there, /,
    );
  });

  test("takes the best module for the engine", { skip: withoutNewerNode }, () => {
    const line = `await load(); console.log(Executor.forRam().describe().module);`;
    assert.equal(bestOf(newerNode), "wasm32-relaxed");
    for (const node of [process.execPath, newerNode]) {
      assert.equal(script(node, line), `${bestOf(node)}\n`);
    }
  });
});

test("a trap is an error with a code, and the instance is not called again", () => {
  const told = script(
    process.execPath,
    `const { instantiate } = WebAssembly;
     WebAssembly.instantiate = async (module, imports) => {
       const instance = await instantiate(module, imports);
       // Node.js itself is made of such modules.
       if (WebAssembly.Module.customSections(module, "uform").length === 0) return instance;
       const { exports } = instance;
       const executorTurn = () => {
         if (calls++ > 0) console.log("called again");
         throw new WebAssembly.RuntimeError("unreachable");
       };
       return { instance: { exports: { ...exports, executorTurn } }, module };
     };
     let calls = 0;
     await load();
     const executor = Executor.forRam();
     const url = new URL("fixtures/variants/mean-sqrt-cut/", ${JSON.stringify(base)});
     for (const work of [() => Model.open(url), () => Executor.forRam(), () => executor.drain()]) {
       try {
         await work();
       } catch (error) {
         console.log(error.code, error.message);
       }
     }`,
  );
  const lines = told.trim().split("\n");
  assert.equal(lines.length, 3, told);
  for (const line of lines) assert.match(line, /^UFORM_INTERNAL .*unreachable; .*reload the page/);
});

test("a long text of anything is tokenized in steps", () => {
  const told = script(
    process.execPath,
    `const { instantiate } = WebAssembly;
     let steps = 0;
     WebAssembly.instantiate = async (module, imports) => {
       const instance = await instantiate(module, imports);
       // Node.js itself is made of such modules.
       if (WebAssembly.Module.customSections(module, "uform").length === 0) return instance;
       const { exports } = instance;
       const executorTurn = (...rest) => (steps++, exports.executorTurn(...rest));
       return { instance: { exports: { ...exports, executorTurn } }, module };
     };
     await load();
     const model = await Model.open(new URL("fixtures/variants/mean-sqrt-cut/", ${JSON.stringify(base)}));
     for (const unit of ["sea ", "!", " ", "السَّلَامُ", "กรุงเทพ", "👩\u200d👧", "e\u0301", "\u0301", "東京"]) {
       const bytes = 1 << 20;
       const text = unit.repeat(bytes / Buffer.byteLength(unit));
       steps = 0;
       await model.encodeText(text);
       // None of more than 33 KB.
       console.log(unit.trim(), steps >= 31 ? "in steps" : steps);
     }`,
  );
  const lines = told.trimEnd().split("\n");
  assert.equal(lines.length, 9, told);
  for (const line of lines) assert.match(line, / in steps$/);
});

describe("memory", () => {
  const open = `await load();
    const url = new URL("fixtures/variants/mean-sqrt-cut/", ${JSON.stringify(base)});
    const executor = Executor.forRam();
    const model = await Model.open(url, { executor });
    const { data } = await model.encodeText("the sea");`;

  test("texts too long for it are an error, and the instance lives on", () => {
    const told = script(
      process.execPath,
      open,
      `const texts = Array(40).fill("sea ".repeat(1 << 25));
       await model.encodeText(texts, { executor }).catch((error) => console.log(error.name));
       const again = await model.encodeText("the sea", { executor });
       console.log(again.data.every((value, index) => value === data[index]));`,
    );
    assert.equal(told, "OutOfMemoryError\ntrue\n");
  });

  test("has the weights once, and the files of weights never", () => {
    const told = script(
      process.execPath,
      `const { instantiate } = WebAssembly;
       let memory;
       WebAssembly.instantiate = async (module, imports) => {
         const made = await instantiate(module, imports);
         // Node.js itself is made of such modules.
         const { exports } = made.instance ?? made;
         if (exports.executorTurn) memory = exports.memory;
         return made;
       };
       const model = await Model.open(new URL("model/", ${JSON.stringify(base)}));
       console.log(memory.buffer.byteLength / model.describe().bytes);`,
    );
    // What is besides: the module's own, and rows for a text.
    assert.ok(Number(told) > 1 && Number(told) < 1.3, told);
  });

  test("reaches a plateau", () => {
    const told = script(
      process.execPath,
      open,
      `const rounds = [];
       for (let round = 0; round < 4; round++) {
         for (let batch = 0; batch < 50; batch++) {
           const texts = Array.from({ length: 40 }, (_, i) => "the sea is red ".repeat(i % 20));
           await model.encodeText(texts, { executor });
         }
         rounds.push(process.memoryUsage().external);
       }
       console.log(rounds.at(-1) - rounds[0] < 4 << 20 ? "plateau" : rounds.join(" "));`,
    );
    assert.equal(told, "plateau\n");
  });
});

test("an idle executor does not keep the process alive, and a call does", () => {
  const told = script(
    process.execPath,
    `await load();
     const url = new URL("fixtures/variants/mean-sqrt-cut/", ${JSON.stringify(base)});
     const model = await Model.open(url);
     model.encodeText("sea").then(({ rows }) => console.log(rows));`,
  );
  assert.equal(told, "1\n");
});
