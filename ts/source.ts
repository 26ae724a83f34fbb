/**
 * A model's files without a path: from a server, from what a person dropped, or from memory.
 *
 * Which files are needed, the engine says; they are brought in rounds, each file copied into the
 * backend's memory as it comes. Weights stay in JavaScript's memory where that of the backend would only
 * grow. What is taken from a server can be kept in the browser's cache.
 */
import type { Backend, CompiledFiles } from "./backend/backend.js";
import { download, withoutSecrets } from "./download.js";
import { InvalidArgumentError, IoError, translated } from "./errors.js";
import { type Option, refuse } from "./options.js";

/**
 * The bytes of one file. A stream is read once, and so serves one model. Bytes are read where they are, and
 * are left as they are until the model is open.
 */
export type ModelFile = ArrayBuffer | Uint8Array | Blob | ReadableStream<Uint8Array>;

/**
 * A model's files, as one of
 * - the URL of its folder, with a `/` at the end or without,
 * - its files as a person chose or dropped them, a `File[]` or `FileList`: of a folder, the names are
 *   relative to it,
 * - a record of the files' names, such as `"1_Pooling/config.json"`, to their bytes.
 */
export type ModelSource = URL | ArrayLike<File> | Readonly<Record<string, ModelFile>>;

/** A file on its way: what messages call it, its size, where that is known, and its bytes. */
interface Incoming {
  readonly called: string;
  readonly size: number | undefined;
  readonly body: Uint8Array | ReadableStream<Uint8Array>;
}

/** Finds files by their names; `undefined`: there is no such file. */
type Finder = (name: string, signal: AbortSignal) => Promise<Incoming | undefined>;

/** @internal */
export interface GatherOptions {
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((done: number, total: number) => void) | undefined;
  readonly cache: boolean | undefined;
}

const expected =
  "the path of a model's folder or .safetensors file, the URL of its folder, its files (a File[] or " +
  "FileList), or a record of file names to bytes (ArrayBuffer, Uint8Array, Blob or ReadableStream); " +
  "of a file: URL, its path, by fileURLToPath";

/** @internal */
export const sourceOption: Option<ModelSource> = (value, refuse) => {
  if (value instanceof URL) return value.protocol === "file:" ? refuse(expected) : value;
  if (isList(value) && value.length > 0 && Array.from(value).every(isFile)) return value;
  const isRecord = Object.prototype.toString.call(value) === "[object Object]" && !isList(value);
  const files = isRecord ? Object.values(value as object) : [];
  if (files.length === 0 || !files.every(isModelFile)) refuse(expected);
  return value as ModelSource;
};

/** Files that were brought, and how many bytes they are. @internal */
export interface Gathered {
  readonly files: CompiledFiles;
  readonly bytes: number;
}

/**
 * The most bytes of files for a module with 32-bit addresses. Weights take up to twice as much memory as they
 * are computed with (those in 16 bits do): no more than 3 GiB.
 */
const MOST_NARROW = 1.5 * 2 ** 30;

/** There are more of them. */
class NoRoom extends Error {}

/**
 * Brings a model's files into the backend.
 *
 * @returns The files, or `undefined` when they are more than it has room for. What was given then is
 * as it was.
 * @internal
 */
export async function gather(
  backend: Backend,
  source: ModelSource,
  { signal, onProgress, cache }: GatherOptions,
): Promise<Gathered | undefined> {
  signal?.throwIfAborted();
  const find = finderOf(source, cache);
  const isNarrow = backend.module !== undefined && backend.module !== "wasm64";
  const most = isNarrow ? MOST_NARROW : Infinity;
  if (weigh(source) > most) return undefined;
  const files = translated(() => backend.filesCreate(placeOf(source)));
  const progress = new Progress(onProgress, most);
  // A failure of one file ends the others'.
  const stop = new AbortController();
  const giveUp = () => stop.abort(signal?.reason);
  signal?.addEventListener("abort", giveUp);
  try {
    for (;;) {
      const names = translated(() => backend.filesWanted(files));
      if (names.length === 0) return { files, bytes: progress.total };
      await Promise.all(
        names.map((name) => bring(backend, files, name, find, stop.signal, progress)),
      );
    }
  } catch (failure) {
    stop.abort(failure);
    if (failure instanceof NoRoom) return undefined;
    throw signal?.aborted ? signal.reason : failure;
  } finally {
    signal?.removeEventListener("abort", giveUp);
  }
}

async function bring(
  backend: Backend,
  files: CompiledFiles,
  name: string,
  find: Finder,
  signal: AbortSignal,
  progress: Progress,
): Promise<void> {
  signal.throwIfAborted();
  const incoming = await find(name, signal);
  signal.throwIfAborted();
  if (incoming === undefined) return translated(() => backend.filesAbsent(files, name));
  progress.expect(incoming.size);
  const lend = name.endsWith(".safetensors") ? backend.filesLend : undefined;
  const chunks = new Chunks();
  if (!lend) translated(() => backend.filesBegin(files, name, incoming.size ?? 0));
  let bytes = 0;
  for await (const chunk of chunksOf(incoming.called, incoming.body, signal)) {
    signal.throwIfAborted();
    if (!(chunk instanceof Uint8Array)) {
      refuse("Model.open", `the stream of ${JSON.stringify(name)}`, "chunks of Uint8Array", chunk);
    }
    if (lend) chunks.add(chunk);
    else translated(() => backend.filesAppend(files, name, chunk));
    bytes += chunk.length;
    progress.advance(chunk.length);
  }
  signal.throwIfAborted();
  if (incoming.size !== undefined && bytes !== incoming.size) {
    throw new IoError(
      `${incoming.called}: ${bytes} bytes came of ${incoming.size}: the transfer was cut`,
    );
  }
  // Too many or not, they are here.
  if (incoming.size === undefined) progress.total += bytes;
  if (lend) translated(() => lend(files, name, bytes, chunks.read));
}

/** The chunks of a file as one. */
class Chunks {
  readonly #chunks: Uint8Array[] = [];
  /** Where each of them ends. */
  readonly #ends: number[] = [];

  add(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#ends.push((this.#ends.at(-1) ?? 0) + chunk.length);
  }

  /** The bytes from `at` on that are in one chunk, at most so many. */
  readonly read = (at: number, most: number): Uint8Array => {
    let [low, high] = [0, this.#ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ends[middle]! > at) high = middle;
      else low = middle + 1;
    }
    const chunk = this.#chunks[low]!;
    const start = at - (this.#ends[low]! - chunk.length);
    return chunk.subarray(start, start + most);
  };
}

/** Bytes that came, of those that are known to come. */
class Progress {
  /** Bytes that came or are known to come. */
  total = 0;
  #done = 0;
  #reported = 0;
  #last = -Infinity;
  readonly #listener: GatherOptions["onProgress"];
  readonly #most: number;

  constructor(listener: GatherOptions["onProgress"], most: number) {
    this.#listener = listener;
    this.#most = most;
  }

  /** Says how many bytes will come, where that is known. */
  expect(bytes: number | undefined): void {
    this.total += bytes ?? 0;
    if (this.total > this.#most) throw new NoRoom();
  }

  advance(bytes: number): void {
    this.#done += bytes;
    const now = performance.now();
    // The end is told when the model is open.
    if (this.#done >= this.total || now - this.#last < 100 || this.#done <= this.#reported) return;
    this.#last = now;
    this.#reported = this.#done;
    this.#listener?.(this.#done, this.total);
  }
}

function finderOf(source: ModelSource, cache: boolean | undefined): Finder {
  if (source instanceof URL) {
    const base = folderOf(source);
    return async (name, signal) => {
      const url = new URL(name.split("/").map(encodeURIComponent).join("/"), base);
      url.search = base.search;
      const found = await download(url, { signal, cache: cache === true });
      return found && { called: `${placeOf(source)}${name}`, ...found };
    };
  }
  if (cache === true) {
    throw new InvalidArgumentError(
      "Model.open: `cache` is for a URL, and the files were given: leave it out",
    );
  }
  const files = filesOf(source);
  return async (name) => {
    const file = files.get(name);
    return file && incoming(name, file);
  };
}

/** The URL of the model's folder, with a `/` at the end. */
function folderOf(url: URL): URL {
  const base = new URL(url);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

/** Where messages say the model is. */
const placeOf = (source: ModelSource) =>
  source instanceof URL ? withoutSecrets(folderOf(source)) : "";

/** How many bytes of weights were given, as far as that is known. */
function weigh(source: ModelSource): number {
  if (source instanceof URL) return 0;
  const weights = [...filesOf(source)].filter(([name]) => name.endsWith(".safetensors"));
  return weights.reduce((sum, [, file]) => sum + (sizeOf(file) ?? 0), 0);
}

/** Files that were given, by their names in the model's folder. */
const filesOf = (source: Exclude<ModelSource, URL>) =>
  isList(source) ? named(source) : new Map(Object.entries(source));

/** Files by their names in the model's folder. */
function named(list: ArrayLike<File>): Map<string, File> {
  const files = Array.from(list);
  const paths = files.map((file) => file.webkitRelativePath || file.name);
  // A chosen folder's name comes first in every path.
  const folder = paths.every((path) => path.includes("/")) ? /^[^/]*\//.exec(paths[0]!)![0] : "";
  const isShared = paths.every((path) => path.startsWith(folder));
  const cut = isShared ? folder.length : 0;
  return new Map(files.map((file, index) => [paths[index]!.slice(cut), file]));
}

function incoming(name: string, file: ModelFile): Incoming {
  const told = { called: name, size: sizeOf(file) };
  if (file instanceof Uint8Array) return { ...told, body: file };
  if (isBuffer(file)) return { ...told, body: new Uint8Array(file) };
  if (isBlob(file)) return { ...told, body: file.stream() };
  if (file.locked) {
    throw new InvalidArgumentError(
      `Model.open: the stream of ${JSON.stringify(name)} was read before; a stream serves once`,
    );
  }
  return { ...told, body: file };
}

/** `undefined`: a stream does not say. */
function sizeOf(file: ModelFile): number | undefined {
  if (file instanceof Uint8Array || isBuffer(file)) return file.byteLength;
  return isBlob(file) ? file.size : undefined;
}

/** A file's chunks, until the signal is aborted. Not every engine iterates over streams. */
async function* chunksOf(
  name: string,
  body: Incoming["body"],
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  if (body instanceof Uint8Array) return yield body;
  const reader = body.getReader();
  // Whoever sends is told, and what is waited for ends.
  const cancel = () => void reader.cancel(signal.reason).catch(() => {});
  signal.addEventListener("abort", cancel);
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((failure: unknown) => {
        const reason = failure instanceof Error ? failure.message : String(failure);
        throw new IoError(`${name}: reading it failed: ${reason}`, { cause: failure });
      });
      if (done) return;
      yield value;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    cancel();
  }
}

const tag = (value: unknown) => Object.prototype.toString.call(value);
const isList = (value: unknown): value is ArrayLike<File> =>
  Array.isArray(value) || tag(value) === "[object FileList]";
const isFile = (value: unknown): value is File => tag(value) === "[object File]";
const isBlob = (value: unknown): value is Blob => isFile(value) || tag(value) === "[object Blob]";
const isBuffer = (value: unknown): value is ArrayBuffer => tag(value) === "[object ArrayBuffer]";
const isModelFile = (value: unknown): value is ModelFile =>
  value instanceof Uint8Array ||
  isBuffer(value) ||
  isBlob(value) ||
  tag(value) === "[object ReadableStream]";
