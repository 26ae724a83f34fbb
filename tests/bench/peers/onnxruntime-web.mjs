// onnxruntime-web, its WebAssembly on one thread: `onnxruntime-web.mjs MODEL FILE`. It is given the bytes, with
// which it starts sooner than with a path.

import { readFileSync } from "node:fs";
import * as runtime from "onnxruntime-web";
import { serveSession } from "./onnx.mjs";

const [path, file] = process.argv.slice(2);
runtime.env.wasm.numThreads = 1;
const session = await runtime.InferenceSession.create(readFileSync(file), {
  executionProviders: ["wasm"],
  graphOptimizationLevel: "all",
});
await serveSession("onnxruntime-web", runtime, path, session);
