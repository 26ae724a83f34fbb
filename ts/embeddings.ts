import type { CompiledEmbeddings } from "./backend/backend.js";
import { refuse } from "./options.js";
import { ownView } from "./realm.js";

/** Vectors of texts, one row a text, in the order of the texts. */
export class Embeddings {
  /** How many texts there were. */
  readonly rows: number;
  /** How long each vector is. */
  readonly dimensions: number;
  /** All vectors, one after the other: `rows * dimensions` numbers, every one finite. */
  readonly data: Float32Array;
  /** How many tokens each text has, special ones counted, before any cut. */
  readonly tokens: Uint32Array;
  /** For each text 1 when it was cut at the model's token limit, else 0. */
  readonly truncated: Uint8Array;

  /** @internal */
  constructor([dimensions, data, tokens, truncated]: CompiledEmbeddings) {
    this.rows = tokens.length;
    this.dimensions = dimensions;
    this.data = ownView(Float32Array, data);
    this.tokens = ownView(Uint32Array, tokens);
    this.truncated = ownView(Uint8Array, truncated);
  }

  /**
   * The vector of one text: a view into {@link data}, no copy.
   *
   * @param index - Which text, from 0.
   * @throws {@link InvalidArgumentError} when there is no such row.
   */
  row(index: number): Float32Array {
    if (!Number.isInteger(index) || index < 0 || index >= this.rows) {
      refuse("embeddings.row", "`index`", `a whole number below ${this.rows}`, index);
    }
    return this.data.subarray(index * this.dimensions, (index + 1) * this.dimensions);
  }
}
