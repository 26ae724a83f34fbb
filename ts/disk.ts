/**
 * A model's folder on this machine, for WebAssembly in Node.js, Deno and Bun: there JavaScript has files. The
 * addon reads its own; its messages are the same.
 */
import type { FileReader } from "./ahead.js";
import {
  CorruptModelError,
  InvalidArgumentError,
  IoError,
  NotFoundError,
  UnsupportedError,
} from "./errors.js";

/**
 * Whether JavaScript has files here.
 *
 * @internal
 */
export const hasFiles = (): boolean => typeof process === "object" && !!process.versions?.node;

type Files = typeof import("node:fs");
type Paths = typeof import("node:path");

/** One of Node's own modules, which bundlers for the browser do not look for. */
const nodeModule = <T>(name: string): Promise<T> =>
  import(/* webpackIgnore: true */ /* @vite-ignore */ name) as Promise<T>;

/**
 * Node's files.
 *
 * @internal
 */
export const nodeFiles = (): Promise<Files> => nodeModule("node:fs");

/** Extensions of weights that other frameworks write. */
const foreign = /\.(bin|ckpt|gguf|h5|msgpack|onnx|ot|pt|pth|xml)$/;

/** What the engine calls a model's weights. */
const WEIGHTS = "model.safetensors";

/**
 * A model's folder, or a file of weights and what is beside it.
 *
 * @internal
 */
export class Folder {
  readonly #fs: Files;
  readonly #root: string;
  /** The file of weights, where it was named. */
  readonly #weights: string | undefined;
  readonly #files: OpenFile[] = [];

  private constructor(fs: Files, root: string, weights: string | undefined) {
    this.#fs = fs;
    this.#root = root.endsWith("/") ? root : `${root}/`;
    this.#weights = weights;
  }

  /** The folder, or the file of weights, at a path. */
  static async at(path: string): Promise<Folder> {
    const [fs, { dirname }] = [await nodeFiles(), await nodeModule<Paths>("node:path")];
    const found = statOf(fs, path);
    if (found === undefined) {
      throw new NotFoundError(
        `${path}: no such file or folder; expected a model's folder (config.json, tokenizer.json, ` +
          "model.safetensors) or a .safetensors file",
      );
    }
    if (found.isDirectory()) return new Folder(fs, path, undefined);
    if (path.endsWith(".safetensors")) return new Folder(fs, dirname(path), path);
    const extension = foreign.exec(path);
    if (extension) {
      throw new UnsupportedError(
        `${path}: ${extension[0]} weights cannot be read; give a folder or file with safetensors weights`,
      );
    }
    throw new InvalidArgumentError(
      `${path}: neither a folder nor a .safetensors file; give the model's folder`,
    );
  }

  /** Where messages say the model is: what precedes a file's name, or the file of weights. */
  get place(): string {
    return this.#weights ?? this.#root;
  }

  /** What a file is called in messages. */
  locate(name: string): string {
    return name === WEIGHTS && this.#weights !== undefined ? this.#weights : this.#root + name;
  }

  /** Opens a file; `undefined`: there is none. */
  file(name: string): OpenFile | undefined {
    const path = this.locate(name);
    const found = statOf(this.#fs, path);
    if (found === undefined) return undefined;
    // Opening a pipe would wait for a writer, perhaps for ever.
    if (!found.isFile()) throw new CorruptModelError(`${path}: not a regular file`);
    const file = new OpenFile(this.#fs, path, found.size);
    this.#files.push(file);
    return file;
  }

  /** Closes every file. */
  close(): void {
    for (const file of this.#files.splice(0)) file.close();
  }
}

/**
 * A file that is open.
 *
 * @internal
 */
export class OpenFile implements FileReader {
  readonly size: number;
  readonly #fs: Files;
  readonly #path: string;
  readonly #file: number;
  /** Reads that have not ended. The file's number may be another's once it is closed. */
  #reads = 0;
  #isClosed = false;

  constructor(fs: Files, path: string, size: number) {
    [this.#fs, this.#path, this.size] = [fs, path, size];
    this.#file = told(path, () => fs.openSync(path, "r"));
  }

  /** All of its bytes. */
  whole(): Uint8Array {
    const bytes = new Uint8Array(this.size);
    for (let at = 0; at < this.size;) at += this.now(bytes.subarray(at), this.size - at, at);
    return bytes;
  }

  now(buffer: Uint8Array, count: number, at: number): number {
    if (this.#isClosed) throw new IoError(`${this.#path}: it was closed`);
    const read = told(this.#path, () => this.#fs.readSync(this.#file, buffer, 0, count, at));
    return read > 0 ? read : cut(this.#path, this.size);
  }

  later(buffer: Uint8Array, count: number, at: number, done: (count: number) => void): void {
    if (this.#isClosed) return done(0);
    this.#reads++;
    this.#fs.read(this.#file, buffer, 0, count, at, (_, read) => {
      this.#reads--;
      if (this.#isClosed) this.close();
      done(read ?? 0);
    });
  }

  /** Closes it, as soon as nobody reads. */
  close(): void {
    this.#isClosed = true;
    if (this.#reads === 0) this.#fs.closeSync(this.#file);
  }
}

/** What a path leads to; `undefined`: nothing is there. */
function statOf(fs: Files, path: string): import("node:fs").Stats | undefined {
  try {
    return fs.statSync(path);
  } catch (failure) {
    const { code } = failure as NodeJS.ErrnoException;
    if (code === "ENOTDIR") return undefined;
    if (code !== "ENOENT") throw refused(path, failure);
  }
  let target: string;
  try {
    target = fs.readlinkSync(path);
  } catch {
    return undefined;
  }
  throw new NotFoundError(`${path}: a symbolic link to ${target}, which does not exist`);
}

function told<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (failure) {
    throw refused(path, failure);
  }
}

function cut(path: string, size: number): never {
  throw new CorruptModelError(
    `${path}: it had ${size} bytes when it was opened and was cut while it was being read; open the ` +
      "model again once the file is complete",
  );
}

/** The system's refusal, in the system's words. */
function refused(path: string, failure: unknown): IoError {
  const { code, message } = failure as NodeJS.ErrnoException;
  const why = code === "ELOOP" ? "its symbolic links form a loop" : message;
  return new IoError(`${path}: ${why}`, { cause: failure });
}
