import type { CompiledModelDescription, WasmModule } from "./backend/backend.js";
import type { Residency } from "./executor.js";
import type { CpuClass } from "./hardware.js";
import type { Pooling, Precision } from "./model.js";

/** What a model is, and how it computes: {@link Model.describe}. */
export interface ModelDescription<R extends Residency = "ram"> {
  /** The kind of encoder, as `model_type` in `config.json` names it. */
  readonly architecture: "bert";
  /** Weights in the files that take part: without a pooler, for one. */
  readonly parameters: number;
  /** Length of a full vector. */
  readonly dimensions: number;
  /** The most tokens of a text that are embedded, special ones included. */
  readonly tokenLimit: number;
  /** How token vectors become one; `null`: the files do not say, and each call has to. */
  readonly pooling: Pooling | null;
  /** Whether vectors are scaled to length 1 unless a call says otherwise. */
  readonly normalize: boolean;
  /**
   * How the model's vectors are compared, by the word sentence-transformers has for it; `undefined`: the files do
   * not say.
   */
  readonly similarity: "cosine" | "dot" | "euclidean" | "manhattan" | undefined;
  /** The prompts in the model's files, by their names. */
  readonly prompts: Readonly<Record<string, string>>;
  /** The name of the prompt that is put before texts unless a call says otherwise. */
  readonly defaultPrompt: string | null;
  /** The numbers it computes in. */
  readonly precision: Exclude<Precision, "auto">;
  /** The class that picks the kernels of a model in host memory; `null`: it is on GPUs. */
  readonly cpuClass: { ram: CpuClass; vram: null }[R];
  /**
   * The class that picks the kernels of a model on GPUs; `null`: it is in host memory, or the devices'
   * own classes differ.
   */
  readonly gpuClass: { ram: null; vram: string | null }[R];
  /** The devices that have its weights, by their positions in {@link gpuDevices}. */
  readonly devices: readonly number[];
  /** The WebAssembly module that computes; `null`: the native addon does. */
  readonly module: WasmModule | null;
  /** Where the weights are. */
  readonly residency: R;
  /** Bytes of weights in memory, as they are packed for the class, on all devices together. */
  readonly bytes: number;
  /**
   * Which model this is: 32 hexadecimal digits, to keep beside stored vectors.
   *
   * It covers the settings files, the tokenizer, the weights that take part, and the precision. It
   * does not cover where the files lie, how weights are spread over files, what takes no part (a
   * README), or who computes: machine, class, threads. So vectors of models with equal
   * fingerprints differ in rounding at most. It tells models apart, and does not resist forgery.
   */
  readonly fingerprint: string;
  /** What was asked of the system while loading and refused, a sentence each: a memory policy. */
  readonly refused: readonly string[];
}

/** @internal */
export function describe<R extends Residency>(
  found: CompiledModelDescription,
  module: WasmModule | null,
): ModelDescription<R> {
  // The words are the engine's, and these types say which they are.
  return {
    architecture: found.architecture as ModelDescription["architecture"],
    parameters: found.parameters,
    dimensions: found.dimensions,
    tokenLimit: found.tokenLimit,
    pooling: (found.pooling ?? null) as ModelDescription["pooling"],
    normalize: found.normalize,
    similarity: found.similarity as ModelDescription["similarity"],
    prompts: Object.fromEntries(found.prompts.map(([name, text]) => [name, text])),
    defaultPrompt: found.defaultPrompt ?? null,
    precision: found.precision as ModelDescription["precision"],
    cpuClass: (found.cpuClass ?? null) as ModelDescription<R>["cpuClass"],
    gpuClass: (found.gpuClass ?? null) as ModelDescription<R>["gpuClass"],
    devices: found.devices ?? [],
    module,
    residency: (found.residency ?? "ram") as R,
    bytes: found.bytes,
    fingerprint: found.fingerprint,
    refused: found.refused,
  };
}
