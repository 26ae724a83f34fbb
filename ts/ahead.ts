/**
 * A file that is read while the one who wants it computes.
 */

/** Bytes that are read at a time: more than are taken between two turns of the event loop, by which they are here. */
const AHEAD = 16 << 20;

/** The most bytes that are read while somebody waits: what a core's own cache holds. */
const PIECE = 128 << 10;

/**
 * How a file is read: `count` bytes from `at` on into the beginning of a buffer.
 *
 * @internal
 */
export interface FileReader {
  readonly size: number;
  /** Waits for them. At least one byte comes. */
  now(buffer: Uint8Array, count: number, at: number): number;
  /** Says later how many came; none: it failed. */
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
  readonly #piece = new Uint8Array(PIECE);
  #current: Window | undefined;
  #next: Window | undefined;

  /** Begins at the file's start. */
  constructor(file: FileReader) {
    this.#file = file;
    this.#next = this.#fetch(0);
  }

  /** Bytes from `at` on, one at least and at most so many, which stay until the next are asked for. */
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
    const count = this.#file.now(this.#piece, Math.min(most, PIECE), at);
    this.#follow(at + count);
    return this.#piece.subarray(0, count);
  };

  /** Goes on from where somebody is, who is past what is read. */
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
