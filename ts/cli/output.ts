import { once } from "node:events";
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import type { Embeddings } from "../embeddings.js";
import { Failure, UsageError } from "./failures.js";
import { SIGNALS } from "./signals.js";

/** Where vectors go. */
export interface Output {
  /** Takes the vectors of some texts; resolves when there is room for more. */
  write(texts: string[], found: Embeddings): Promise<void>;
  /** All was written: from now on the output is there. */
  finish(): void;
  /** Leaves no trace. */
  discard(): void;
}

/** Opens the output for vectors of so many dimensions; without a path, standard output. */
export function openOutput(path: string | undefined, dimensions: number): Output {
  if (path === undefined) return new JsonLines(standardOutput);
  const file = new NewFile(path);
  return format(path) === ".npy" ? new Npy(file, dimensions) : new JsonLines(file);
}

/** The format that a path's extension stands for. */
export function format(path: string): ".jsonl" | ".npy" {
  const extension = extname(path).toLowerCase();
  if (extension === ".npy") return ".npy";
  if (extension === ".jsonl" || extension === ".ndjson") return ".jsonl";
  throw new UsageError(
    `--out takes a file that ends in .jsonl, .ndjson or .npy, and ${JSON.stringify(path)} was ` +
      "given; without it, JSON lines go to standard output",
  );
}

/** What takes bytes in their order. */
interface Sink {
  write(data: string | Uint8Array): Promise<void>;
  finish(): void;
  discard(): void;
}

const standardOutput: Sink = {
  async write(data) {
    if (!process.stdout.write(data)) await once(process.stdout, "drain");
  },
  finish() {},
  discard() {},
};

/** One JSON object a text, `{"text": "…", "embedding": […]}`. */
class JsonLines implements Output {
  constructor(private readonly sink: Sink) {}

  async write(texts: string[], found: Embeddings): Promise<void> {
    const lines = texts.map((text, index) => {
      // Nine digits are a 32-bit float, exactly; JSON would print the 64-bit one it is equal to.
      const numbers = Array.from(found.row(index), (value) => value.toPrecision(9));
      return `{"text":${JSON.stringify(text)},"embedding":[${numbers.join(",")}]}\n`;
    });
    await this.sink.write(lines.join(""));
  }

  finish(): void {
    this.sink.finish();
  }

  discard(): void {
    this.sink.discard();
  }
}

/**
 * NumPy's array file, version 1.0: a matrix of little-endian 32-bit floats, a row a text.
 *
 * The format is that of `numpy.lib.format`: a magic word, a version, the length of the header, and
 * the header as a Python dictionary, padded so that the numbers begin at a multiple of 64.
 */
class Npy implements Output {
  #rows = 0;

  constructor(
    private readonly file: NewFile,
    private readonly dimensions: number,
  ) {}

  async write(_: string[], { rows, data }: Embeddings): Promise<void> {
    // How many rows there will be is not known yet; the header has room for any number.
    if (this.#rows === 0) await this.file.write(npyHeader(0, this.dimensions));
    await this.file.write(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    this.#rows += rows;
  }

  finish(): void {
    this.file.overwrite(npyHeader(this.#rows, this.dimensions));
    this.file.finish();
  }

  discard(): void {
    this.file.discard();
  }
}

/** The first 128 bytes of an array file. */
function npyHeader(rows: number, dimensions: number): Buffer {
  const header = Buffer.alloc(128, " ");
  header.write("\x93NUMPY\x01\x00", "latin1");
  header.writeUInt16LE(header.length - 10, 8);
  header.write(`{'descr': '<f4', 'fortran_order': False, 'shape': (${rows}, ${dimensions}), }`, 10);
  header.write("\n", header.length - 1);
  return header;
}

/**
 * A file that is there whole or not at all: written beside its place under another name, and
 * renamed when it is finished. A signal leaves nothing behind.
 */
class NewFile implements Sink {
  readonly #given: string;
  readonly #path: string;
  readonly #unfinished: string;
  readonly #file: number;

  /**
   * @param given - Where it will be. A link is followed, and what is there replaced.
   */
  constructor(given: string) {
    this.#given = given;
    const replaced = statSync(given, { throwIfNoEntry: false });
    this.#path = replaced ? realpathSync(given) : given;
    if (replaced && !replaced.isFile()) {
      throw new Failure(`${given}: not a regular file, so it cannot be replaced by one`);
    }
    const name = `.${basename(this.#path)}.${process.pid}.part`;
    this.#unfinished = join(dirname(this.#path), name);
    // Before there is a file that a signal could leave behind.
    for (const signal of SIGNALS) process.once(signal, this.#end);
    try {
      this.#file = openSync(this.#unfinished, "wx", 0o600);
      // Who could read what is replaced can read this.
      fchmodSync(this.#file, replaced ? replaced.mode & 0o777 : 0o666 & ~process.umask());
    } catch (error) {
      this.#forgetSignals();
      throw new Failure(`cannot write ${given}: ${(error as Error).message}`);
    }
  }

  // Waiting for a disk keeps no lane from computing, so these need not be asynchronous.
  async write(data: string | Uint8Array): Promise<void> {
    try {
      writeFileSync(this.#file, data);
    } catch (error) {
      throw new Failure(`cannot write ${this.#given}: ${(error as Error).message}`);
    }
  }

  /** Replaces the beginning of what was written. */
  overwrite(data: Uint8Array): void {
    writeSync(this.#file, data, 0, data.length, 0);
  }

  finish(): void {
    fsyncSync(this.#file);
    closeSync(this.#file);
    renameSync(this.#unfinished, this.#path);
    this.#forgetSignals();
  }

  discard(): void {
    this.#forgetSignals();
    rmSync(this.#unfinished, { force: true });
  }

  readonly #end = (signal: NodeJS.Signals): void => {
    this.discard();
    // No listener is left, so it ends the process as it would have.
    process.kill(process.pid, signal);
  };

  #forgetSignals(): void {
    for (const signal of SIGNALS) process.off(signal, this.#end);
  }
}
