import type { CompiledMesh, CompiledMeshDescription } from "./backend/backend.js";
import { backend } from "./backend/chosen.js";
import { deferred, Outstanding } from "./deferred.js";
import { DeviceEmbeddings } from "./device-embeddings.js";
import { FreedError, InvalidArgumentError, translated } from "./errors.js";
import { Executor, type Residency } from "./executor.js";
import { constantCompiled, detached, Handle } from "./handle.js";
import { abortSignal, type Option, readOptions, text } from "./options.js";

/** How the members of a run reduce what they have. */
export enum MultimemTier {
  /** The NVLink switch adds up, through multicast memory. */
  SwitchReduced = "switch-reduced",
  /** Every member reads its peers, in a fixed order. */
  PeerRead = "peer-read",
}

/** By the backend's numbers. */
const tiers = [MultimemTier.SwitchReduced, MultimemTier.PeerRead] as const;

/** A process's place in a run, and where the run's processes meet. */
export interface MeshOptions {
  /** This process's index among {@link hostDomainCount}: 0 is one. */
  hostDomainIndex?: number | undefined;
  /** How many processes the run has, one a host. Absent or 0: this one alone, without peers. */
  hostDomainCount?: number | undefined;
  /**
   * GPUs that one NVLink multicast domain spans: a divisor of those of the host, or a multiple of them.
   * Absent or 0: those of the host.
   */
  gpusPerMultimemDomain?: number | undefined;
  /**
   * A directory that every host sees, and that is there already. The run makes a folder in it, and
   * removes it in the end. Required with peers, unused without.
   */
  directory?: string | undefined;
  /**
   * The run's unique name, which that folder gets: one path component. Required with peers, unused
   * without.
   */
  job?: string | undefined;
  /** How long any peer is waited for, in seconds. Absent or 0: 120. */
  timeoutSeconds?: number | undefined;
}

/** How {@link Mesh.join} joins. */
export interface MeshJoinOptions extends MeshOptions {
  /** Gives up on joining when aborted: the promise rejects with the signal's reason at once. */
  signal?: AbortSignal | undefined;
}

/** What a run is, and this process's place in it. */
export interface MeshDescription extends Omit<CompiledMeshDescription, "multimemTier"> {
  /** How the run reduces: agreed by all of its processes, each of which tried. */
  readonly multimemTier: MultimemTier;
}

/** A number of 32 bits. */
const small = (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;

const index: Option<number> = (value, refuse) =>
  small(value) ? (value as number) : refuse("an index, a whole number from 0");

const some: Option<number | undefined> = (value, refuse) => {
  if (!small(value)) refuse("a whole number (0 or undefined: absent)");
  return value === 0 ? undefined : (value as number);
};

const seconds: Option<number | undefined> = (value, refuse) => {
  if (typeof value !== "number" || !(value >= 0 && value <= 1e9)) {
    refuse("a number of seconds up to 1e9 (0 or undefined: absent)");
  }
  return value === 0 ? undefined : (value as number);
};

/** Text that has an encoding: a lone surrogate has none. */
const wellFormed: Option<string> = (value, refuse) =>
  /\p{Surrogate}/u.test(text(value, refuse))
    ? refuse("a string without lone surrogates")
    : (value as string);

const bootstrapShape = {
  hostDomainIndex: index,
  hostDomainCount: some,
  gpusPerMultimemDomain: some,
  directory: wellFormed,
  job: wellFormed,
  timeoutSeconds: seconds,
};

const joinShape = { ...bootstrapShape, signal: abortSignal };

/** Only this module makes meshes. */
const key = Symbol("mesh");

/**
 * One process's place among the processes that train one model, made once and borrowed by every
 * trainer over the same executor. The GPUs of the executor are the process's members of the run.
 *
 * The processes meet in a directory that all of them see, on a network file system for one. They agree
 * on one run, or all of them are told why not: there is no server, and no process goes on alone.
 */
export class Mesh extends Handle {
  /** The backend's handle, which a trainer borrows. */
  declare readonly compiled: CompiledMesh;
  readonly #outstanding = new Outstanding();
  #freed = false;

  private constructor(caller: typeof key, compiled: CompiledMesh) {
    super();
    if (caller !== key) {
      throw new InvalidArgumentError("a Mesh is made by Mesh.bootstrap or Mesh.join, not by `new`");
    }
    constantCompiled(this, compiled);
    leaveAtExit();
  }

  /**
   * Waits, blocking the caller, until every process of the run has joined. {@link join} does not block.
   *
   * @param executor - Of GPUs: {@link Executor.forVram}.
   * @param options - The process's place. Absent: a run without peers.
   * @throws {@link ConfigMismatchError}, with one message in every process, where processes contradict each
   * other; {@link TimedOutError} naming who did not come; {@link InvalidArgumentError};
   * {@link NotFoundError} and {@link IoError} for a directory that cannot be used;
   * {@link UnsupportedError} where WebAssembly computes.
   */
  static bootstrap(executor: Executor<Residency>, options: MeshOptions = {}): Mesh {
    const config = readOptions("Mesh.bootstrap", options, bootstrapShape, {
      signal: "a call that blocks is not given up; Mesh.join takes it",
    });
    const driving = Executor.usable(executor);
    return new Mesh(
      key,
      translated(() => backend().meshBootstrap(driving, config)),
    );
  }

  /**
   * {@link bootstrap} without blocking.
   *
   * @param executor - Of GPUs: {@link Executor.forVram}. It computes calls meanwhile.
   * @param options - The process's place, and a signal to give up by.
   * @throws As {@link bootstrap}, by rejecting.
   */
  static async join(executor: Executor<Residency>, options: MeshJoinOptions = {}): Promise<Mesh> {
    const { signal, ...config } = readOptions("Mesh.join", options, joinShape);
    const driving = Executor.usable(executor);
    const compiled = await deferred<CompiledMesh>(
      backend(),
      { signal },
      {
        submit: (call, settle) => backend().meshJoin(driving, config, call, settle),
        discard: (unwanted) => backend().meshFree(unwanted),
      },
    );
    return new Mesh(key, compiled);
  }

  /**
   * What the run is, and this process's place in it.
   *
   * @throws {@link FreedError} after {@link free}.
   */
  describe(): MeshDescription {
    const compiled = usable(this, "mesh.describe");
    const found = translated(() => backend().meshDescribe(compiled));
    return { ...found, multimemTier: tiers[found.multimemTier as 0 | 1] };
  }

  /**
   * Sums vectors in place over all members of the run, in the order of the executor's calls: afterwards
   * every member has the sums. Every process of the run asks it of as many vectors, and they lie in equal
   * parts on all GPUs of the executor. Without peers, the sums are of the members in their order.
   *
   * @throws {@link UnsupportedError} naming the vendor's library that is missing, with peers;
   * {@link TimedOutError} and {@link IoError} when a peer does not come or went;
   * {@link InvalidArgumentError} for vectors that lie otherwise, once the other processes have been told;
   * {@link ConfigMismatchError}, in every process, when not all have as many vectors of as many dimensions, and
   * in the others when one was refused, after which the mesh is of use as before; {@link FreedError}. By rejecting; after a peer was late or went, whatever is in the vectors is
   * not known, and the mesh is of no use any more: free it and join again.
   */
  async allReduce(embeddings: DeviceEmbeddings): Promise<void> {
    const compiled = usable(this, "mesh.allReduce");
    const freed = DeviceEmbeddings.isFreed(embeddings);
    if (freed === undefined) {
      throw new InvalidArgumentError(
        "mesh.allReduce: expected DeviceEmbeddings, which model.encodeText of a model on GPUs returns",
      );
    }
    if (freed) throw new FreedError("the vectors were freed; encode the texts again");
    await deferred<void>(
      backend(),
      {},
      {
        submit: (call, settle) =>
          backend().meshAllReduce(compiled, embeddings.compiled, call, settle),
        outstanding: this.#outstanding,
      },
    );
  }

  /**
   * Leaves the run: removes this process's files, and as the last one the job's folder. It blocks while
   * a call of the mesh is running. Afterwards its use throws {@link FreedError}, and a second
   * `free()` does nothing.
   *
   * @throws {@link InvalidArgumentError} while a trainer borrows it, which is to be freed first.
   */
  free(): void {
    if (Mesh.isFreed(this) === undefined) detached("mesh.free");
    translated(() => backend().meshFree(this.compiled));
    this.#freed = true;
  }

  /** @internal */
  async freeAsync(): Promise<void> {
    await this.#outstanding.none();
    this.free();
  }

  /**
   * Whether a mesh was freed; `undefined` for what is none.
   *
   * @internal
   */
  static isFreed(mesh: Mesh): boolean | undefined {
    return typeof mesh === "object" && mesh !== null && #freed in mesh ? mesh.#freed : undefined;
  }
}

let leaves = false;

/** `process.exit` ends a process without freeing anything: other processes would find its files. */
function leaveAtExit(): void {
  if (leaves) return;
  leaves = true;
  process.once("exit", () => backend().meshesLeave());
}

/** The handle of a mesh that may be used. */
function usable(mesh: Mesh, where: string): CompiledMesh {
  const freed = Mesh.isFreed(mesh);
  if (freed === undefined) detached(where);
  if (freed) throw new FreedError("the mesh was freed; join again");
  return mesh.compiled;
}
