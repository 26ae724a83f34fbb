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
   * `done === total` before the promise resolves. If it throws, the call is given up
   * and the promise rejects with what was thrown.
   */
  onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Milliseconds between two looks at a call's progress. */
const PROGRESS_PERIOD = 100;

type Outcome<T> = { failure: unknown } | { value: T };

/**
 * The outcome of a deferred call, as a promise.
 *
 * @param submit - Hands the call to the backend, which settles it.
 * @param discard - Releases a value that arrives after the promise was rejected.
 * @internal
 */
export async function deferred<T>(
  backend: Backend,
  options: DeferredOptions,
  submit: (call: CompiledCall, settle: Settle<T>) => void,
  discard: (value: T) => void = () => {},
): Promise<T> {
  const outcome = await new Promise<Outcome<T>>((resolve, reject) => {
    const { signal, onProgress } = options;
    if (signal?.aborted) return reject(signal.reason);
    const call = backend.callCreate();
    let watch: ReturnType<typeof setInterval> | undefined;
    let reported = 0;
    let ended = false;

    const end = () => {
      ended = true;
      clearInterval(watch);
      signal?.removeEventListener("abort", abort);
    };
    const giveUp = (reason: unknown) => {
      end();
      backend.callCancel(call);
      reject(reason);
    };
    const abort = () => giveUp(signal!.reason);
    const report = (done: number, total: number) => {
      try {
        onProgress?.(done, total);
      } catch (thrown) {
        giveUp(thrown);
      }
    };
    const look = () => {
      const [done, total] = backend.callProgress(call);
      // The end is reported once, when the outcome is here.
      if (done > reported && done < total) report((reported = done), total);
    };
    const settle: Settle<T> = (failure, value) => {
      const failed = failure !== undefined;
      if (!failed && !ended) {
        const [, total] = backend.callProgress(call);
        report(total, total);
      }
      // By a signal, or by the listener just now.
      const givenUp = ended;
      end();
      if (!givenUp) resolve(failed ? { failure } : { value });
      else if (!failed) discard(value);
    };

    translated(() => submit(call, settle));
    signal?.addEventListener("abort", abort, { once: true });
    if (onProgress) {
      watch = setInterval(look, PROGRESS_PERIOD);
      // The outstanding call keeps the process alive; the look at it does not.
      (watch as { unref?: () => void }).unref?.();
    }
  });
  // Made here, where the stack still leads to the caller.
  if ("failure" in outcome) throw fromBackend(outcome.failure);
  return outcome.value;
}
