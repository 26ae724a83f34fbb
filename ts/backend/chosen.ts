import type { Backend } from "./backend.js";

/** How an entry of the package comes by what computes. */
export interface Provider {
  /** What computes; throws where it is not there. */
  backend(): Backend;
  /** Sees to it that it is there. `wasm`: where the module comes from; absent: the provider knows. */
  load(wasm?: unknown): Promise<void>;
}

let provider: Provider | undefined;

/**
 * Says what computes: each entry of the package does, once, before anything else runs.
 *
 * @internal
 */
export function provide(chosen: Provider): void {
  provider = chosen;
}

/** @internal */
export function backend(): Backend {
  return chosen().backend();
}

/** @internal */
export function loadBackend(wasm?: unknown): Promise<void> {
  return chosen().load(wasm);
}

function chosen(): Provider {
  if (provider === undefined) throw new Error("a module of uform was imported past its entry");
  return provider;
}
