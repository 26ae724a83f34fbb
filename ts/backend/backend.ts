/**
 * What the TypeScript surface needs of whatever computes: a flat table of functions over opaque
 * handles. The native addon has exactly this shape. Arguments were checked by the
 * caller as far as JavaScript's types go; what they mean, the engine behind the backend decides.
 *
 * A function reports failure by throwing, a deferred one also through `settle`, with an error whose
 * `code` is one of the engine's. A deferred function never calls `settle` before it has returned; it takes
 * no `call` when the caller neither cancels it nor reads its progress.
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
  /** Drives GPUs for models that reside in their memory. */
  executorForVram(config: VramConfig): CompiledExecutor;
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

  /**
   * Files of a model that are brought one by one. `place`: the URL or path of its folder, or the path of its
   * weights; `""`: none. `names`: what lies there, as far as that is known.
   */
  filesCreate(place: string, names: string[]): CompiledFiles;
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
   * of its bytes from `at` on, one at least and at most so many, or throws an error of ours. Absent: files
   * are copied.
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
    call: CompiledCall | undefined,
    settle: Settle<CompiledModel>,
  ): void;
  /** The same from files, which it takes. */
  modelOpenFiles(
    files: CompiledFiles,
    options: LoadOptions,
    executor: CompiledExecutor,
    call: CompiledCall | undefined,
    settle: Settle<CompiledModel>,
  ): void;
  /** Loads a model into the memory of an executor's GPUs. */
  modelLoadVram(path: string, options: VramLoadOptions, executor: CompiledExecutor): CompiledModel;
  /** The same without waiting. */
  modelOpenVram(
    path: string,
    options: VramLoadOptions,
    executor: CompiledExecutor,
    call: CompiledCall | undefined,
    settle: Settle<CompiledModel>,
  ): void;
  /** The same from files, which it takes. */
  modelOpenFilesVram(
    files: CompiledFiles,
    options: VramLoadOptions,
    executor: CompiledExecutor,
    call: CompiledCall | undefined,
    settle: Settle<CompiledModel>,
  ): void;
  /** What the model is, and how it computes. */
  modelDescribe(model: CompiledModel): CompiledModelDescription;
  /** Vectors of the texts. */
  modelEncodeText(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions | undefined,
  ): CompiledEmbeddings;
  /** The same without waiting. The texts are copied before it returns. */
  modelEncodeTextDeferred(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions | undefined,
    call: CompiledCall | undefined,
    settle: Settle<CompiledEmbeddings>,
  ): void;
  /** Vectors of the texts, which stay in the memory of GPUs. */
  modelEncodeTextVram(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions | undefined,
  ): CompiledDeviceEmbeddings;
  /** The same without waiting. The texts are copied before it returns. */
  modelEncodeTextVramDeferred(
    model: CompiledModel,
    executor: CompiledExecutor,
    texts: readonly string[],
    options: EncodeOptions | undefined,
    call: CompiledCall | undefined,
    settle: Settle<CompiledDeviceEmbeddings>,
  ): void;
  /** The tokens of the texts, without computing, and where they are. */
  modelTokenize(
    model: CompiledModel,
    texts: readonly string[],
    specialAsText: boolean,
  ): CompiledTokens;
  /** How many tokens each of the texts has, without computing. */
  modelCountTokens(
    model: CompiledModel,
    texts: readonly string[],
    specialAsText: boolean,
  ): Uint32Array;
  /** Waits for the model's calls and releases its weights. Again: nothing. */
  modelFree(model: CompiledModel): void;

  /** Copies vectors to host memory, beside all other calls. */
  vectorsToHost(
    vectors: CompiledVectors,
    call: CompiledCall | undefined,
    settle: Settle<CompiledEmbeddings>,
  ): void;
  /** Gives the devices' memory back. Again: nothing. */
  vectorsFree(vectors: CompiledVectors): void;

  /** Waits until every process of a run has joined. */
  meshBootstrap(executor: CompiledExecutor, config: MeshConfig): CompiledMesh;
  /** The same without waiting. */
  meshJoin(
    executor: CompiledExecutor,
    config: MeshConfig,
    call: CompiledCall | undefined,
    settle: Settle<CompiledMesh>,
  ): void;
  /** What the run is, and this process's place in it. */
  meshDescribe(mesh: CompiledMesh): CompiledMeshDescription;
  /** Sums vectors in place over all members of the run, without waiting. */
  meshAllReduce(
    mesh: CompiledMesh,
    vectors: CompiledVectors,
    call: CompiledCall | undefined,
    settle: Settle<void>,
  ): void;
  /** Removes the files of every mesh that was not freed: the process ends. */
  meshesLeave(): void;
  /** Waits for the mesh's calls and leaves the run, unless a trainer borrows it. Again: nothing. */
  meshFree(mesh: CompiledMesh): void;

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
    call: CompiledCall | undefined,
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

/** The backend's handle of vectors on GPUs. It belongs to the environment that made it. */
export interface CompiledVectors {
  readonly [kind]: "vectors";
}

/** The backend's handle of a mesh. It belongs to the environment that made it. */
export interface CompiledMesh {
  readonly [kind]: "mesh";
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
  /** Why memory and caches could not be read, or that they are not this machine's; `null`: all is well. */
  readonly problem: string | null;
}

/** Where an executor's threads go. */
export interface RamConfig {
  readonly memoryDomains: readonly number[] | undefined;
  readonly threads: number | undefined;
  readonly cpuClass: string | undefined;
  readonly deferredLimit: number | undefined;
}

/** Which devices an executor drives, and where its threads go. */
export interface VramConfig {
  readonly devices: readonly number[] | undefined;
  readonly gpuClass: string | undefined;
  readonly memoryDomains: readonly number[] | undefined;
  readonly cpuClass: string | undefined;
  /** Of 64 bits; 0: one of its own. */
  readonly streams: readonly bigint[] | undefined;
  readonly scratchLimit: number | undefined;
  readonly deferredLimit: number | undefined;
}

/** An executor as the backend describes it; {@link ExecutorDescription} says what each part is. */
export interface CompiledExecutorDescription {
  readonly kind: "ram" | "vram" | "pool" | "inline";
  readonly threads: number;
  readonly memoryDomains: readonly number[];
  readonly cores: readonly number[];
  readonly counted: CoreCount;
  readonly cpuClass: string;
  readonly mood: number;
  readonly outstanding: number;
  readonly deferredLimit: number;
  readonly scratchBytes: number;
  /** Absent: the backend drives none. */
  readonly devices?: readonly {
    readonly ordinal: number;
    readonly name: string;
    readonly gpuClass: string;
    readonly streamBorrowed: boolean;
    readonly scratchBytes: number;
    readonly scratchLimit: number | null;
  }[];
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

/** A process's place in a run, and where the run's processes meet. */
export interface MeshConfig {
  readonly hostDomainIndex: number | undefined;
  readonly hostDomainCount: number | undefined;
  readonly gpusPerMultimemDomain: number | undefined;
  readonly directory: string | undefined;
  readonly job: string | undefined;
  readonly timeoutSeconds: number | undefined;
}

/** A run as the backend describes it. */
export interface CompiledMeshDescription {
  /** GPUs that one process drives. */
  readonly gpusPerHostDomain: number;
  /** GPUs that one multicast domain spans. */
  readonly gpusPerMultimemDomain: number;
  /** GPUs in the whole run. */
  readonly gpusPerColocatedDomain: number;
  /** This process's index. */
  readonly hostDomainIndex: number;
  /**
   * The index in the whole run of this process's first GPU, where its share of a sharded dataset
   * begins.
   */
  readonly firstGpuIndex: number;
  /** How the run reduces: 0, in the switch; 1, every member reads its peers. */
  readonly multimemTier: number;
  /** The class of all GPUs of the run; `null`: they are of several. */
  readonly gpuClass: string | null;
  /** Why the run does not reduce in the switch; `null`: it does. */
  readonly multimemObstacle: string | null;
  /** By what the members add up; why they cannot, where they cannot. */
  readonly reduction: string;
  /** What lies in the job's folder of an earlier run that crashed, and how to be rid of it; or `null`. */
  readonly leftovers: string | null;
}

/** How a model is loaded. */
export interface LoadOptions {
  readonly memoryDomains: readonly number[] | undefined;
  readonly cpuClass: string | undefined;
  readonly precision: string | undefined;
}

/** How a model is loaded into the memory of GPUs. */
export interface VramLoadOptions {
  readonly devices: readonly number[] | undefined;
  readonly gpuClass: string | undefined;
  readonly precision: string | undefined;
}

/** How texts become vectors; no object at all is like one without options. */
export interface EncodeOptions {
  readonly pooling: string | undefined;
  readonly normalize: boolean | undefined;
  readonly dimensions: number | undefined;
  readonly prompt: string | undefined;
  readonly promptText: string | undefined;
  /** Whether a text over the model's limit is an error rather than cut. */
  readonly refuseLongTexts: boolean | undefined;
  /** Whether special tokens in a text are read as text. */
  readonly specialAsText: boolean | undefined;
}

/** Vectors as the backend returns them: an array, since names cost a short call more than its numbers. */
export type CompiledEmbeddings = readonly [
  dimensions: number,
  data: Float32Array,
  tokens: Uint32Array,
  truncated: Uint8Array,
];

/** Tokens as the backend returns them: {@link Tokens} says what each part is. */
export type CompiledTokens = readonly [ids: Uint32Array, offsets: Uint32Array, spans: Uint32Array];

/** Vectors on GPUs as the backend returns them. */
export interface CompiledDeviceEmbeddings {
  readonly rows: number;
  readonly dimensions: number;
  readonly parts: readonly {
    readonly device: number;
    readonly address: bigint;
    readonly rows: number;
  }[];
  readonly tokens: Uint32Array;
  readonly truncated: Uint8Array;
  readonly vectors: CompiledVectors;
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
  readonly similarity?: string;
  readonly prompts: readonly (readonly string[])[];
  readonly defaultPrompt?: string;
  readonly precision: string;
  /** Absent: host memory, the only one the backend knows. */
  readonly residency?: string;
  readonly cpuClass?: string;
  readonly gpuClass?: string;
  readonly devices?: readonly number[];
  readonly bytes: number;
  readonly fingerprint: string;
  readonly refused: readonly string[];
}
