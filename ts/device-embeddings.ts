import type { CompiledDeviceEmbeddings, CompiledVectors } from "./backend/backend.js";
import { backend } from "./backend/chosen.js";
import { deferred } from "./deferred.js";
import { TextEmbeddings } from "./embeddings.js";
import { FreedError, InvalidArgumentError, translated } from "./errors.js";
import { constant, constantCompiled, detached, Handle } from "./handle.js";
import { ownView } from "./realm.js";

/** Rows of {@link DeviceEmbeddings} on one device. */
export interface DevicePart {
  /** The device's position in {@link gpuDevices}. */
  readonly device: number;
  /**
   * Where the first row begins in the device's memory: `rows * dimensions` 32-bit floats, row by row, for
   * whoever works on it in the device's primary context. It is valid until the vectors are freed.
   */
  readonly address: bigint;
  /** How many rows. */
  readonly rows: number;
}

/** Only this module makes them. */
const key = Symbol("device embeddings");

/**
 * Vectors of texts that stay in the memory of the GPUs which computed them, one row a text, in the
 * order of the texts. They keep that memory, also when the executor was freed, until they are freed
 * themselves: with `using`, by {@link free}, or some time after they were forgotten.
 */
export class DeviceEmbeddings extends Handle {
  /** How many texts there were. */
  declare readonly rows: number;
  /** How long each vector is. */
  declare readonly dimensions: number;
  /** Where the rows are: each part has the rows that follow those of the part before it. */
  declare readonly parts: readonly DevicePart[];
  /** How many tokens each text has, special ones counted, before any cut. */
  declare readonly tokens: Uint32Array;
  /** For each text 1 when it was cut at the model's token limit, else 0. */
  declare readonly truncated: Uint8Array;
  /** The backend's handle. @internal */
  declare readonly compiled: CompiledVectors;
  #freed = false;

  private constructor(caller: typeof key, found: CompiledDeviceEmbeddings) {
    super();
    if (caller !== key) {
      throw new InvalidArgumentError(
        "DeviceEmbeddings are made by model.encodeText of a model on GPUs, not by `new`",
      );
    }
    constantCompiled(this, found.vectors);
    for (const part of ["rows", "dimensions", "parts"] as const) constant(this, part, found[part]);
    constant(this, "tokens", ownView(Uint32Array, found.tokens));
    constant(this, "truncated", ownView(Uint8Array, found.truncated));
  }

  /**
   * Copies the vectors to host memory, without blocking: on a thread of its own, so that copies wait for
   * each other and for no other call.
   *
   * @throws {@link FreedError} after {@link free}; {@link DeviceFaultError} when a device has faulted
   * since; {@link OutOfMemoryError}. By rejecting.
   */
  async toHost(): Promise<TextEmbeddings> {
    const freed = DeviceEmbeddings.isFreed(this);
    if (freed === undefined) detached("embeddings.toHost");
    if (freed) throw new FreedError("the vectors were freed; encode the texts again");
    const found = await deferred<ConstructorParameters<typeof TextEmbeddings>[0]>(
      backend(),
      {},
      { submit: (call, settle) => backend().vectorsToHost(this.compiled, call, settle) },
    );
    return new TextEmbeddings(found);
  }

  /**
   * Gives the memory back, when copies to the host that were begun are done. The addresses are not to be
   * used any more. A second `free()` does nothing.
   */
  free(): void {
    if (DeviceEmbeddings.isFreed(this) === undefined) detached("embeddings.free");
    this.#freed = true;
    translated(() => backend().vectorsFree(this.compiled));
  }

  /** @internal */
  async freeAsync(): Promise<void> {
    this.free();
  }

  /**
   * The vectors that a backend returned.
   *
   * @internal
   */
  static of(found: CompiledDeviceEmbeddings): DeviceEmbeddings {
    return new DeviceEmbeddings(key, found);
  }

  /**
   * Whether they were freed; `undefined` for what are none.
   *
   * @internal
   */
  static isFreed(embeddings: DeviceEmbeddings): boolean | undefined {
    return typeof embeddings === "object" && embeddings !== null && #freed in embeddings
      ? embeddings.#freed
      : undefined;
  }
}
