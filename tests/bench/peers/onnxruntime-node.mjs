// onnxruntime-node: `onnxruntime-node.mjs MODEL THREADS FILE`.

import * as runtime from "onnxruntime-node";
import { serveSession } from "./onnx.mjs";

const [path, threads, file] = process.argv.slice(2);
const session = await runtime.InferenceSession.create(file, {
  intraOpNumThreads: Number(threads),
  graphOptimizationLevel: "all",
});
await serveSession("onnxruntime-node", runtime, path, session);
