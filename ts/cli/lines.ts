import { createReadStream, fstatSync, statSync } from "node:fs";
import { addAbortSignal, type Readable } from "node:stream";
import { Decoder } from "./decoding.js";
import { Failure } from "./failures.js";

/** The most texts of a batch: their vectors, and the lines made of them, fit into a few megabytes. */
const BATCH_TEXTS = 1024;

/** The longest line, in UTF-16 units. A longer one is hardly text. */
const LONGEST_LINE = 64 << 20;

/** Where lines come from. */
export interface Input {
  /** What messages call it. */
  readonly name: string;
  /** How many bytes it has; `undefined` where it does not end at a known place. */
  readonly size: number | undefined;
  readonly open: () => Readable;
}

/** Some texts that follow each other in one input. */
export interface Batch {
  readonly texts: string[];
  /** Which input they are from. */
  readonly source: string;
  /** The number of the first one's line, from 1. */
  readonly line: number;
  /** How much of the input they take. */
  readonly bytes: number;
}

/**
 * The inputs of these names, `-` for standard input, which is also what no name means. That a file
 * is there is said before anything is computed.
 */
export function inputs(names: string[]): Input[] {
  return (names.length > 0 ? names : ["-"]).map((name) => {
    if (name === "-") {
      // Reading one ends at once, without an error.
      if (isFolder(process.stdin.fd)) throw new Failure("standard input is a folder");
      return { name: "standard input", size: undefined, open: () => process.stdin };
    }
    const found = statSync(name, { throwIfNoEntry: false });
    if (found === undefined) throw new Failure(`${name}: no such file`);
    if (found.isDirectory()) throw new Failure(`${name}: a folder; name the files in it`);
    const size = found.isFile() ? found.size : undefined;
    return { name, size, open: () => createReadStream(name) };
  });
}

function isFolder(file: number): boolean {
  try {
    return fstatSync(file).isDirectory();
  } catch {
    // It is closed, which is an input without lines.
    return false;
  }
}

/**
 * The lines of an input, as they come: a batch never waits for more to be written.
 *
 * Lines end with LF or CRLF; the last one may lack it. An empty line is a text.
 */
export async function* batches({ name, open }: Input, signal: AbortSignal): AsyncGenerator<Batch> {
  const decoder = new Decoder(name);
  const size = (texts: string[]) => texts.reduce((bytes, text) => bytes + decoder.size(text), 0);
  let line = 1;
  let held = "";
  for await (const chunk of addAbortSignal(signal, open())) {
    const pieces = decoder.decode(chunk as Buffer).split("\n");
    pieces[0] = held + pieces[0]!;
    held = pieces.pop()!;
    if (held.length > LONGEST_LINE) {
      throw new Failure(`${name}:${line + pieces.length}: a line of over 64 MB; is this text?`);
    }
    for (let start = 0; start < pieces.length; start += BATCH_TEXTS) {
      const texts = pieces.slice(start, start + BATCH_TEXTS).map(withoutReturn);
      yield { texts, source: name, line, bytes: size(texts) };
      line += texts.length;
    }
  }
  held += decoder.end();
  if (held !== "") yield { texts: [held], source: name, line, bytes: size([held]) };
}

function withoutReturn(text: string): string {
  return text.endsWith("\r") ? text.slice(0, -1) : text;
}
