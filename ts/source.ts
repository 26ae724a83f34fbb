/**
 * A model's files for a backend that does not find them by itself: from a server, from what a person dropped,
 * from memory, or from a folder.
 *
 * Which files are needed, the engine says; they are brought in rounds, each file copied into the
 * backend's memory as it comes, a piece at a time, between which the event loop turns. Weights stay in JavaScript's memory where that of the backend would only
 * grow. What is taken from a server can be kept in the browser's cache.
 */
import { Ahead } from "./read_ahead.js";
import type { Backend, CompiledFiles } from "./backend/backend.js";
import { Pace } from "./backend/turns.js";
import { Folder, OpenFile } from "./disk.js";
import { download, withoutSecrets } from "./download.js";
import {
  InvalidArgumentError,
  IoError,
  messageOf,
  OutOfMemoryError,
  translated,
} from "./errors.js";
import { isHandle } from "./handle.js";
import {
  isBlob,
  isBuffer,
  isBytes,
  isFile,
  isStream,
  isUrl,
  type Option,
  refuse,
  show,
  tag,
} from "./options.js";

/**
 * The bytes of one file. A stream is read once, and so serves one model. Bytes are read where they are, and
 * are left as they are until the model is open: neither written to nor cut or transferred.
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
  readonly body: Uint8Array | Blob | ReadableStream<Uint8Array> | OpenFile;
}

/** A source as it was when it was given: where the files are, or the files by their names. @internal */
export type Place = URL | Folder | ReadonlyMap<string, Incoming>;

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
  "of what a data: or blob: URL has, a record";

/** Whether a server may have files beneath a URL; none is beneath those of `data:` and `blob:`. */
function isFolder(url: URL): boolean {
  if (url.protocol === "file:") return false;
  try {
    return new URL("config.json", url).href !== "";
  } catch {
    return false;
  }
}

/** @internal */
export const sourceOption: Option<Place> = (value, refuse) => {
  if (isUrl(value)) return isFolder(value) ? value : refuse(expected);
  if (isList(value)) {
    const files = Array.from(value);
    return files.length > 0 && files.every(isFile) ? named(files) : refuse(expected);
  }
  const isRecord = tag(value) === "[object Object]" && !isHandle(value);
  const files = isRecord ? Object.entries(value as object) : [];
  if (files.length === 0) refuse(expected);
  return new Map(files.map(([name, file]) => [name, incoming(name, file)]));
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

/**
 * Brings a folder's files while the caller waits.
 *
 * @internal
 */
export function gatherNow(backend: Backend, folder: Folder): CompiledFiles {
  const files = backend.filesCreate(folder.place, folder.names());
  let room = mostOf(backend);
  for (let names: string[]; (names = backend.filesWanted(files)).length > 0;) {
    for (const name of names) {
      const file = folder.file(name);
      room -= file?.size ?? 0;
      if (room < 0) throw tooLarge(backend);
      if (file === undefined) backend.filesAbsent(files, name);
      else if (isWeights(name)) backend.filesLend?.(files, name, file.size, file.read);
      else {
        backend.filesBegin(files, name, file.size);
        backend.filesAppend(files, name, file.whole());
      }
    }
  }
  return files;
}

function tooLarge({ module }: Backend): OutOfMemoryError {
  return new OutOfMemoryError(
    `Model.loadRam: the model is too large for the module ${module}: take Model.open without an ` +
      'executor, or await load({ wasm: "wasm64" }) before anything else',
  );
}

/** The most bytes of files that a backend has room for. */
const mostOf = ({ module }: Backend): number =>
  module === undefined || module === "wasm64" ? Infinity : MOST_NARROW;

const isWeights = (name: string) => name.endsWith(".safetensors");

/** What all files of a model have in common on their way. */
interface Way {
  readonly backend: Backend;
  readonly files: CompiledFiles;
  readonly find: Finder;
  readonly progress: Progress;
  readonly pace: Pace;
  /** Aborted when one of them fails. */
  readonly signal: AbortSignal;
}

/** There are more of them. @internal */
export class NoRoom extends Error {
  /** So many, of those that are known to come. */
  readonly bytes: number;

  constructor(bytes: number) {
    super();
    this.bytes = bytes;
  }
}

/** The most bytes that room is made for because a server told of them: for more, as they come. */
const MOST_TOLD = 16 << 20;

/** The most bytes that are copied at once: a millisecond's, where the system has yet to find the memory. */
const PIECE = 1 << 20;

/**
 * Brings a model's files into the backend.
 *
 * @throws {@link NoRoom} when they are more than it has room for. What was given then is as it was.
 * @internal
 */
export async function gather(
  backend: Backend,
  source: Place,
  { signal, onProgress, cache }: GatherOptions,
): Promise<Gathered> {
  signal?.throwIfAborted();
  const find = finderOf(source, cache);
  const most = mostOf(backend);
  const weight = weigh(source);
  if (weight > most) throw new NoRoom(weight);
  const files = translated(() => backend.filesCreate(placeOf(source), namesIn(source)));
  const progress = new Progress(onProgress, most);
  // A failure of one file ends the others'.
  const stop = new AbortController();
  const giveUp = () => stop.abort(signal?.reason);
  signal?.addEventListener("abort", giveUp);
  // A call that is outstanding keeps the process alive; a stream that is waited for does not by itself.
  const alive = setInterval(() => {}, 2 ** 31 - 1);
  const pace = new Pace();
  const way: Way = { backend, files, find, progress, pace, signal: stop.signal };
  try {
    for (;;) {
      const names = translated(() => backend.filesWanted(files));
      if (names.length === 0) return { files, bytes: progress.total };
      await Promise.all(names.map((name) => bring(name, way)));
    }
  } catch (failure) {
    stop.abort(failure);
    throw signal?.aborted ? signal.reason : failure;
  } finally {
    clearInterval(alive);
    signal?.removeEventListener("abort", giveUp);
  }
}

async function bring(name: string, way: Way): Promise<void> {
  const { backend, files, find, progress, pace, signal } = way;
  signal.throwIfAborted();
  const incoming = await find(name, signal);
  signal.throwIfAborted();
  if (incoming === undefined) return translated(() => backend.filesAbsent(files, name));
  progress.expect(incoming.size);
  const lend = isWeights(name) ? backend.filesLend : undefined;
  if (lend && incoming.body instanceof OpenFile) {
    const { size } = incoming.body;
    const { read } = new Ahead(incoming.body);
    return translated(() => lend(files, name, size, read));
  }
  const chunks = new Chunks(name);
  if (!lend) translated(() => backend.filesBegin(files, name, roomFor(incoming)));
  let bytes = 0;
  for await (const chunk of chunksOf(incoming, signal)) {
    if (!isBytes(chunk)) {
      refuse("Model.open", `the stream of ${show(name)}`, "chunks of Uint8Array", chunk);
    }
    for await (const piece of piecesOf(name, chunk, pace)) {
      signal.throwIfAborted();
      if (lend) chunks.add(piece);
      else translated(() => backend.filesAppend(files, name, unshared(piece)));
      bytes += piece.length;
      progress.advance(piece.length);
    }
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

/** How many bytes to make room for before any is here. */
function roomFor({ size = 0, body }: Incoming): number {
  return isStream(body) ? Math.min(size, MOST_TOLD) : size;
}

/** The pieces of a chunk, while the event loop turns. */
async function* piecesOf(name: string, chunk: Uint8Array, pace: Pace): AsyncGenerator<Uint8Array> {
  const { length } = chunk;
  // A stream may send nothing for ever.
  if (length === 0) await pace.step();
  for (let at = 0; at < length; at += PIECE) {
    await pace.step();
    checkThere(name, chunk, length);
    yield chunk.subarray(at, at + PIECE);
  }
}

/** Bytes that no other thread writes to while they are read. */
function unshared(bytes: Uint8Array): Uint8Array {
  return tag(bytes.buffer) === "[object SharedArrayBuffer]" ? bytes.slice() : bytes;
}

/** The chunks of a file as one. */
class Chunks {
  readonly #chunks: Uint8Array[] = [];
  /** Where each of them ends. */
  readonly #ends: number[] = [];
  readonly #name: string;

  constructor(name: string) {
    this.#name = name;
  }

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
    const begin = this.#ends[low - 1] ?? 0;
    checkThere(this.#name, chunk, this.#ends[low]! - begin);
    return chunk.subarray(at - begin, at - begin + most);
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
    if (this.total > this.#most) throw new NoRoom(this.total);
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

function finderOf(source: Place, cache: boolean | undefined): Finder {
  if (source instanceof Folder) {
    return async (name) => {
      const body = source.file(name);
      return body && { called: source.locate(name), size: body.size, body };
    };
  }
  if (isUrl(source)) {
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
  return async (name) => source.get(name);
}

/** The URL of the model's folder, with a `/` at the end. */
function folderOf(url: URL): URL {
  const base = new URL(url);
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

/** Where messages say the model is. */
function placeOf(source: Place): string {
  if (source instanceof Folder) return source.place;
  return isUrl(source) ? withoutSecrets(folderOf(source)) : "";
}

/** What lies there, as far as that is known. */
function namesIn(source: Place): string[] {
  if (isUrl(source)) return [];
  return source instanceof Folder ? source.names() : [...source.keys()];
}

/** How many bytes of weights were given, as far as that is known. */
function weigh(source: Place): number {
  if (isUrl(source) || source instanceof Folder) return 0;
  const weights = [...source].filter(([name]) => isWeights(name));
  return weights.reduce((sum, [, { size }]) => sum + (size ?? 0), 0);
}

/** Files by their names in the model's folder. */
function named(files: readonly File[]): Map<string, Incoming> {
  const paths = files.map((file) => file.webkitRelativePath || file.name);
  // A chosen folder's name comes first in every path.
  const folder = paths.every((path) => path.includes("/")) ? /^[^/]*\//.exec(paths[0]!)![0] : "";
  const isShared = paths.every((path) => path.startsWith(folder));
  const cut = isShared ? folder.length : 0;
  const names = paths.map((path) => path.slice(cut));
  return new Map(files.map((file, index) => [names[index]!, incoming(names[index]!, file)]));
}

/** A file that was given. Bytes of it get a view whose length tells when they are not there any more. */
function incoming(name: string, file: unknown): Incoming {
  if (isBlob(file)) return { called: name, size: file.size, body: file };
  if (isStream(file)) return { called: name, size: undefined, body: file };
  if (!isBytes(file) && !isBuffer(file)) {
    const expected = "an ArrayBuffer, a Uint8Array, a Blob or a ReadableStream";
    refuse("Model.open", `${show(name)} of the record \`source\``, expected, file);
  }
  const { buffer, offset } = isBuffer(file)
    ? { buffer: file, offset: 0 }
    : { buffer: file.buffer, offset: file.byteOffset };
  if (isDetached(buffer)) gone(name);
  const body = new Uint8Array(buffer, offset, file.byteLength);
  return { called: name, size: body.length, body };
}

/** Whether a value is an ArrayBuffer without its memory. Not every engine says so by itself. */
function isDetached(value: unknown): boolean {
  if (!isBuffer(value)) return false;
  try {
    new Uint8Array(value);
    return false;
  } catch {
    return true;
  }
}

/** Refuses bytes of which there were so many, and which are not all there any more. */
function checkThere(name: string, { buffer, length }: Uint8Array, was: number | undefined): void {
  if (length === was) return;
  if (isDetached(buffer)) gone(name);
  throw new InvalidArgumentError(
    `Model.open: the bytes of ${show(name)} are in an ArrayBuffer that was resized, to ${buffer.byteLength} bytes; ` +
      "pass a copy, or resize it when the model is open",
  );
}

/** Refuses a file whose bytes went elsewhere. */
function gone(name: string): never {
  throw new InvalidArgumentError(
    `Model.open: the bytes of ${show(name)} are in an ArrayBuffer that is detached: they were transferred elsewhere, ` +
      "as by postMessage; pass a copy, or transfer them when the model is open",
  );
}

/** A file's chunks, until the signal is aborted. Not every engine iterates over streams. */
async function* chunksOf(file: Incoming, signal: AbortSignal): AsyncGenerator<Uint8Array, void> {
  const { called, size, body } = file;
  if (isBytes(body)) {
    checkThere(called, body, size);
    return yield body;
  }
  if (body instanceof OpenFile) return yield body.whole();
  if (isBlob(body)) {
    // Rather than as a stream, which Node.js makes of all of it at once.
    for (let at = 0; at < body.size; at += PIECE) {
      signal.throwIfAborted();
      yield await pieceAt(at, file, body);
    }
    return;
  }
  const reader = readerOf(file, body);
  // The sender is told, and pending reads end.
  const cancel = () => void reader.cancel(signal.reason).catch(() => {});
  signal.addEventListener("abort", cancel);
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await readNext(file, bytes, reader);
      if (done) return;
      yield value;
      bytes += value.length;
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    cancel();
  }
}

async function readNext(
  file: Incoming,
  bytes: number,
  reader: ReadableStreamDefaultReader<Uint8Array>,
) {
  try {
    return await reader.read();
  } catch (failure) {
    return unreadable(file, bytes, failure);
  }
}

async function pieceAt(at: number, file: Incoming, body: Blob): Promise<Uint8Array> {
  try {
    return new Uint8Array(await body.slice(at, at + PIECE).arrayBuffer());
  } catch (failure) {
    return unreadable(file, at, failure);
  }
}

function readerOf(file: Incoming, body: ReadableStream<Uint8Array>) {
  try {
    return body.getReader();
  } catch (failure) {
    if (!body.locked) unreadable(file, 0, failure);
    throw new InvalidArgumentError(
      `Model.open: the stream of ${show(file.called)} was read before; a stream serves once`,
      { cause: failure },
    );
  }
}

function unreadable({ called, size }: Incoming, bytes: number, failure: unknown): never {
  const reason = messageOf(failure);
  const of = size === undefined ? "" : ` of ${size}`;
  throw new IoError(`${called}: reading it failed after ${bytes}${of} bytes: ${reason}`, {
    cause: failure,
  });
}

const isList = (value: unknown): value is ArrayLike<unknown> =>
  Array.isArray(value) || tag(value) === "[object FileList]";
