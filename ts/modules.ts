/**
 * Finding, checking and instantiating a module: the one that was given or named, or the best of the
 * package's for this engine.
 */
import { InvalidArgumentError, IoError, UnsupportedError } from "./errors.js";
import type * as Glue from "./glue/glue.js";
import type { WasmModule } from "./backend/backend.js";
import { version } from "./version.js";
import * as wasm32 from "./glue/wasm32.js";
import * as wasm32Relaxed from "./glue/wasm32-relaxed.js";
import * as wasm64 from "./glue/wasm64.js";

/**
 * Each module of the package: its JavaScript half, and where the file is. Bundlers look for exactly
 * this expression of a URL, and copy the file.
 */
const modules = {
  wasm32: { glue: wasm32, url: () => new URL("./wasm32.wasm", import.meta.url) },
  "wasm32-relaxed": {
    glue: wasm32Relaxed,
    url: () => new URL("./wasm32-relaxed.wasm", import.meta.url),
  },
  wasm64: { glue: wasm64, url: () => new URL("./wasm64.wasm", import.meta.url) },
} as const satisfies Record<WasmModule, { glue: typeof Glue; url: () => URL }>;

/** A module that runs. */
export interface Instance {
  readonly glue: typeof Glue;
  readonly name: WasmModule;
}

/** @internal */
export async function instantiate(given: unknown): Promise<Instance> {
  if (typeof WebAssembly === "undefined") {
    throw new UnsupportedError("this engine has no WebAssembly, or a policy forbids it");
  }
  const from = given === undefined ? best() : given;
  const module = await (isName(from) ? compilePackaged(from) : compile(from));
  const name = nameOf(module);
  const { glue } = modules[name];
  await glue.default({ module_or_path: module });
  return { glue, name };
}

/**
 * The fastest module that this engine takes: with relaxed SIMD where that is known. Addresses of 64 bits
 * cost a seventh of the speed: they are for models that need them, and for those who ask.
 */
function best(): WasmModule {
  return WebAssembly.validate(relaxedSimd) ? "wasm32-relaxed" : "wasm32";
}

const header = [0, 97, 115, 109, 1, 0, 0, 0];

/** A module of a memory with 64-bit addresses, and one of such a table. */
const memory64 = Uint8Array.of(...header, 5, 3, 1, 4, 1);
const table64 = Uint8Array.of(...header, 4, 4, 1, 112, 4, 1);

/** A module of one function, which uses `i8x16.relaxed_swizzle`. */
const relaxedSimd = Uint8Array.of(
  ...header,
  ...[1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0],
  ...[10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11],
);

const isName = (value: unknown): value is WasmModule =>
  typeof value === "string" && Object.hasOwn(modules, value);

/** One of the package's own files. */
function compilePackaged(name: WasmModule): Promise<WebAssembly.Module> {
  if (name === "wasm64" && !(WebAssembly.validate(memory64) && WebAssembly.validate(table64))) {
    throw new UnsupportedError(
      "load: this engine has no 64-bit WebAssembly memory, which the module wasm64 is made for: a model " +
        "of more than 3 GiB needs an engine that has, such as Node.js 24 or a current Chromium or Firefox",
    );
  }
  return compile(modules[name].url());
}

/** What the module says it is, in a section of its own. */
function nameOf(module: WebAssembly.Module): WasmModule {
  const [section] = WebAssembly.Module.customSections(module, "uform");
  const [name, found] = section ? new TextDecoder().decode(section).split(" ") : [];
  if (isName(name) && found === version) return name;
  if (isName(name)) {
    throw new InvalidArgumentError(
      `load: the WebAssembly module is of uform ${found}, and this JavaScript is of uform ${version}: ` +
        "bring both from one version of the package, and see that no cache keeps an older file",
    );
  }
  throw new InvalidArgumentError(
    "load: expected one of this package's WebAssembly modules for `wasm` but received another module",
  );
}

/** `from` is of a kind that `load` accepts. */
async function compile(from: unknown): Promise<WebAssembly.Module> {
  if (from instanceof WebAssembly.Module) return from;
  if (from instanceof URL) return compile(await fetched(from));
  // Bytes need no `Response`: Node.js loads all of fetch when it is first named.
  const isBytes = from instanceof ArrayBuffer || ArrayBuffer.isView(from);
  if (!isBytes && typeof Response !== "undefined" && from instanceof Response) {
    if (from.ok) return compile(await from.arrayBuffer());
    const what = from.url || "the response";
    throw new IoError(`load: ${what} was answered with ${from.status} ${from.statusText}`);
  }
  try {
    return await WebAssembly.compile(from as BufferSource);
  } catch (failure) {
    throw new UnsupportedError(
      `load: this engine does not compile the WebAssembly module: ${(failure as Error).message}`,
      { cause: failure },
    );
  }
}

async function fetched(url: URL): Promise<Response | Uint8Array> {
  try {
    return await (isFile(url) ? read(url) : fetch(url));
  } catch (failure) {
    throw new IoError(`load: ${url} cannot be fetched: ${(failure as Error).message}`, {
      cause: failure,
    });
  }
}

/** Node.js fetches no files. */
const isFile = (url: URL) =>
  url.protocol === "file:" && typeof process === "object" && !!process.versions?.node;

async function read(url: URL): Promise<Uint8Array> {
  // Bundlers for the browser look for no such module.
  const name = "node:fs/promises";
  const { readFile } = (await import(
    /* webpackIgnore: true */ /* @vite-ignore */ name
  )) as typeof import("node:fs/promises");
  return readFile(url);
}
