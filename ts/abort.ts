/** What a signal tells when it is aborted: the calls it serves, through one listener. */
interface Watch {
  readonly listeners: Set<() => void>;
  readonly hear: () => void;
}

const watches = new WeakMap<AbortSignal, Watch>();

/**
 * Calls `listener` when the signal is aborted.
 *
 * However many calls a signal serves, it gets one listener of ours: engines report many as a leak.
 *
 * @returns What ends the watch.
 * @internal
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  const { listeners, hear } = watches.get(signal) ?? watch(signal);
  listeners.add(listener);
  return () => {
    if (!listeners.delete(listener) || listeners.size > 0) return;
    signal.removeEventListener("abort", hear);
    watches.delete(signal);
  };
}

function watch(signal: AbortSignal): Watch {
  const listeners = new Set<() => void>();
  const hear = () => {
    for (const listener of [...listeners]) listener();
  };
  signal.addEventListener("abort", hear);
  const made = { listeners, hear };
  watches.set(signal, made);
  return made;
}
