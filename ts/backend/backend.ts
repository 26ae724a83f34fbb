/**
 * What the TypeScript surface needs of whatever computes: a flat table of functions over opaque
 * handles. The native addon has exactly this shape. Arguments were checked by the
 * caller as far as JavaScript's types go; what they mean, the engine behind the backend decides.
 *
 * A function reports failure by throwing, a deferred one also through `settle`, with an error whose
 * `code` is one of the engine's. A deferred function never calls `settle` before it has returned.
 */
export interface Backend {
  /** Which WebAssembly module this is; absent: the native addon. */
  readonly module?: WasmModule;

  /** What this binary was built with: comma-separated words. */
  capabilitiesCompiled(): string;
  /** What this machine offers now: comma-separated words. */
  capabilitiesAvailable(): string;
  /** The machine as the engine sees it. */
  hardwareDescribe(): HardwareDescription;
  /** Every GPU that this process can drive, NVIDIA's first, then AMD's. */
  hardwareGpuDevices(): CompiledGpuDevice[];

  /** Spawns host threads for models that reside in host memory. */
  executorForRam(config: RamConfig): CompiledExecutor;
  /** Borrows the ForkUnion pool at an address of 64 bits. */
  executorOnPool(pool: bigint, config: PoolConfig): CompiledExecutor;
  /** Computes immediate calls on the caller, deferred ones beside it. */
  executorInline(): CompiledExecutor;
  /** What the executor is and does just now. */
  executorDescribe(executor: CompiledExecutor): CompiledExecutorDescription;
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

  /** Files of a model that are brought one by one. `place`: the URL of its folder; `""`: none. */
  filesCreate(place: string): CompiledFiles;
  /** The names of files to bring next; none: the model can be opened, or cannot be helped. */
  filesWanted(files: CompiledFiles): string[];
  /** There is no such file. */
  filesAbsent(files: CompiledFiles, name: string): void;
  /** Makes room for `size` bytes of a file. */
  filesBegin(files: CompiledFiles, name: string, size: number): void;
  /** Copies bytes to the end of a file that was begun. */
  filesAppend(files: CompiledFiles, name: string, bytes: Uint8Array): void;
  /**
   * Takes a file of `size` bytes that stays where it is until the files are no more: `read` returns some
   * of its bytes from `at` on, one at least and at most so many. Absent: files are copied.
   */
  filesLend?(
    files: CompiledFiles,
    name: string,
    size: number,
    read: (at: number, most: number) => Uint8Array,
  ): void;

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
  /** The same from files, which it takes. */
  modelOpenFiles(
    files: CompiledFiles,
    options: LoadOptions,
    executor: CompiledExecutor,
    call: CompiledCall,
    settle: Settle<CompiledModel>,
  ): void;
  /** What the model is, and how it computes. */
  modelDescribe(model: CompiledModel): CompiledModelDescription;
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

/**
 * A WebAssembly module of the package: for every engine, with relaxed SIMD, and with that and
 * addresses of 64 bits.
 */
export type WasmModule = "wasm32" | "wasm32-relaxed" | "wasm64";

/** What the native addon has besides: that which is done to files. */
export interface NativeBackend extends Backend {
  /**
   * Writes the model at a path to a folder that is new or empty, with its weights in another
   * format: `"f16"` or `"i8"`.
   */
  modelQuantize(
    from: string,
    into: string,
    weights: string,
    executor: CompiledExecutor,
    call: CompiledCall,
    settle: Settle<CompiledQuantization>,
  ): void;
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

/** The backend's handle of files. */
export interface CompiledFiles {
  readonly [kind]: "files";
}

/** The backend's handle of a deferred call. */
export interface CompiledCall {
  readonly [kind]: "call";
}

/** How many cores a process may use, and what was counted to know it. */
export interface CoreCount {
  /** Cores the machine has online, as its scheduler counts them. */
  readonly online: number;
  /** Cores in the affinity mask; `null`: not known here. */
  readonly affinity: number | null;
  /** Cores in the control group's cpuset; `null`: no cpuset. */
  readonly cpuset: number | null;
  /** Cores' worth of CPU time in the control group's quota, such as 1.5; `null`: no quota. */
  readonly quota: number | null;
  /** Threads that can run at once: what all of these leave. */
  readonly usable: number;
  /** Which of them leaves the fewest. */
  readonly limit: "machine" | "affinity" | "cpuset" | "quota";
}

/** A GPU as the backend describes it; {@link GpuDevice} says what each part is. */
export interface CompiledGpuDevice {
  /** The vendor's number. */
  readonly vendor: number;
  readonly vendorOrdinal: number;
  readonly gpuClass: string | null;
  readonly computeUnits: number;
  readonly memoryBytes: number;
  readonly name: string;
  readonly uuid: string | null;
  readonly pciAddress: string | null;
}

/** What this machine is, and what of it this process may use. Cores and domains go by the system's numbers. */
export interface HardwareDescription {
  /** The backend's own version. */
  readonly version: string;
  /** The CPU's own class. */
  readonly cpuClass: string;
  /** Every class that runs here. */
  readonly cpuClasses: readonly string[];
  readonly capabilitiesCompiled: string;
  readonly capabilitiesAvailable: string;
  /** The cores this process may run on. */
  readonly usableCores: readonly number[];
  readonly cores: CoreCount;
  readonly physicalCores: number;
  /** NUMA nodes, and the cores nearest to each. `allowed`: this process may allocate there. */
  readonly memoryDomains: readonly {
    readonly id: number;
    readonly bytes: number;
    readonly cores: readonly number[];
    readonly allowed: boolean;
  }[];
  /** Caches of the second level and up, and the cores that share each. */
  readonly caches: readonly {
    readonly level: number;
    readonly bytes: number;
    readonly cores: readonly number[];
  }[];
  /** Devices, and the memory domains near each. */
  readonly pciDevices: readonly {
    readonly address: string;
    readonly memoryDomains: readonly number[];
  }[];
  readonly gpuDevices: readonly CompiledGpuDevice[];
  /** Why memory and caches could not be read; `null`: they could. */
  readonly problem: string | null;
}

/** Where an executor's threads go. */
export interface RamConfig {
  readonly memoryDomains: readonly number[] | undefined;
  readonly threads: number | undefined;
  readonly cpuClass: string | undefined;
  readonly deferredLimit: number | undefined;
}

/** An executor as the backend describes it; {@link ExecutorDescription} says what each part is. */
export interface CompiledExecutorDescription {
  readonly kind: "ram" | "pool" | "inline";
  readonly threads: number;
  readonly memoryDomains: readonly number[];
  readonly cores: readonly number[];
  readonly counted: CoreCount;
  readonly cpuClass: string;
  readonly mood: number;
  readonly outstanding: number;
  readonly deferredLimit: number;
  readonly scratchBytes: number;
  readonly remarks: readonly string[];
  readonly refused: readonly string[];
}

/** How an executor on a borrowed pool takes calls. */
export interface PoolConfig {
  readonly memoryDomains: readonly number[] | undefined;
  readonly cpuClass: string | undefined;
  readonly deferredLimit: number | undefined;
}

/** What a pool is made of. */
export interface ThreadPoolConfig {
  readonly memoryDomains: readonly number[] | undefined;
  readonly threads: number | undefined;
  readonly name: string | undefined;
}

/** How a model is loaded. */
export interface LoadOptions {
  readonly memoryDomains: readonly number[] | undefined;
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

/** What came of writing a model with other weights. */
export interface CompiledQuantization {
  /** Bytes of the files of weights that were read. */
  readonly bytesBefore: number;
  /** Bytes of those that were written. */
  readonly bytesAfter: number;
  /** Cosines of its vectors of some texts to those of the original in f32, a precision each. */
  readonly likenesses: readonly {
    readonly precision: string;
    readonly texts: number;
    readonly least: number;
    readonly mean: number;
  }[];
}

/** A model's description as the backend returns it. The words are the engine's. */
export interface CompiledModelDescription {
  readonly architecture: string;
  readonly parameters: number;
  readonly dimensions: number;
  readonly tokenLimit: number;
  readonly pooling?: string;
  readonly normalize: boolean;
  readonly prompts: readonly (readonly string[])[];
  readonly defaultPrompt?: string;
  readonly precision: string;
  readonly cpuClass: string;
  readonly bytes: number;
  readonly fingerprint: string;
  readonly refused: readonly string[];
}
