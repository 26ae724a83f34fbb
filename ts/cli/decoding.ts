import { Failure } from "./failures.js";

/** How a text begins that is not UTF-8, longest first; `undefined`: not read. */
const marks: readonly (readonly [number[], string | undefined])[] = [
  [[0xff, 0xfe, 0, 0], undefined],
  [[0, 0, 0xfe, 0xff], undefined],
  [[0xff, 0xfe], "utf-16le"],
  [[0xfe, 0xff], "utf-16be"],
];

/**
 * Bytes to text as they come: UTF-16 where the first ones are its byte order mark, as programs of
 * Windows write it, and UTF-8 otherwise. Marks are left out; what is ill-formed becomes U+FFFD.
 */
export class Decoder {
  readonly #name: string;
  #begun = Buffer.alloc(0);
  #decoder: TextDecoder | undefined;

  /** @param name - What messages call the input. */
  constructor(name: string) {
    this.#name = name;
  }

  /** The text of some more bytes. */
  decode(chunk: Buffer): string {
    if (this.#decoder) return this.#decoder.decode(chunk, { stream: true });
    this.#begun = Buffer.concat([this.#begun, chunk]);
    return this.#mayBeMark() ? "" : this.#begin().decode(this.#begun, { stream: true });
  }

  /** The text that is left at the end. */
  end(): string {
    return this.#decoder ? this.#decoder.decode() : this.#begin().decode(this.#begun);
  }

  /** How many bytes of the input a line takes, its end included. */
  size(line: string): number {
    const isWide = this.#decoder?.encoding.startsWith("utf-16");
    return isWide ? 2 * line.length + 2 : Buffer.byteLength(line) + 1;
  }

  /** Whether more bytes could make a mark of those there are. */
  #mayBeMark(): boolean {
    const { length } = this.#begun;
    return marks.some(
      ([bytes]) =>
        length < bytes.length &&
        bytes.slice(0, length).every((byte, at) => this.#begun[at] === byte),
    );
  }

  #begin(): TextDecoder {
    const mark = marks.find(([bytes]) => bytes.every((byte, at) => this.#begun[at] === byte));
    const encoding = mark ? mark[1] : "utf-8";
    if (encoding === undefined) {
      throw new Failure(`${this.#name}: begins with the mark of UTF-32; save it as UTF-8`);
    }
    return (this.#decoder = new TextDecoder(encoding));
  }
}
