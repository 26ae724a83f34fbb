// The tools under comparison. A peer is what --peers takes by its name; it has a
// tool, a row of the tables, for each way it computes. `ways` are those worth trying on a
// corpus of mixed lengths; `callers` says that a program can serve several at a time.

import { existsSync } from "node:fs";
import { join } from "node:path";
import * as places from "./places.mjs";

const node = (file, ...args) => [process.execPath, join(places.peers, file), ...args];
const padding = ["one", "batches", "sorted"];

/** uform at a precision. */
export function uform(precision, threads) {
  return {
    name: `uform ${precision}`,
    peer: "uform",
    ways: ["one", "batches", "whole"],
    callers: true,
    threads,
    command: node("uform.mjs", places.model, threads, precision),
  };
}

/** `needs` is what its installation leaves behind; `parts` are the steps of install.mjs that bring it. */
export const peers = {
  "onnxruntime-node": {
    parts: ["packages", "onnx"],
    needs: [places.packages, places.onnx],
    tools: [onnxruntime("fp32", "model.onnx"), onnxruntime("q8", "model_quantized.onnx")],
  },
  // On Node.js 20 the module without relaxed SIMD; run the bench by a newer one for the best.
  "uform-web": {
    parts: [],
    needs: [places.web],
    tools: ["f32", "i8"].map((precision) => ({
      name: `uform web ${precision}`,
      ways: ["one", "batches", "whole"],
      callers: false,
      threads: 1,
      command: () => node("uform-web.mjs", places.model, precision),
    })),
  },
  "onnxruntime-web": {
    parts: ["packages", "onnx"],
    needs: [places.packages, places.onnx],
    tools: [
      ["fp32", "model.onnx"],
      ["q8", "model_quantized.onnx"],
    ].map(([name, file]) => ({
      name: `onnxruntime-web ${name}`,
      ways: padding,
      callers: false,
      threads: 1,
      command: () => node("onnxruntime-web.mjs", places.model, join(places.onnx, "onnx", file)),
    })),
  },
  "transformers.js": {
    parts: ["packages", "onnx"],
    needs: [places.packages, places.onnx],
    tools: ["fp32", "q8"].map((dtype) => ({
      name: `transformers.js ${dtype}`,
      ways: padding,
      callers: true,
      command: (threads) => node("transformers.js.mjs", places.onnx, threads, dtype),
    })),
  },
  "sentence-transformers": {
    parts: ["python"],
    needs: [places.python],
    tools: ["f32", "bf16"].map((precision) => ({
      name: `sentence-transformers ${precision}`,
      // It sorts by length by itself.
      ways: ["one", "whole"],
      callers: false,
      command: (threads) => [
        places.python,
        join(places.peers, "sentence-transformers.py"),
        places.model,
        threads,
        precision,
      ],
    })),
  },
  candle: {
    parts: ["candle"],
    needs: [places.candle],
    tools: [
      {
        name: "candle MKL f32",
        ways: padding,
        callers: false,
        command: () => [places.candle, places.model],
        env: { LD_LIBRARY_PATH: join(places.mkl, "lib") },
      },
    ],
  },
  "llama.cpp": {
    parts: ["llama", "gguf"],
    needs: [join(places.llama, "node_modules"), places.gguf],
    tools: ["f16", "q8_0"].map((kind) => ({
      name: `llama.cpp ${kind}`,
      ways: ["one", "batches"],
      callers: true,
      command: (threads) => node("llama/llama.mjs", join(places.gguf, `${kind}.gguf`), threads),
    })),
  },
};

function onnxruntime(name, file) {
  return {
    name: `onnxruntime-node ${name}`,
    ways: padding,
    callers: true,
    command: (threads) =>
      node("onnxruntime-node.mjs", places.model, threads, join(places.onnx, "onnx", file)),
  };
}

export function isInstalled(peer) {
  return peers[peer].needs.every((path) => existsSync(path));
}

/** The tools of a peer, at a number of threads; those of WebAssembly have one. */
export function toolsOf(peer, threads) {
  return peers[peer].tools.map((tool) => ({
    threads,
    ...tool,
    peer,
    command: tool.command(threads),
  }));
}
