// A newer Node.js than the oldest one of the package: WebAssembly's relaxed SIMD came
// after it. The set-up of the tests installs it, and says where.
import { existsSync } from "node:fs";

export const newerNode = process.env.UFORM_NEWER_NODE ?? "";

/** Why tests that need it are skipped, if they are. */
export const withoutNewerNode =
  !existsSync(newerNode) && "SKIPPED: no newer Node.js in UFORM_NEWER_NODE, where npm test has it";
