// For bundlers, which cannot join machine code to other code: the addon stays in node_modules, and is looked for
// there when the program runs. A bundle that is CommonJS has a `__filename`, one of ES modules a URL.
import { createRequire } from "node:module";

const here = typeof __filename === "string" ? __filename : import.meta.url;
export default createRequire(here)("@uform/linux-x64-gnu");
