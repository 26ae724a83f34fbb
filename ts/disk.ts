/**
 * A model's folder on this machine, for WebAssembly in Node.js, Deno and Bun: there JavaScript has files. The
 * addon reads its own; its messages are the same.
 */
import type { FileReader } from "./read_ahead.js";
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
type Stats = import("node:fs").Stats;

let node: { fs: Files; paths: Paths } | undefined;

/**
 * Finds Node's files, which {@link Folder.at} looks into without waiting.
 *
 * @internal
 */
export async function findFiles(): Promise<Files> {
  node ??= { fs: await nodeModule<Files>("node:fs"), paths: await nodeModule("node:path") };
  return node.fs;
}

/** One of Node's own modules, which bundlers for the browser do not look for. Jest's scripts import nothing. */
const nodeModule = async <T>(name: string): Promise<T> =>
  (process.getBuiltinModule?.(name) ??
    (await import(/* webpackIgnore: true */ /* @vite-ignore */ name))) as T;

/** The most bytes that are read while a caller waits: what a core's own cache holds. */
const PIECE = 128 << 10;

/** @internal */
export function noFiles(where: string): never {
  throw new UnsupportedError(
    `${where}: the WebAssembly build has no file system to find a path in; pass Model.open the ` +
      "model's base URL, its files (a File[] or FileList), or a record of file names to their bytes",
  );
}

/** What to do with the name of a model on the hub, in the addon's words. */
const hubHint = (path: string): string =>
  /^[a-z0-9][\w.-]*\/[a-z0-9][\w.-]*$/i.test(path)
    ? `; for a model of the Hugging Face hub, download it first, \`hf download ${path} --local-dir FOLDER\`, ` +
      "and pass the folder"
    : "";

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

  /** The folder, or the file of weights, at a path that `where` was given. */
  static at(where: string, path: string): Folder {
    if (node === undefined) noFiles(where);
    const { fs, paths } = node;
    const found = statOf(fs, path);
    if (found === undefined) {
      throw new NotFoundError(
        `${path}: no such file or folder; expected a model's folder (config.json, tokenizer.json, ` +
          `model.safetensors) or a .safetensors file${hubHint(path)}`,
      );
    }
    if (found.isDirectory()) return new Folder(fs, path, undefined);
    if (path.endsWith(".safetensors")) return new Folder(fs, paths.dirname(path), path);
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
    checkRegular(path, found);
    const file = OpenFile.at(this.#fs, path);
    if (file !== undefined) this.#files.push(file);
    return file;
  }

  /** What was made of the files, unless one was written to meanwhile: then `discard` has it back. */
  unlessChanged<T>(made: T, discard: (made: T) => void): T {
    try {
      for (const file of this.#files) file.checkUnchanged();
      return made;
    } catch (failure) {
      discard(made);
      throw failure;
    }
  }

  /** What lies in it. Only messages depend on it, so a folder that cannot be listed lists nothing. */
  names(): string[] {
    try {
      return this.#fs.readdirSync(this.#root);
    } catch {
      return [];
    }
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
  /** When it was last written to, as of its opening. */
  readonly #written: number;
  #piece: Uint8Array | undefined;
  /** Reads that have not ended. The file's number may be another's once it is closed. */
  #reads = 0;
  #isClosed = false;

  private constructor(fs: Files, path: string, file: number, { size, mtimeMs }: Stats) {
    [this.#fs, this.#path, this.#file] = [fs, path, file];
    [this.size, this.#written] = [size, mtimeMs];
  }

  /** Opens a regular file; `undefined`: nothing is there. */
  static at(fs: Files, path: string): OpenFile | undefined {
    // What was there a moment ago may be a pipe by now, and opening one would wait for a writer, perhaps for ever.
    const { O_RDONLY, O_NONBLOCK = 0 } = fs.constants;
    let file: number;
    try {
      file = fs.openSync(path, O_RDONLY | O_NONBLOCK);
    } catch (failure) {
      if ((failure as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw refused(path, failure);
    }
    try {
      const found = told(path, () => fs.fstatSync(file));
      checkRegular(path, found);
      return new OpenFile(fs, path, file, found);
    } catch (failure) {
      fs.closeSync(file);
      throw failure;
    }
  }

  /**
   * Whether all that was read is of the file as it was when it was opened. Systems count that time in steps of some
   * milliseconds: a write in the same step as the one before it, to the same size, is not seen.
   */
  checkUnchanged(): void {
    const { size, mtimeMs } = told(this.#path, () => this.#fs.fstatSync(this.#file));
    if (size !== this.size || mtimeMs !== this.#written) {
      throw new CorruptModelError(
        `${this.#path}: it was written to while it was being read; open the model again once the file is complete`,
      );
    }
  }

  /** All of its bytes. */
  whole(): Uint8Array {
    const bytes = new Uint8Array(this.size);
    for (let at = 0; at < this.size;) at += this.#fill(bytes.subarray(at), at);
    return bytes;
  }

  readonly read = (at: number, most: number): Uint8Array => {
    this.#piece ??= new Uint8Array(Math.min(PIECE, this.size));
    return this.#piece.subarray(0, this.#fill(this.#piece.subarray(0, most), at));
  };

  /** Fills the beginning of a buffer with bytes from `at` on: how many there were, one at least. */
  #fill(into: Uint8Array, at: number): number {
    if (this.#isClosed) throw new IoError(`${this.#path}: it was closed`);
    const read = told(this.#path, () => this.#fs.readSync(this.#file, into, 0, into.length, at));
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

  /** Closes it, as soon as no read is pending. */
  close(): void {
    this.#isClosed = true;
    if (this.#reads === 0) this.#fs.closeSync(this.#file);
  }
}

/** Refuses what is no regular file: a pipe waits for a writer, perhaps for ever. */
function checkRegular(path: string, found: Stats): void {
  if (!found.isFile()) throw new CorruptModelError(`${path}: not a regular file`);
}

/** What a path leads to; `undefined`: nothing is there. */
function statOf(fs: Files, path: string): Stats | undefined {
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
