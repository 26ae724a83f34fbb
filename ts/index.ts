/**
 * Local text embeddings, on threads placed by you: the entry for Node.js, where a native addon
 * computes. `web.ts` is the other one.
 *
 * @packageDocumentation
 */
/// <reference lib="esnext.disposable" preserve="true" />
import { provide } from "./backend/chosen.js";
import { native } from "./backend/native.js";

provide(native);

export * from "./surface.js";
