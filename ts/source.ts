/**
 * A model's files without a path: from a server, from what a person dropped, or from memory.
 *
 * Which files are needed, the engine says; they are brought in rounds, each file copied into the
 * backend's memory as it comes. What is taken from a server can be kept in the browser's cache.
 */
import type { Backend, CompiledFiles } from "./backend/backend.js";
import { download } from "./download.js";
import { InvalidArgumentError, IoError, translated } from "./errors.js";
import { type Option, refuse } from "./options.js";

/** The bytes of one file. A stream is read once, and so serves one model. */
export type ModelFile = ArrayBuffer | Uint8Array | Blob | ReadableStream<Uint8Array>;

/**
 * A model's files, as one of
 * - the URL of its folder, with a `/` at the end or without,
 * - its files as a person chose or dropped them, a `File[]` or `FileList`: of a folder, the names are
 *   relative to it,
 * - a record of the files' names, such as `"1_Pooling/config.json"`, to their bytes.
 */
export type ModelSource = URL | ArrayLike<File> | Readonly<Record<string, ModelFile>>;

/** A file on its way: its size, where that is known, and its bytes. */
interface Incoming {
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

/**
 * Brings a model's files into the backend.
 *
 * @returns The files, and how many bytes they are.
 * @internal
 */
export async function gather(
  backend: Backend,
  source: ModelSource,
  { signal, onProgress, cache }: GatherOptions,
): Promise<{ files: CompiledFiles; bytes: number }> {
  const find = finderOf(source, cache);
  const files = translated(() => backend.filesCreate());
  const progress = new Progress(onProgress);
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
  translated(() => backend.filesBegin(files, name, incoming.size ?? 0));
  let bytes = 0;
  for await (const chunk of chunksOf(name, incoming.body, signal)) {
    signal.throwIfAborted();
    if (!(chunk instanceof Uint8Array)) {
      refuse("Model.open", `the stream of ${JSON.stringify(name)}`, "chunks of Uint8Array", chunk);
    }
    translated(() => backend.filesAppend(files, name, chunk));
    bytes += chunk.length;
    progress.advance(chunk.length);
  }
  signal.throwIfAborted();
  if (incoming.size !== undefined && bytes !== incoming.size) {
    throw new IoError(`${name}: ${bytes} bytes came of ${incoming.size}: the transfer was cut`);
  }
  if (incoming.size === undefined) progress.expect(bytes);
}

/** Bytes that came, of those that are known to come. */
class Progress {
  total = 0;
  #done = 0;
  #reported = 0;
  #last = -Infinity;
  readonly #listener: GatherOptions["onProgress"];

  constructor(listener: GatherOptions["onProgress"]) {
    this.#listener = listener;
  }

  expect(bytes: number | undefined): void {
    this.total += bytes ?? 0;
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
    const base = new URL(source);
    if (!base.pathname.endsWith("/")) base.pathname += "/";
    return async (name, signal) => {
      const url = new URL(name.split("/").map(encodeURIComponent).join("/"), base);
      url.search = base.search;
      return download(url, { signal, cache: cache === true });
    };
  }
  if (cache === true) {
    throw new InvalidArgumentError(
      "Model.open: `cache` is for a URL, and the files were given: leave it out",
    );
  }
  const files = isList(source) ? named(source) : new Map(Object.entries(source));
  return async (name) => {
    const file = files.get(name);
    return file && incoming(name, file);
  };
}

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
  if (file instanceof Uint8Array) return { size: file.length, body: file };
  if (isBuffer(file)) return { size: file.byteLength, body: new Uint8Array(file) };
  if (isBlob(file)) return { size: file.size, body: file.stream() };
  if (file.locked) {
    throw new InvalidArgumentError(
      `Model.open: the stream of ${JSON.stringify(name)} was read before; a stream serves once`,
    );
  }
  return { size: undefined, body: file };
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
