import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { UsageError } from "./failures.js";

const HOW_TO_GET_ONE =
  "To get one: `hf download sentence-transformers/all-MiniLM-L6-v2 --local-dir " +
  "models/all-MiniLM-L6-v2`, with the command line of huggingface_hub.";

/**
 * The model to use: the one that was named, else that of the environment, else the only one in
 * `models`.
 */
export function modelPath(named: string | undefined): string {
  const chosen = named ?? (process.env.UFORM_MODEL || undefined);
  if (chosen !== undefined) return chosen;
  const [only, ...others] = models();
  if (only === undefined) {
    throw new UsageError(
      "no model: name its folder with --model or in the environment variable UFORM_MODEL, or put " +
        `one into ./models. ${HOW_TO_GET_ONE}`,
    );
  }
  if (others.length > 0) {
    const all = [only, ...others].join(", ");
    throw new UsageError(`several models in ./models: name one with --model: ${all}`);
  }
  return only;
}

/** The models in the current folder's `models`. */
function models(): string[] {
  const folder = "models";
  if (!existsSync(folder)) return [];
  const paths = readdirSync(folder).map((name) => join(folder, name));
  return paths.filter((path) => existsSync(join(path, "config.json"))).sort();
}
