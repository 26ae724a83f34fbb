// Where things are. What `--install` brings and makes lies in one folder that git does not see.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, "../..");
export const model = join(root, "models/all-MiniLM-L6-v2");

/** The package's WebAssembly, as built. */
export const web = join(root, "dist/web");

export const peers = join(here, "peers");
/** npm packages of onnxruntime-node and transformers.js, and of llama.cpp. */
export const packages = join(here, "node_modules");
export const llama = join(peers, "llama");

export const installed = join(root, "target/bench");
export const python = join(installed, "venv/bin/python");
/** The model as ONNX, in the layout transformers.js expects. */
export const onnx = join(installed, "all-MiniLM-L6-v2-onnx");
export const gguf = join(installed, "all-MiniLM-L6-v2-gguf");
export const mkl = join(installed, "mkl");
export const candle = join(installed, "candle/release/bench-candle");
/** Vectors of the corpus's first texts, by sentence-transformers in f32: one row of little-endian floats a text. */
export const reference = join(installed, "reference.f32");
export const REFERENCE_TEXTS = 512;
