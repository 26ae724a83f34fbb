/**
 * Texts from any source to vectors, a batch at a time: a corpus of any size in bounded memory.
 *
 * A batch is computed, another one waits in the executor's queue, and a third is read. What is read is
 * delivered: an error of the source comes out behind the vectors of the texts before it.
 */
import { onAbort } from "./abort.js";
import { turn } from "./backend/turns.js";
import { unlessAborted } from "./deferred.js";
import { DeferredLimitError, InvalidArgumentError } from "./errors.js";
import { isRevoked, type Option, show } from "./options.js";

/** The most texts of a batch: as fast as any number of them, and their vectors are a few megabytes. */
const BATCH_TEXTS = 1024;

/** UTF-16 units from which on a batch is full. */
const BATCH_UNITS = 1 << 20;

/** Batches that are submitted and not delivered yet. */
const IN_FLIGHT = 2;

/** Milliseconds that an idle executor waits for more of a batch that has begun. */
const PATIENCE = 10;

/** Where texts come from. @internal */
export type TextSource = Iterable<string> | AsyncIterable<string>;

/** @internal */
export const textSource: Option<TextSource> = (value, refuse) => {
  const given = Object(value) as Partial<Iterable<string> & AsyncIterable<string>>;
  const isSource =
    typeof value === "object" &&
    !isRevoked(value) &&
    (typeof given[Symbol.asyncIterator] === "function" ||
      typeof given[Symbol.iterator] === "function");
  if (!isSource) refuse("an iterable or async iterable of strings");
  return value as TextSource;
};

/**
 * How a stream turns texts into results.
 *
 * @internal
 */
export interface Encoding<T> {
  readonly where: string;
  readonly source: TextSource;
  readonly signal: AbortSignal | undefined;
  /** Submits a batch. */
  readonly encode: (texts: string[], signal: AbortSignal) => Promise<T>;
  /** Releases a result that will not be delivered. */
  readonly discard: (result: T) => void;
}

/** Why calls are given up of a stream that its consumer closed. */
const closed = Symbol("closed");

/**
 * A generator of the results of batches, in order.
 *
 * @internal
 */
export function textStream<T>(encoding: () => Encoding<T>): AsyncGenerator<T, void, undefined> {
  const closing = new AbortController();
  const stream = results(encoding, closing);
  // By itself a generator does not hear of its end before what it waits for has come.
  const { return: end, throw: fail } = stream;
  return Object.assign(stream, {
    return(value: void) {
      closing.abort(closed);
      return end.call(stream, value);
    },
    throw(reason: unknown) {
      closing.abort(closed);
      return fail.call(stream, reason);
    },
  });
}

async function* results<T>(
  encoding: () => Encoding<T>,
  closing: AbortController,
): AsyncGenerator<T, void, undefined> {
  const { where, source, signal: given, encode, discard } = encoding();
  const { signal } = closing;
  given?.throwIfAborted();
  const unwatch = given && onAbort(given, () => closing.abort(given.reason));
  const calls: Promise<T>[] = [];
  let reader: Reader | undefined;
  try {
    reader = new Reader(where, source, signal);
    for (;;) {
      while (calls.length < IN_FLIGHT && (await reader.ready(calls[0]))) {
        const call = submit(encode, reader.take(), signal, calls.at(-1));
        // It may fail while another is waited for.
        call.catch(() => {});
        calls.push(call);
      }
      const [call] = calls;
      if (call === undefined) break;
      await unlessAborted(signal, call);
      const result = await call;
      calls.shift();
      yield result;
    }
    if (reader.failure !== undefined) throw reader.failure.reason;
  } catch (failure) {
    // What the source says to its end matters less.
    await reader?.close().catch(() => {});
    if (failure !== closed) throw failure;
  } finally {
    unwatch?.();
    closing.abort(closed);
    for (const call of calls) call.then(discard, () => {});
    await reader?.close();
  }
}

/** Submits a batch, again when the executor takes no more calls than the one before it. */
async function submit<T>(
  encode: Encoding<T>["encode"],
  texts: string[],
  signal: AbortSignal,
  before: Promise<T> | undefined,
): Promise<T> {
  try {
    return await encode(texts, signal);
  } catch (failure) {
    if (before === undefined || !(failure instanceof DeferredLimitError)) throw failure;
    await before;
    return encode(texts, signal);
  }
}

/** Reads a source a batch at a time. */
class Reader {
  readonly #where: string;
  readonly #iterator: Iterator<unknown> | AsyncIterator<unknown>;
  readonly #isAsync: boolean;
  readonly #signal: AbortSignal;
  #batch: string[] = [];
  /** UTF-16 units of the batch. */
  #units = 0;
  #position = 0;
  /** Whether no more is read. */
  #ended = false;
  /** Whether the source ended by itself, or was told to. */
  #finished = false;
  /** Whether a text is waited for. */
  #waits = false;
  /** Resolves when the batch is full, or is the last. */
  #filled: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  /** Why the source ended, if it failed. */
  failure: { readonly reason: unknown } | undefined;

  constructor(where: string, source: TextSource, signal: AbortSignal) {
    const given = source as Partial<Iterable<unknown> & AsyncIterable<unknown>>;
    const iterate = given[Symbol.asyncIterator];
    this.#where = where;
    this.#signal = signal;
    this.#isAsync = iterate !== undefined && iterate !== null;
    this.#iterator = iterate?.call(source) ?? (source as Iterable<unknown>)[Symbol.iterator]();
  }

  /**
   * Waits for a batch; whether there is one. Without a call before it, a batch does not wait to be full: the
   * executor is idle. With one, there is none when that call has ended first.
   */
  async ready(before: Promise<unknown> | undefined): Promise<boolean> {
    if (!this.#isAsync) {
      this.#fillNow();
    } else if (!this.#isFull) {
      this.#filled ??= this.#fill();
      if (before === undefined) {
        await this.#begun();
      } else {
        const settled = before.then(
          () => {},
          () => {},
        );
        await unlessAborted(this.#signal, Promise.race([this.#filled, settled]));
        if (!this.#isFull && !this.#ended) return false;
      }
    }
    return this.#batch.length > 0;
  }

  /** The batch. What is read from now on is another one's. */
  take(): string[] {
    const batch = this.#batch;
    [this.#batch, this.#units] = [[], 0];
    return batch;
  }

  /** Tells the source that no more is read. Again: nothing. */
  async close(): Promise<void> {
    this.#ended = true;
    if (this.#finished) return;
    this.#finished = true;
    const ended = this.#iterator.return?.();
    if (!this.#waits) await ended;
    // It may not end before it has the text that was waited for.
    else Promise.resolve(ended).catch(() => {});
  }

  get #isFull(): boolean {
    return this.#batch.length >= BATCH_TEXTS || this.#units >= BATCH_UNITS;
  }

  #fillNow(): void {
    const iterator = this.#iterator as Iterator<unknown>;
    try {
      while (!this.#isFull && !this.#ended) this.#add(iterator.next());
    } catch (reason) {
      this.#fail(reason);
    }
  }

  async #fill(): Promise<void> {
    const iterator = this.#iterator as AsyncIterator<unknown>;
    try {
      while (!this.#isFull && !this.#ended) {
        this.#waits = true;
        const next = await iterator.next();
        this.#waits = false;
        if (!this.#ended) this.#add(next);
        this.#wake?.();
      }
    } catch (reason) {
      this.#waits = false;
      this.#fail(reason);
      this.#wake?.();
    }
    this.#filled = undefined;
  }

  #add(next: IteratorResult<unknown>): void {
    if (Object(next) !== next) {
      throw new TypeError(`${this.#where}: the source's next() returned ${show(next)}`);
    }
    if (next.done) {
      this.#ended = this.#finished = true;
    } else if (typeof next.value === "string") {
      this.#batch.push(next.value);
      this.#units += next.value.length;
      this.#position++;
    } else {
      this.#ended = true;
      const [at, value] = [this.#position, show(next.value)];
      const message = `${this.#where}: expected a string for text ${at} of \`source\` but received ${value}`;
      this.failure = { reason: new InvalidArgumentError(message) };
    }
  }

  /** The source failed, and so it ended. */
  #fail(reason: unknown): void {
    if (this.#ended) return;
    this.#ended = this.#finished = true;
    this.failure = { reason };
  }

  /** Waits for the beginning of a batch, and a little for more of it. */
  async #begun(): Promise<void> {
    while (this.#batch.length === 0 && !this.#ended) {
      const woken = new Promise<void>((resolve) => (this.#wake = resolve));
      await unlessAborted(this.#signal, woken);
    }
    const start = performance.now();
    let seen = 0;
    while (this.#batch.length > seen && !this.#isFull && !this.#ended) {
      if (performance.now() - start > PATIENCE) break;
      seen = this.#batch.length;
      await unlessAborted(this.#signal, turn());
    }
  }
}
