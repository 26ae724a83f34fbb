import { OutOfMemoryError } from "../errors.js";

/** Texts as UTF-8, end to end. */
export interface JoinedTexts {
  readonly utf8: Uint8Array;
  /** Where each text ends. */
  readonly ends: Uint32Array;
}

const encoder = new TextEncoder();

/**
 * Lays texts end to end. Unpaired surrogates become U+FFFD.
 *
 * @internal
 */
export function joinTexts(texts: readonly string[]): JoinedTexts {
  const ends = new Uint32Array(texts.length);
  // No UTF-16 unit takes more than three bytes.
  const most = 3 * texts.reduce((sum, text) => sum + text.length, 0);
  const utf8 = room(most);
  let end = 0;
  for (const [index, text] of texts.entries()) {
    end += encoder.encodeInto(text, utf8.subarray(end)).written;
    ends[index] = end;
  }
  return { utf8: utf8.subarray(0, end), ends };
}

/** Code units that are encoded at once, about: less than a millisecond's. */
const PIECE = 1 << 16;

/** What a text takes besides, as that of so many units. */
const BESIDES = 16;

/**
 * Whether texts are too long to be encoded at once.
 *
 * @internal
 */
export function areLong(texts: readonly string[]): boolean {
  let units = 0;
  return texts.some((text) => (units += text.length + BESIDES) > PIECE);
}

/**
 * Texts a piece at a time, `undefined` when none is left: laid end to end as UTF-8, and where each ends. What is
 * behind the last end goes on with the next piece. Unpaired surrogates become U+FFFD.
 *
 * @internal
 */
export function lendTexts(texts: readonly string[]): () => [Uint8Array, Uint32Array] | undefined {
  // No text takes less memory than its units.
  const least = texts.reduce((sum, text) => sum + text.length, 0);
  if (least >= 2 ** 32) throw refused(least);
  const utf8 = new Uint8Array(3 * PIECE);
  let [index, at] = [0, 0];
  return () => {
    if (index === texts.length) return undefined;
    const ends: number[] = [];
    let [left, end] = [PIECE, 0];
    while (index < texts.length && left > 0) {
      const text = texts[index]!;
      let to = Math.min(text.length, at + left);
      if (to < text.length && isPair(text, to)) to--;
      end += encoder.encodeInto(text.slice(at, to), utf8.subarray(end)).written;
      left -= to - at + BESIDES;
      at = to;
      if (to < text.length) break;
      ends.push(end);
      [index, at] = [index + 1, 0];
    }
    return [utf8.subarray(0, end), Uint32Array.from(ends)];
  };
}

/** Whether a character begins just before a place in a text, and ends behind it. */
const isPair = (text: string, at: number) => text.codePointAt(at - 1)! > 0xffff;

function room(bytes: number): Uint8Array {
  // The ends are numbers of 32 bits.
  if (bytes < 2 ** 32) {
    try {
      return new Uint8Array(bytes);
    } catch (failure) {
      throw refused(bytes, failure);
    }
  }
  throw refused(bytes);
}

function refused(bytes: number, cause?: unknown): OutOfMemoryError {
  const message = `the texts of a call may take ${bytes} bytes, which cannot be had: encode less at a time`;
  return new OutOfMemoryError(message, { cause });
}
