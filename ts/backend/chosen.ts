import { UnsupportedError } from "../errors.js";
import type { Backend, CompiledModel } from "./backend.js";

/** How an entry of the package comes by what computes. */
export interface Provider {
  /** What computes; throws where it is not there. */
  backend(): Backend;
  /** Sees to it that it is there. `wasm`: where the module comes from; absent: the provider knows. */
  load(wasm?: unknown): Promise<void>;
  /** Whether files at a path are brought to what computes, as from anywhere: it has no file system. */
  readonly bringsPaths?: boolean;
  /** `false`: it drives no GPU, which is known before it is there. */
  readonly drivesGpus: boolean;
  /** One with addresses of 64 bits, beside the one that is there. Absent: they all have them. */
  wide?(): Promise<Backend>;
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
export function drivesGpus(): boolean {
  return chosen().drivesGpus;
}

/** @internal */
export function loadBackend(wasm?: unknown): Promise<void> {
  return chosen().load(wasm);
}

/** @internal */
export function bringsPaths(): boolean {
  return chosen().bringsPaths === true;
}

/**
 * What computes models that the loaded module has no room for.
 *
 * @internal
 */
export async function wideBackend(): Promise<Backend> {
  const wide = await chosen().wide?.();
  if (wide === undefined) throw new UnsupportedError("there is no backend with more room");
  return wide;
}

/** The models that are elsewhere than in the loaded module. */
const elsewhere = new WeakMap<CompiledModel, Backend>();

/**
 * Says where a model is.
 *
 * @internal
 */
export function placed(model: CompiledModel, where: Backend): void {
  if (where !== backend()) elsewhere.set(model, where);
}

/**
 * What computes a model.
 *
 * @internal
 */
export function backendOf(model: CompiledModel): Backend {
  return elsewhere.get(model) ?? backend();
}

function chosen(): Provider {
  if (provider === undefined) throw new Error("a module of uform was imported past its entry");
  return provider;
}
