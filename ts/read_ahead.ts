/**
 * A file that is read while the one who wants it computes.
 */

/** Bytes that are read at a time: more than are taken between two turns of the event loop, by which they are here. */
const AHEAD = 16 << 20;

/**
 * How a file is read.
 *
 * @internal
 */
export interface FileReader {
  readonly size: number;
  /** Waits for bytes from `at` on: one at least and at most so many, which stay until the next are read. */
  readonly read: (at: number, most: number) => Uint8Array;
  /** Reads `count` bytes from `at` on into a buffer, and says later how many came; none: it failed. */
  later(buffer: Uint8Array, count: number, at: number, done: (count: number) => void): void;
}

/** A stretch of the file. */
interface Window {
  readonly start: number;
  readonly buffer: Uint8Array;
  /** Bytes that are here. */
  count: number;
  coming: boolean;
}

/** @internal */
export class Ahead {
  readonly #file: FileReader;
  #current: Window | undefined;
  #next: Window | undefined;

  /** Begins at the file's start. */
  constructor(file: FileReader) {
    this.#file = file;
    this.#next = this.#fetch(0);
  }

  /** As the file's, without waiting where it may be so. */
  readonly read = (at: number, most: number): Uint8Array => {
    if (has(this.#next, at)) {
      const old = this.#current;
      this.#current = this.#next;
      this.#next = this.#fetch(this.#current.start + this.#current.count, old?.buffer);
    }
    if (has(this.#current, at)) {
      const { start, count, buffer } = this.#current;
      return buffer.subarray(at - start, Math.min(at - start + most, count));
    }
    const bytes = this.#file.read(at, most);
    this.#follow(at + bytes.length);
    return bytes;
  };

  /** Goes on from a reader's position beyond what is read. */
  #follow(at: number): void {
    const next = this.#next;
    if (next?.coming || (next && at < next.start + next.count)) return;
    this.#next = this.#fetch(at, next?.buffer);
  }

  #fetch(start: number, buffer?: Uint8Array): Window | undefined {
    const count = Math.min(AHEAD, this.#file.size - start);
    if (count <= 0) return undefined;
    const window = { start, buffer: buffer ?? new Uint8Array(count), count: 0, coming: true };
    this.#file.later(window.buffer, Math.min(count, window.buffer.length), start, (count) => {
      [window.count, window.coming] = [count, false];
    });
    return window;
  }
}

const has = (window: Window | undefined, at: number): window is Window =>
  window !== undefined && at >= window.start && at < window.start + window.count;
