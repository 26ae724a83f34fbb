import type { CompiledEmbeddings } from "./backend/backend.js";
import { refuse } from "./options.js";
import { ownView } from "./realm.js";

/** Vectors, one a row. Iterating gives the rows in order. */
export class Embeddings {
  /** How many vectors there are. */
  readonly rows: number;
  /** How long each vector is. */
  readonly dimensions: number;
  /** All vectors, one after the other: `rows * dimensions` numbers, every one finite. */
  readonly data: Float32Array;

  /** @internal */
  constructor(rows: number, dimensions: number, data: Float32Array) {
    this.rows = rows;
    this.dimensions = dimensions;
    this.data = ownView(Float32Array, data);
  }

  /**
   * One vector: a view into {@link data}, no copy.
   *
   * @param index - Which row, from 0.
   * @throws {@link InvalidArgumentError} when there is no such row.
   */
  row(index: number): Float32Array {
    if (!Number.isInteger(index) || index < 0 || index >= this.rows) {
      refuse("embeddings.row", "`index`", `a whole number below ${this.rows}`, index);
    }
    return this.data.subarray(index * this.dimensions, (index + 1) * this.dimensions);
  }

  /** The rows in order, each a view as {@link row} gives it. */
  *[Symbol.iterator](): Generator<Float32Array, void, undefined> {
    for (let index = 0; index < this.rows; index++) yield this.row(index);
  }

  /** The rows as plain arrays of numbers. */
  toArray(): number[][] {
    return Array.from(this, (row) => Array.from(row));
  }

  /** What `JSON.stringify` writes: the same as {@link toArray}. */
  toJSON(): number[][] {
    return this.toArray();
  }

  /**
   * One bit a number, 1 where the number is above 0: what a store of binary vectors takes, in the order of
   * `numpy.packbits(vectors > 0, axis=1)`.
   *
   * @returns `Math.ceil(dimensions / 8)` bytes a row. The first number is the highest bit of a row's first byte;
   * the bits that fill up the last byte are 0.
   */
  toBinary(): Uint8Array {
    const width = Math.ceil(this.dimensions / 8);
    const bytes = new Uint8Array(this.rows * width);
    for (let row = 0; row < this.rows; row++) {
      for (let column = 0; column < this.dimensions; column++) {
        if (this.data[row * this.dimensions + column]! > 0) {
          bytes[row * width + (column >> 3)]! |= 0x80 >> (column & 7);
        }
      }
    }
    return bytes;
  }

  /**
   * One byte a number, with a scale a row: each number is about `data[i] * scales[row]`.
   *
   * A row's scale is its largest magnitude divided by 127, as a 32-bit float. Each number is divided by it and
   * rounded to the nearest whole number, halves away from 0, so that -128 does not occur. A row of zeros has the
   * scale 0.
   */
  toInt8(): { data: Int8Array; scales: Float32Array } {
    const { rows, dimensions } = this;
    const data = new Int8Array(rows * dimensions);
    const scales = new Float32Array(rows);
    for (let row = 0; row < rows; row++) {
      const [start, end] = [row * dimensions, (row + 1) * dimensions];
      let largest = 0;
      for (let at = start; at < end; at++) largest = Math.max(largest, Math.abs(this.data[at]!));
      scales[row] = largest / 127;
      // As it was stored. Of numbers below about 1e-43 nothing is left.
      const scale = scales[row]!;
      if (scale === 0) continue;
      for (let at = start; at < end; at++) {
        const number = this.data[at]!;
        const rounded = Math.min(Math.round(Math.abs(number) / scale), 127);
        data[at] = number < 0 ? -rounded : rounded;
      }
    }
    return { data, scales };
  }
}

/** Vectors of texts, one row a text, in the order of the texts. */
export class TextEmbeddings extends Embeddings {
  /** How many tokens each text has, special ones counted, before any cut. */
  readonly tokens: Uint32Array;
  /** For each text 1 when it was cut at the model's token limit, else 0. */
  readonly truncated: Uint8Array;

  /** @internal */
  constructor([dimensions, data, tokens, truncated]: CompiledEmbeddings) {
    super(tokens.length, dimensions, data);
    this.tokens = ownView(Uint32Array, tokens);
    this.truncated = ownView(Uint8Array, truncated);
  }
}
