/**
 * Local text embeddings in the browser, and wherever else there is WebAssembly: the same names as
 * in Node.js, computed on the calling thread. Await {@link load} or {@link Model.open} first.
 *
 * @packageDocumentation
 */
/// <reference lib="esnext.disposable" preserve="true" />
import { provide } from "./backend/chosen.js";
import { wasm } from "./backend/wasm.js";

provide(wasm);

export * from "./surface.js";
