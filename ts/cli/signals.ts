/** Signals that end a process unless it listens to them. */
export const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Does some work that a signal gives up. When it has ended, however it did, `end` is called; then the
 * signal, if there was one, ends the process as it would have.
 */
export async function whileWatched<T>(
  work: (signal: AbortSignal) => Promise<T>,
  end: () => void,
): Promise<T> {
  const controller = new AbortController();
  let heard: NodeJS.Signals | undefined;
  const hear = (signal: NodeJS.Signals): void => {
    heard = signal;
    controller.abort();
  };
  for (const signal of SIGNALS) process.on(signal, hear);
  try {
    return await work(controller.signal);
  } finally {
    end();
    for (const signal of SIGNALS) process.off(signal, hear);
    if (heard) await ended(heard);
  }
}

/** Stops listening; the process runs on until the signal has come. */
async function ended(signal: NodeJS.Signals): Promise<never> {
  process.kill(process.pid, signal);
  return await new Promise(() => setInterval(() => {}, 1000));
}
