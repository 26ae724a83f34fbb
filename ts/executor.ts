import type { Backend, CompiledExecutor, CoreCount, WasmModule } from "./backend/backend.js";
import { backend } from "./backend/chosen.js";
import { deferred } from "./deferred.js";
import { FreedError, InvalidArgumentError, translated } from "./errors.js";
import { constantCompiled, detached, Handle } from "./handle.js";
import type { CpuClass } from "./hardware.js";
import {
  address,
  addresses,
  count,
  cpuClass,
  ids,
  oneOf,
  type Option,
  readArgument,
  readOptions,
  text,
} from "./options.js";

/** How an executor's threads wait for work. */
export enum Mood {
  /**
   * Asleep: no CPU is used, and the next call wakes them. Before a thread sleeps it looks for work for a
   * fraction of a millisecond, so that a burst of calls finds it awake.
   */
  Parked = 0,
  /** Awake: the next call is answered fastest; their cores are busy until the mood changes. */
  Spinning = 1,
}

/** Where an executor for RAM-resident models runs. */
export interface ExecutorForRamConfig {
  /**
   * The memory domains (NUMA nodes, by the system's ids) to run near and compute in. Each thread
   * is kept on the cores near one of them and takes its memory there while there is some; memory
   * without cores of its own has those nearest to it, unless a domain before it in the list
   * has them. Absent or `[]`: every domain this process may allocate on, with threads and memory
   * wherever the system puts them.
   *
   * The calling thread is never moved: in an immediate call, its share is computed where it runs.
   */
  memoryDomains?: readonly number[] | undefined;
  /**
   * How many threads. Absent or 0: 7/8 of the cores those domains carry that this process may use,
   * to the nearest whole number and at least one (affinity mask, cpuset and CPU quota counted).
   */
  threads?: number | undefined;
  /** The class of kernels. Absent: the CPU's own. */
  cpuClass?: CpuClass | undefined;
  /** The most deferred calls outstanding at a time. Absent or 0: 1024. */
  deferredLimit?: number | undefined;
}

const forRamShape = { memoryDomains: ids, threads: count, cpuClass, deferredLimit: count };

/** Which GPUs an executor drives, and where its host threads run. */
export interface ExecutorForVramConfig {
  /**
   * The devices, by their positions in {@link gpuDevices}. Absent or `[]`: one free device, which is one
   * that has not faulted in this process, then one that this process does not drive yet, then the one with
   * most free memory where the vendor's management library tells, then the first.
   */
  devices?: readonly number[] | undefined;
  /**
   * The class of kernels on all of them, such as `"nvidia-ampere"`, which every NVIDIA device runs.
   * Absent: each device's own.
   */
  gpuClass?: string | undefined;
  /** The memory domains of its host threads, as {@link ExecutorForRamConfig.memoryDomains}. */
  memoryDomains?: readonly number[] | undefined;
  /** The class of its host threads' kernels. Absent: the CPU's own. */
  cpuClass?: CpuClass | undefined;
  /**
   * The vendor's streams to borrow (`CUstream`, `hipStream_t`) by their addresses, one a device in the
   * order of {@link devices}, made in the device's primary context. They must outlive the executor, which
   * never ends them. `0n`: one of its own. Absent or `[]`: all of its own. An address that is no
   * stream's is taken at its word: it may end the process.
   */
  streams?: readonly bigint[] | undefined;
  /** The most bytes of scratch on each device. Absent or 0: as many as batches ask for. */
  scratchLimit?: number | undefined;
  /** The most deferred calls outstanding at a time. Absent or 0: 1024. */
  deferredLimit?: number | undefined;
}

const forVramShape = {
  devices: ids,
  gpuClass: text,
  memoryDomains: ids,
  cpuClass,
  streams: addresses,
  scratchLimit: count,
  deferredLimit: count,
};

/** How an executor on a borrowed pool takes calls. */
export interface ExecutorOnPoolConfig {
  /**
   * The memory domains (NUMA nodes, by the system's ids) of what is not the pool's: the executor's
   * own thread, and the weights it loads. Absent or `[]`: wherever the system puts them.
   */
  memoryDomains?: readonly number[] | undefined;
  /** The class of kernels. Absent: the CPU's own. */
  cpuClass?: CpuClass | undefined;
  /** The most deferred calls outstanding at a time. Absent or 0: 1024. */
  deferredLimit?: number | undefined;
}

const onPoolShape = { memoryDomains: ids, cpuClass, deferredLimit: count };

/** Where weights are, and so who computes: host memory, or the memory of GPUs. */
export type Residency = "ram" | "vram";

/** A GPU that an executor drives. */
export interface DrivenDevice {
  /** Its position in {@link gpuDevices}. */
  readonly ordinal: number;
  /** As its driver names it. */
  readonly name: string;
  /** The class whose kernels run on it. */
  readonly gpuClass: string;
  /** Whether its stream is borrowed. */
  readonly streamBorrowed: boolean;
  /** Bytes of scratch memory kept on it. */
  readonly scratchBytes: number;
  /** The most of those; `null`: as many as batches ask for. */
  readonly scratchLimit: number | null;
}

/** What an {@link Executor} is and does just now. Cores and domains go by the system's numbers. */
export interface ExecutorDescription<R extends Residency = "ram"> {
  /**
   * Threads of its own, for host memory or beside GPUs; those of a pool; or none but the caller's and
   * one for deferred calls.
   */
  readonly kind: { ram: "ram" | "pool" | "inline"; vram: "vram" }[R];
  /** Of the models it computes. */
  readonly residency: R;
  /** The WebAssembly module that computes; `null`: the native addon does. */
  readonly module: WasmModule | null;
  /** How many threads compute a call. */
  readonly threads: number;
  /** The memory domains it was placed in; where it was not, all this process may allocate on. */
  readonly memoryDomains: readonly number[];
  /** The cores its threads may run on. */
  readonly cores: readonly number[];
  /** What was counted to know how many cores this process may use, and which limit was the tightest. */
  readonly counted: CoreCount;
  /** The class of kernels it is pinned to, or the CPU's own. */
  readonly cpuClass: CpuClass;
  /** How its threads wait for work. */
  readonly mood: Mood;
  /** Deferred calls queued or running. */
  readonly outstanding: number;
  /** The most of those. */
  readonly deferredLimit: number;
  /** Bytes of scratch memory it keeps in host memory. */
  readonly scratchBytes: number;
  /** The GPUs it drives, in the order in which they were asked for. */
  readonly devices: readonly DrivenDevice[];
  /** What is worth knowing about its options, a sentence each, such as why more threads do not help. */
  readonly remarks: readonly string[];
  /** What was asked of the system and refused, a sentence each: an affinity, a memory policy. */
  readonly refused: readonly string[];
}

/** Only this module makes executors. */
const key = Symbol("executor");

/**
 * Threads, or streams of GPUs, that run the calls of any number of models of one {@link Residency}.
 *
 * Calls start in the order of their submission and run one at a time; work that should
 * overlap takes one executor apiece. A deferred call (`encodeText`) waits in the queue; an
 * immediate one (`encodeTextSync`) that finds the executor busy throws {@link ContendedError}.
 */
export class Executor<R extends Residency = "ram"> extends Handle {
  /** The backend's handle, which every verb is handed. */
  declare readonly compiled: CompiledExecutor;
  readonly #residency: R;
  #freed = false;
  #end: Promise<void> | undefined;

  private constructor(caller: typeof key, compiled: CompiledExecutor, residency: R) {
    super();
    if (caller !== key) {
      throw new InvalidArgumentError(
        "an Executor is made by Executor.forRam, Executor.forVram or Executor.onPool, not by `new`",
      );
    }
    this.#residency = residency;
    constantCompiled(this, compiled);
  }

  /**
   * Spawns host threads for RAM-resident models. They start parked.
   *
   * @param config - Where they run; every part has a default.
   * @throws {@link InvalidArgumentError} when a part is unknown or out of range, the CPU
   * cannot run the class, or a memory domain is not there.
   */
  static forRam(config: ExecutorForRamConfig = {}): Executor {
    const options = readOptions("Executor.forRam", config, forRamShape);
    return new Executor(
      key,
      translated(() => backend().executorForRam(options)),
      "ram",
    );
  }

  /**
   * Drives GPUs for models that reside in their memory ({@link Model.loadVram}): a stream on each device,
   * all of them given work by the one host thread that runs a call, and as many host threads as
   * {@link forRam} spawns for what devices cannot do. They start parked.
   *
   * The devices are used in their primary contexts, as other libraries in the process use them.
   *
   * @param config - Which devices, and where its threads run; every part has a default.
   * @throws {@link UnsupportedError}, with the driver's words, where there is no GPU to drive, for a
   * device of no class, and where WebAssembly computes; {@link InvalidArgumentError} when a part is
   * unknown or out of range, a device cannot run the class, or a stream is not that device's;
   * {@link OutOfMemoryError}; {@link DeviceFaultError}.
   */
  static forVram(config: ExecutorForVramConfig = {}): Executor<"vram"> {
    const options = readOptions("Executor.forVram", config, forVramShape);
    return new Executor<"vram">(
      key,
      translated(() => backend().executorForVram(options)),
      "vram",
    );
  }

  /**
   * Borrows a live ForkUnion 3 pool, a `fu_pool_t`, by its address: that of a {@link ThreadPool}, or
   * one that another package tells. Its threads compute the calls; of an inclusive pool, the thread
   * that leads a call is one of them. The pool must outlive the executor, which neither ends it nor
   * puts it to sleep.
   *
   * Executors that borrow one pool, also in several workers, take turns: deferred calls wait in
   * their queues; an immediate call throws {@link ContendedError} while another executor's call uses
   * or waits for the pool. Others may give the pool work only while no call of these is outstanding.
   *
   * How the pool's threads idle is their owner's to say. A {@link Mood} is that of the executor's own
   * thread, which takes deferred calls from the queue.
   *
   * @param pool - The address. Null, misaligned, and what does not look like a pool of this version
   * with threads is refused. Any other address is taken at its word: a wrong one may end the process.
   * @param config - How calls are taken; every part has a default.
   * @throws {@link InvalidArgumentError} when the address is refused, a part is unknown or out of
   * range, or the CPU cannot run the class.
   */
  static onPool(pool: bigint, config: ExecutorOnPoolConfig = {}): Executor {
    const checked = readArgument("Executor.onPool", "pool", pool, address);
    const options = readOptions("Executor.onPool", config, onPoolShape);
    return new Executor(
      key,
      translated(() => backend().executorOnPool(checked, options)),
      "ram",
    );
  }

  /**
   * Where it runs and what limited it, how it idles, and what the system refused.
   *
   * @throws {@link FreedError} after {@link free}.
   */
  describe(): ExecutorDescription<R> {
    const compiled = Executor.usable(this, "executor.describe");
    const found = translated(() => backend().executorDescribe(compiled));
    return {
      ...found,
      kind: found.kind as ExecutorDescription<R>["kind"],
      residency: this.#residency,
      cpuClass: found.cpuClass as CpuClass,
      // The addon hands a large one over as a bigint.
      deferredLimit: Number(found.deferredLimit),
      module: backend().module ?? null,
      devices: found.devices ?? [],
    };
  }

  /**
   * Waits, blocking the caller, for every call submitted so far, then idles in `mood`.
   *
   * A drained call reports its failure through its own promise, which settles afterwards.
   *
   * @param mood - How to wait for the next call. Absent: parked.
   * @throws {@link DeviceFaultError} when a device of the executor's has failed;
   * {@link FreedError} after {@link free}.
   */
  drain(mood: Mood = Mood.Parked): void {
    const checked = readArgument("executor.drain", "mood", mood, moods);
    const compiled = Executor.usable(this, "executor.drain");
    translated(() => backend().executorDrain(compiled, checked));
  }

  /**
   * Resolves when every call submitted so far has ended and the executor idles in `mood`.
   *
   * @param mood - How to wait for the next call. Absent: parked.
   * @throws As {@link drain}, by rejecting.
   */
  async drainAsync(mood: Mood = Mood.Parked): Promise<void> {
    const checked = readArgument("executor.drainAsync", "mood", mood, moods);
    await drained(Executor.usable(this, "executor.drainAsync"), checked);
  }

  /**
   * Runs every deferred call, joins the threads, releases the scratch memory. It blocks meanwhile,
   * as long as the calls take: abort what is not wanted any more, or use `await using`, which
   * does not block. Afterwards the executor's use throws {@link FreedError}, and
   * a second `free()` does nothing.
   */
  free(): void {
    if (!Executor.#is(this)) detached("executor.free");
    this.#freed = true;
    translated(() => backend().executorFree(this.compiled));
  }

  /** @internal */
  freeAsync(): Promise<void> {
    return (this.#end ??= this.#freeLater());
  }

  async #freeLater(): Promise<void> {
    if (this.#freed) return;
    // From here on nothing is accepted, so that freeing finds nothing to wait for.
    this.#freed = true;
    try {
      await drained(this.compiled, Mood.Parked);
    } finally {
      this.free();
    }
  }

  static #is(executor: unknown): executor is Executor<Residency> {
    return typeof executor === "object" && executor !== null && #freed in executor;
  }

  /**
   * The handle of an executor that may be used, by the method `where` or as an option.
   *
   * @internal
   */
  static usable(executor: Executor<Residency>, where?: string): CompiledExecutor {
    if (!Executor.#is(executor)) {
      if (where !== undefined) detached(where);
      throw new InvalidArgumentError(
        "expected an Executor made by Executor.forRam, Executor.forVram or Executor.onPool; this is not one",
      );
    }
    if (executor.#freed) throw new FreedError("the executor was freed; make a new one");
    return executor.compiled;
  }

  /**
   * Where the models are that an executor computes; without one, in host memory.
   *
   * @internal
   */
  static residency(executor: Executor<Residency> | undefined): Residency {
    return Executor.#is(executor) ? executor.#residency : "ram";
  }
}

function drained(compiled: CompiledExecutor, mood: Mood): Promise<void> {
  return deferred<void>(
    backend(),
    {},
    { submit: (_, settle) => backend().executorDrainDeferred(compiled, mood, settle) },
  );
}

const moods = oneOf([Mood.Parked, Mood.Spinning]);

/** The option by which a verb is told where to run. @internal */
export const executorOption: Option<Executor<Residency>> = (value, refuse) =>
  value instanceof Executor
    ? (value as Executor<Residency>)
    : refuse("an Executor of this package");

/** The inline executors, one a backend. */
const inline = new WeakMap<Backend, CompiledExecutor>();

/**
 * The handle of the executor to run on. Without one, the environment's inline executor: immediate
 * calls run on the caller, deferred ones on one thread the library keeps.
 *
 * @param where - What computes the model.
 * @internal
 */
export function compiledExecutor(
  executor: Executor<Residency> | undefined,
  where: Backend = backend(),
): CompiledExecutor {
  if (executor) {
    const compiled = Executor.usable(executor);
    if (where === backend()) return compiled;
    throw new InvalidArgumentError(
      `\`executor\` orders calls of the module ${backend().module}, and the model was too large for it: ` +
        'leave the executor out, or await load({ wasm: "wasm64" }) before anything else',
    );
  }
  let compiled = inline.get(where);
  if (compiled === undefined) {
    compiled = translated(() => where.executorInline());
    inline.set(where, compiled);
  }
  return compiled;
}
