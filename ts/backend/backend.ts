/**
 * What the TypeScript surface needs of whatever computes: a flat table of functions over opaque
 * handles. The native addon has exactly this shape. Arguments were checked by the
 * caller as far as JavaScript's types go; what they mean, the engine behind the backend decides.
 *
 * A function reports failure by throwing, a deferred one also through `settle`, with an error whose
 * `code` is one of the engine's. A deferred function never calls `settle` before it has returned.
 */
export interface Backend {
  /** What this binary was built with: comma-separated words. */
  capabilitiesCompiled(): string;
  /** What this machine offers now: comma-separated words. */
  capabilitiesAvailable(): string;

  /** Spawns host threads for models that reside in host memory. */
  executorForRam(config: RamConfig): CompiledExecutor;
  /** Borrows the ForkUnion pool at an address of 64 bits. */
  executorOnPool(pool: bigint, config: PoolConfig): CompiledExecutor;
  /** Computes immediate calls on the caller, deferred ones beside it. */
  executorInline(): CompiledExecutor;
  /** Waits for every call submitted so far, then idles in the mood. */
  executorDrain(executor: CompiledExecutor, mood: number): void;
  /** The same without waiting. */
  executorDrainDeferred(executor: CompiledExecutor, mood: number, settle: Settle<void>): void;
  /** Runs every deferred call and releases everything. Again: nothing. */
  executorFree(executor: CompiledExecutor): void;

  /** Spawns a ForkUnion pool. */
  poolSpawn(config: ThreadPoolConfig): CompiledPool;
  /** Where the pool is. */
  poolAddress(pool: CompiledPool): bigint;
  /** How many threads it has. */
  poolThreads(pool: CompiledPool): number;
  /** Ends its threads, unless an executor borrows it. Again: nothing. */
  poolFree(pool: CompiledPool): void;

  /** Loads a model into host memory. */
  modelLoadRam(path: string, options: LoadOptions, executor: CompiledExecutor): CompiledModel;
  /** The same without waiting. */
  modelOpenRam(
    path: string,
    options: LoadOptions,
    executor: CompiledExecutor,
    call: CompiledCall,
    settle: Settle<CompiledModel>,
  ): void;
  /** Vectors of the texts. */
  modelEncodeText(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions,
  ): CompiledEmbeddings;
  /** The same without waiting. The texts are copied before it returns. */
  modelEncodeTextDeferred(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions,
    call: CompiledCall,
    settle: Settle<CompiledEmbeddings>,
  ): void;
  /** Waits for the model's calls and releases its weights. Again: nothing. */
  modelFree(model: CompiledModel): void;

  /** The handle of a deferred call about to be submitted. */
  callCreate(): CompiledCall;
  /** Gives up on the call: it never starts, or stops between two layers. */
  callCancel(call: CompiledCall): void;
  /** Done and total. The total is 0 until it is known. */
  callProgress(call: CompiledCall): [done: number, total: number];
}

/** Receives the outcome of a deferred call, once. */
export type Settle<T> = (failure: unknown, value: T) => void;

declare const kind: unique symbol;

/** The backend's handle of an executor. It belongs to the environment that made it. */
export interface CompiledExecutor {
  readonly [kind]: "executor";
}

/** The backend's handle of a pool. It belongs to the environment that made it. */
export interface CompiledPool {
  readonly [kind]: "pool";
}

/** The backend's handle of a model. It belongs to the environment that made it. */
export interface CompiledModel {
  readonly [kind]: "model";
}

/** The backend's handle of a deferred call. */
export interface CompiledCall {
  readonly [kind]: "call";
}

/** Where an executor's threads go. */
export interface RamConfig {
  readonly threads: number | undefined;
  readonly cpuClass: string | undefined;
  readonly deferredLimit: number | undefined;
}

/** How an executor on a borrowed pool takes calls. */
export interface PoolConfig {
  readonly cpuClass: string | undefined;
  readonly deferredLimit: number | undefined;
}

/** What a pool is made of. */
export interface ThreadPoolConfig {
  readonly threads: number | undefined;
  readonly name: string | undefined;
}

/** How a model is loaded. */
export interface LoadOptions {
  readonly cpuClass: string | undefined;
  readonly precision: string | undefined;
}

/** How texts become vectors. */
export interface EncodeOptions {
  readonly pooling: string | undefined;
  readonly normalize: boolean | undefined;
  readonly dimensions: number | undefined;
  readonly prompt: string | undefined;
  readonly promptText: string | undefined;
  /** Whether a text over the model's limit is an error rather than cut. */
  readonly refuseLongTexts: boolean | undefined;
}

/** Vectors as the backend returns them. */
export interface CompiledEmbeddings {
  readonly rows: number;
  readonly dimensions: number;
  readonly data: Float32Array;
  readonly tokens: Uint32Array;
  readonly truncated: Uint8Array;
}
