// Where the model is, and what `--install` makes of it for the other tools.

import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));
const models = join(here, "../../models");

export const model = join(models, "all-MiniLM-L6-v2");
/** The model as ONNX, in the layout transformers.js expects; beside it the reference vectors. */
export const onnx = join(models, "all-MiniLM-L6-v2-onnx");
/** Vectors of the corpus's first texts, by sentence-transformers in f32: one row of 384 little-endian floats a text. */
export const reference = join(onnx, "reference.f32");
export const REFERENCE_TEXTS = 512;
