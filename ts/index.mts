// The classes exist once, in the CommonJS module, so that `instanceof` holds
// whichever way a program and its dependencies load the package.
export * from "./index.js";
