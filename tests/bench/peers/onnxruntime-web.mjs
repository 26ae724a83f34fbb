// onnxruntime-web, its WebAssembly on one thread: `onnxruntime-web.mjs MODEL FILE`.

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
