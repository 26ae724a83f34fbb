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
