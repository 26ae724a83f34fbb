import type { WasmModule } from "./backend/backend.js";
import { loadBackend } from "./backend/chosen.js";
import { fromBackend } from "./errors.js";
import { isBuffer, isModule, isResponse, isUrl, type Option, readOptions } from "./options.js";

/** How {@link load} loads. */
export interface LoadOptions {
  /**
   * The WebAssembly module: the name of one of the package's own files, such as `"wasm64"`, which has
   * room for models of more than 3 GiB; or its `URL`, a `Response` with it, its bytes as an
   * `ArrayBuffer` or `Uint8Array`, or the compiled `WebAssembly.Module`. (As a type any object, since not
   * every program has the types of WebAssembly.) Absent: the package's own file, the fastest of
   * them for this engine.
   */
  wasm?: WasmModule | object | undefined;
}

const names: readonly unknown[] = ["wasm32", "wasm32-relaxed", "wasm64"] satisfies WasmModule[];

const moduleOption: Option<WasmModule | object> = (value, refuse) => {
  const isOne =
    names.includes(value) ||
    isUrl(value) ||
    isBuffer(value) ||
    ArrayBuffer.isView(value) ||
    isResponse(value) ||
    isModule(value);
  if (!isOne) {
    refuse(
      '"wasm32", "wasm32-relaxed", "wasm64", a URL, a Response, an ArrayBuffer, a Uint8Array or a ' +
        "WebAssembly.Module",
    );
  }
  return value as object;
};

/**
 * Loads what computes. In a browser, and wherever else WebAssembly computes, nothing but
 * `Model.open` works before, which does it by itself. Where the addon computes, it is loaded when it
 * is first needed, and this only does it earlier.
 *
 * A second call does nothing, and may not ask for another module; one after a failure tries again.
 *
 * @param options - Where the module comes from.
 * @throws {@link InvalidArgumentError} for what is not a module of this package's version,
 * {@link UnsupportedError} where it cannot run, {@link IoError} when it cannot be fetched.
 */
export async function load(options: LoadOptions = {}): Promise<void> {
  const { wasm } = readOptions("load", options, { wasm: moduleOption });
  try {
    await loadBackend(wasm);
  } catch (failure) {
    throw fromBackend(failure);
  }
}
