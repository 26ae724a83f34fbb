import { loadBackend } from "./backend/chosen.js";
import { fromBackend } from "./errors.js";
import { type Option, readOptions } from "./options.js";

/** How {@link load} loads. */
export interface LoadOptions {
  /**
   * The WebAssembly module: its `URL`, a `Response` with it, its bytes as an `ArrayBuffer` or
   * `Uint8Array`, or the compiled `WebAssembly.Module`. (As a type any object, since not every program
   * has the types of WebAssembly.) Absent: the package's own file, the best of them for this engine.
   */
  wasm?: object | undefined;
}

/** What it may be is for the backend to say: classes differ from engine to engine. */
const anything: Option<unknown> = (value) => value;

/**
 * Loads what computes. In a browser, and wherever else WebAssembly computes, nothing but
 * `Model.open` works before, which does it by itself. Where the addon computes, it is loaded when it
 * is first needed, and this only does it earlier.
 *
 * A second call does nothing; one after a failure tries again.
 *
 * @param options - Where the module comes from.
 * @throws {@link InvalidArgumentError} for what is not a module of this package's version,
 * {@link UnsupportedError} where it cannot run, {@link IoError} when it cannot be fetched.
 */
export async function load(options: LoadOptions = {}): Promise<void> {
  const { wasm } = readOptions("load", options, { wasm: anything });
  try {
    await loadBackend(wasm);
  } catch (failure) {
    throw fromBackend(failure);
  }
}
