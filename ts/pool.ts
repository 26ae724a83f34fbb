import type { CompiledPool } from "./backend/backend.js";
import { backend } from "./backend/chosen.js";
import { FreedError, InvalidArgumentError, translated } from "./errors.js";
import { constantCompiled, detached, Handle } from "./handle.js";
import { count, ids, readOptions, text } from "./options.js";

/** What a {@link ThreadPool} is made of. */
export interface ThreadPoolConfig {
  /**
   * The memory domains (NUMA nodes, by the system's ids) whose cores, together, the threads run on,
   * and whose memory they take while there is some. Absent or `[]`: wherever the system puts them.
   */
  memoryDomains?: readonly number[] | undefined;
  /**
   * How many threads. Absent or 0: 7/8 of the cores those domains carry that this process may use,
   * to the nearest whole number and at least one (affinity mask, cpuset and CPU quota counted).
   */
  threads?: number | undefined;
  /** What its threads are called: 1 to 15 bytes. Absent: `"uform-pool"`. */
  name?: string | undefined;
}

const spawnShape = { memoryDomains: ids, threads: count, name: text };

/** Only this module makes pools. */
const key = Symbol("pool");

/**
 * A ForkUnion 3 pool, for packages of one process to share by its address: of this package,
 * {@link Executor.onPool} borrows it.
 *
 * The pool is inclusive: who gives it work is one of its threads meanwhile. The others spin for as
 * long as the pool lives, whether or not there is work: a pool of four keeps three cores busy. With
 * more threads than cores, spinning takes the time of computing, and a call takes a hundred times
 * as long. Sharing a pool is for programs whose packages are busy in turns;
 * {@link Executor.forRam} parks its threads.
 */
export class ThreadPool extends Handle {
  /** The backend's handle. @internal */
  declare readonly compiled: CompiledPool;
  #freed = false;

  private constructor(caller: typeof key, compiled: CompiledPool) {
    super();
    if (caller !== key) {
      throw new InvalidArgumentError("a ThreadPool is made by ThreadPool.spawn, not by `new`");
    }
    constantCompiled(this, compiled);
  }

  /**
   * Spawns a pool and returns when it is live.
   *
   * @param config - What it is made of; every part has a default.
   * @throws {@link InvalidArgumentError} when a part is unknown or out of range.
   */
  static spawn(config: ThreadPoolConfig = {}): ThreadPool {
    const options = readOptions("ThreadPool.spawn", config, spawnShape);
    return new ThreadPool(
      key,
      translated(() => backend().poolSpawn(options)),
    );
  }

  /**
   * Where the `fu_pool_t` is, for code that borrows it. It must not be used once the pool is freed.
   *
   * @throws {@link FreedError} after {@link free}.
   */
  get address(): bigint {
    return backend().poolAddress(usable(this, "pool.address"));
  }

  /**
   * How many threads it has.
   *
   * @throws {@link FreedError} after {@link free}.
   */
  get threads(): number {
    return backend().poolThreads(usable(this, "pool.threads"));
  }

  /**
   * Ends the threads. Code that borrows the pool by its address must be done with it; for
   * executors of this package that is checked. A second `free()` does nothing. A forgotten pool lives until the
   * last executor that borrows it is freed or forgotten.
   *
   * @throws {@link InvalidArgumentError} while an executor borrows it, which is to be freed first.
   */
  free(): void {
    if (ThreadPool.isFreed(this) === undefined) detached("pool.free");
    translated(() => backend().poolFree(this.compiled));
    this.#freed = true;
  }

  /** @internal */
  async freeAsync(): Promise<void> {
    this.free();
  }

  /**
   * Whether a pool was freed; `undefined` for what is not a pool.
   *
   * @internal
   */
  static isFreed(pool: ThreadPool): boolean | undefined {
    return typeof pool === "object" && pool !== null && #freed in pool ? pool.#freed : undefined;
  }
}

/** The handle of a pool that may be used. */
function usable(pool: ThreadPool, where: string): CompiledPool {
  const freed = ThreadPool.isFreed(pool);
  if (freed === undefined) detached(where);
  if (freed) throw new FreedError("the pool was freed; spawn a new one");
  return pool.compiled;
}
