// The shared tests on one WebAssembly module, in whichever Node.js runs this.
//
// Usage: node tests/wasm/shared.mjs BASE MODULE
import { readFile } from "node:fs/promises";
import * as uform from "uform/web";
import { suite } from "../shared/suite.mjs";

const [base, module] = process.argv.slice(2);
const file = new URL(import.meta.resolve(`uform/${module}.wasm`));
await uform.load({ wasm: await readFile(file) });
const executor = uform.Executor.forRam();
if (executor.describe().module !== module) throw new Error("another module was loaded");
executor.free();

let failed = 0;
for (const { name, run } of suite({ uform, base })) {
  const start = performance.now();
  try {
    await run();
    console.log(`ok ${name} (${Math.round(performance.now() - start)} ms)`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
process.exitCode = failed === 0 ? 0 : 1;
