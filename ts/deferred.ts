import { onAbort } from "./abort.js";
import type { Backend, CompiledCall, Settle } from "./backend/backend.js";
import { fromBackend, translated } from "./errors.js";

/** How a deferred call is given up and watched. */
export interface DeferredOptions {
  /**
   * Gives up on the call when aborted: the promise rejects with the signal's reason at once; a call
   * still queued never starts, a running one stops between two layers. With a signal already
   * aborted, nothing is submitted.
   */
  signal?: AbortSignal | undefined;
  /**
   * Called on the JS thread about ten times a second while the call runs, and a last time with
   * `done === total` before the promise resolves. If it throws, or returns a promise that
   * rejects, the call is given up and the promise rejects with what was thrown.
   */
  onProgress?: ((done: number, total: number) => void | Promise<void>) | undefined;
}

/** Milliseconds between two looks at a call's progress. */
const PROGRESS_PERIOD = 100;

type Outcome<T> = { failure: unknown } | { value: T };

/**
 * Deferred calls that the backend has yet to end, those already given up included.
 *
 * @internal
 */
export class Outstanding {
  #calls = 0;
  #waiting: (() => void)[] = [];

  begin(): void {
    this.#calls++;
  }

  end(): void {
    if (--this.#calls > 0) return;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Resolves when there are none. */
  async none(): Promise<void> {
    while (this.#calls > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

/**
 * What a deferred call needs besides its options.
 *
 * @internal
 */
export interface Submission<T> {
  /** Hands the call to the backend, which settles it once. */
  submit: (call: CompiledCall | undefined, settle: Settle<T>) => void;
  /** Releases a value that is not wanted any more. */
  discard?: (value: T) => void;
  /** Where the call is counted until the backend has ended it. */
  outstanding?: Outstanding;
}

/**
 * The outcome of a deferred call, as a promise.
 *
 * @internal
 */
export async function deferred<T>(
  backend: Backend,
  { signal, onProgress }: DeferredOptions,
  { submit, discard, outstanding }: Submission<T>,
): Promise<T> {
  if (signal?.aborted) throw signal.reason;
  const call = signal || onProgress ? translated(() => backend.callCreate()) : undefined;
  const outcome = await new Promise<Outcome<T>>((resolve, reject) => {
    let ended = false;
    let unwatch: (() => void) | undefined;
    let looking: ReturnType<typeof setInterval> | undefined;
    const end = () => {
      ended = true;
      unwatch?.();
      clearInterval(looking);
    };
    const giveUp = (reason: unknown) => {
      if (ended) return;
      end();
      if (call) backend.callCancel(call);
      reject(reason);
    };
    const settle: Settle<T> = (failure, value) => {
      outstanding?.end();
      if (ended) {
        if (failure === undefined) discard?.(value);
        return;
      }
      end();
      resolve(failure === undefined ? { value } : { failure });
    };
    translated(() => submit(call, settle));
    outstanding?.begin();
    unwatch = signal && onAbort(signal, () => giveUp(signal.reason));
    looking = onProgress && call && look(backend, call, onProgress, giveUp);
  });
  // Made here, where the stack still leads to the caller.
  if ("failure" in outcome) throw fromBackend(outcome.failure);
  if (onProgress && call) {
    // Here rather than in `settle`: this is the caller's asynchronous context.
    try {
      const [, total] = backend.callProgress(call);
      await unlessAborted(signal, onProgress(total, total));
    } catch (thrown) {
      discard?.(outcome.value);
      throw thrown;
    }
  }
  return outcome.value;
}

/**
 * Waits for what a listener returned, or for anything else, or rejects with the signal's reason as soon as it is
 * aborted.
 *
 * @internal
 */
export async function unlessAborted(signal: AbortSignal | undefined, told: unknown): Promise<void> {
  let unwatch: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    if (signal?.aborted) reject(signal.reason);
    unwatch = signal && onAbort(signal, () => reject(signal.reason));
  });
  try {
    await Promise.race([told, aborted]);
  } finally {
    unwatch?.();
  }
  signal?.throwIfAborted();
}

/** Reports a call's progress from time to time, all but its end. */
function look(
  backend: Backend,
  call: CompiledCall,
  onProgress: NonNullable<DeferredOptions["onProgress"]>,
  giveUp: (reason: unknown) => void,
): ReturnType<typeof setInterval> {
  let reported = 0;
  const timer = setInterval(async () => {
    const [done, total] = backend.callProgress(call);
    if (done <= reported || done >= total) return;
    reported = done;
    try {
      await onProgress(done, total);
    } catch (thrown) {
      giveUp(thrown);
    }
  }, PROGRESS_PERIOD);
  // The outstanding call keeps the process alive; the look at it does not.
  (timer as { unref?: () => void }).unref?.();
  return timer;
}
