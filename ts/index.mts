import { createRequire } from "node:module";
import { loadWith } from "./index.js";

// A bundle that became CommonJS has no URL, and needs none.
if (import.meta.url) loadWith(createRequire(import.meta.url));

// The classes exist once, in the CommonJS module, so that `instanceof` holds
// whichever way a program and its dependencies load the package.
export * from "./index.js";
