/**
 * Work that is done as the event loop turns: a slice, then everybody else's turn.
 */

/** Milliseconds of work after which others have their turn. A step of work is not cut. */
const SLICE = 8;

/**
 * Calls `step` until it returns false, in slices.
 *
 * @internal
 */
export class Turns {
  readonly #step: () => boolean;
  #scheduled = false;

  constructor(step: () => boolean) {
    this.#step = step;
  }

  /** There is work, or may be. */
  wake(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    later(() => {
      this.#scheduled = false;
      const start = performance.now();
      while (this.#step()) {
        if (performance.now() - start < SLICE) continue;
        this.wake();
        return;
      }
    });
  }
}

/**
 * Lets the event loop turn between steps of work that is written as a loop, by however many at once: all
 * of them together work a slice between two turns.
 *
 * @internal
 */
export class Pace {
  #start = performance.now();
  #turn: Promise<void> | undefined;

  /** Resolves when there may be another step. */
  async step(): Promise<void> {
    while (performance.now() - this.#start >= SLICE) {
      this.#turn ??= new Promise((resolve) =>
        later(() => {
          [this.#start, this.#turn] = [performance.now(), undefined];
          resolve();
        }),
      );
      await this.#turn;
    }
  }
}

/** Resolves in another turn of the event loop, soon. @internal */
export const turn = () => new Promise<void>((resolve) => later(resolve));

/** Runs `task` in a turn of the event loop, soon: browsers delay timers by milliseconds. */
const later: (task: () => void) => void =
  typeof setImmediate === "function"
    ? (task) => void setImmediate(task)
    : typeof MessageChannel === "function"
      ? byMessage()
      : (task) => void setTimeout(task, 0);

function byMessage(): (task: () => void) => void {
  const tasks: (() => void)[] = [];
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => tasks.shift()?.();
  return (task) => {
    tasks.push(task);
    port2.postMessage(undefined);
  };
}
