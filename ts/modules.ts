/**
 * Finding, checking and instantiating a module: the one that was given or named, or the best of the
 * package's for this engine.
 */
import { findFiles, hasFiles } from "./disk.js";
import { causeOf, reason, statusOf, withoutSecrets } from "./download.js";
import { InvalidArgumentError, IoError, OutOfMemoryError, UnsupportedError } from "./errors.js";
import type * as Glue from "./glue/glue.js";
import type { WasmModule } from "./backend/backend.js";
import { isBuffer, isModule, isResponse, isUrl } from "./options.js";
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
  try {
    await glue.default({ module_or_path: module });
  } catch (failure) {
    throw noMemory(failure) ?? failure;
  }
  return { glue, name };
}

/**
 * Memory that the engine refused, as an error of ours; `undefined`: it was something else. Engines say it with the
 * error of what is out of range, or in words.
 */
function noMemory(failure: unknown): OutOfMemoryError | undefined {
  const { message } = failure as Error;
  if (!(failure instanceof RangeError) && !/out of memory/i.test(message)) return undefined;
  return new OutOfMemoryError(
    `load: the engine has no memory for the WebAssembly module: ${message}; free what is not needed, or ` +
      "raise the limit of the process or page",
    { cause: failure },
  );
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
  return compile(modules[name].url()).catch((failure: unknown) => {
    if (!(failure instanceof IoError)) throw failure;
    const wayOut = `put the package's file uform/${name}.wasm there, or say by \`wasm\` where it is`;
    throw new IoError(`${failure.message}; ${wayOut}`, { cause: failure.cause });
  });
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
  if (isModule(from)) return from;
  const found = bytesOf(from);
  // Bytes that were given are the engine's before their owner has them back.
  const { called, bytes } = found instanceof Promise ? await found : found;
  const wrong = whyNoModule(bytes);
  try {
    return await WebAssembly.compile(bytes);
  } catch (failure) {
    throw noMemory(failure) ?? notCompiled(called, wrong, failure);
  }
}

function notCompiled(called: string, wrong: string | undefined, cause: unknown): Error {
  const { message } = cause as Error;
  if (wrong !== undefined) {
    return new InvalidArgumentError(
      `load: ${called} is ${wrong}; expected one of this package's, such as uform/wasm32.wasm, whole and as it is`,
      { cause },
    );
  }
  return new UnsupportedError(
    `load: this engine does not compile ${called}: ${message}; it lacks what the WebAssembly module needs, or the ` +
      "module was changed on its way: compare it with the package's file",
    { cause },
  );
}

/** Bytes that may be a module, and what messages call them. */
interface Candidate {
  readonly called: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

function bytesOf(from: unknown): Candidate | Promise<Candidate> {
  if (isUrl(from)) return bytesAt(from);
  if (isResponse(from)) {
    return answered(from, from.url ? withoutSecrets(new URL(from.url)) : "the response");
  }
  try {
    const bytes = ArrayBuffer.isView(from)
      ? new Uint8Array(from.buffer, from.byteOffset, from.byteLength)
      : new Uint8Array(from as ArrayBuffer);
    // Engines compile no memory that another thread may write to meanwhile.
    return { called: "`wasm`", bytes: isUnshared(bytes) ? bytes : bytes.slice() };
  } catch (failure) {
    throw new InvalidArgumentError(
      "load: `wasm` is in an ArrayBuffer that is detached: it was transferred elsewhere, as by postMessage; " +
        "pass a copy, or transfer it later",
      { cause: failure },
    );
  }
}

async function bytesAt(url: URL): Promise<Candidate> {
  const called = withoutSecrets(url);
  const found = await fetched(url, called);
  return isResponse(found) ? answered(found, called) : { called, bytes: found };
}

const isUnshared = (bytes: Uint8Array): bytes is Uint8Array<ArrayBuffer> => isBuffer(bytes.buffer);

/** What a server answered. */
async function answered(response: Response, called: string): Promise<Candidate> {
  if (!response.ok) {
    throw new IoError(`load: ${called} was answered with ${statusOf(response)}`);
  }
  if (response.bodyUsed) {
    throw new InvalidArgumentError(`load: ${called} was read before; a response serves once`);
  }
  try {
    return { called, bytes: new Uint8Array(await response.arrayBuffer()) };
  } catch (failure) {
    throw noMemory(failure) ?? cannotFetch(called, failure);
  }
}

/**
 * Whether bytes are those of a module from its first to its last section, be it one that this engine does not take:
 * a header, and sections each of which has a number, its size (LEB128) and so many bytes. WebAssembly
 * specification, "Binary Format: Modules".
 */
function isWhole(bytes: Uint8Array): boolean {
  if (header.some((byte, index) => bytes[index] !== byte)) return false;
  let at = header.length;
  while (at < bytes.length) {
    let size = 0;
    let scale = 1;
    let byte: number;
    do {
      byte = bytes[++at] ?? NaN;
      size += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    at += 1 + size;
    if (Number.isNaN(byte)) return false;
  }
  return at === bytes.length;
}

/** What bytes are rather than a module; `undefined`: they may be one. */
function whyNoModule(bytes: Uint8Array): string | undefined {
  if (isWhole(bytes)) return undefined;
  if (bytes.length > 8 && header.every((byte, index) => bytes[index] === byte)) {
    return `a WebAssembly module whose last section does not end where its ${bytes.length} bytes do: it was cut, or something was appended`;
  }
  const beginning = Array.from(bytes.subarray(0, 8), (byte) => byte.toString(16).padStart(2, "0"));
  return `no WebAssembly module: it has ${bytes.length} bytes, and begins with ${beginning.join(" ") || "none"}`;
}

async function fetched(url: URL, called: string): Promise<Response | Uint8Array<ArrayBuffer>> {
  try {
    return await (isFile(url) ? read(url) : fetch(url));
  } catch (failure) {
    throw noMemory(failure) ?? cannotFetch(called, failure, url);
  }
}

function cannotFetch(called: string, failure: unknown, url?: URL): IoError {
  const why = url ? reason(failure, url) : (failure as Error).message;
  const cause = url ? causeOf(failure, url) : { cause: failure };
  return new IoError(`load: ${called} cannot be fetched: ${why}`, cause);
}

/** Node.js fetches no files. */
const isFile = (url: URL) => url.protocol === "file:" && hasFiles();

async function read(url: URL): Promise<Uint8Array<ArrayBuffer>> {
  const { stat, readFile } = (await findFiles()).promises;
  // Reading a pipe would wait for a writer, perhaps for ever.
  if (!(await stat(url)).isFile()) throw new Error("not a regular file");
  return readFile(url);
}
