import type {
  Backend,
  CompiledDeviceEmbeddings,
  CompiledModel,
  EncodeOptions,
  LoadOptions,
  VramLoadOptions,
} from "./backend/backend.js";
import {
  backend,
  backendOf,
  bringsPaths,
  loadBackend,
  placed,
  wideBackend,
} from "./backend/chosen.js";
import { deferred, type DeferredOptions, Outstanding, unlessAborted } from "./deferred.js";
import { describe, type ModelDescription } from "./description.js";
import { DeviceEmbeddings } from "./device-embeddings.js";
import { Folder } from "./disk.js";
import { TextEmbeddings } from "./embeddings.js";
import {
  fromBackend,
  FreedError,
  InvalidArgumentError,
  OutOfMemoryError,
  translated,
  UnsupportedError,
} from "./errors.js";
import { compiledExecutor, Executor, executorOption, type Residency } from "./executor.js";
import { constantCompiled, detached, Handle } from "./handle.js";
import type { CpuClass } from "./hardware.js";
import {
  abortSignal,
  cpuClass,
  flag,
  ids,
  isRevoked,
  oneOf,
  type Option,
  positive,
  progressListener,
  readArgument,
  readOptions,
  refuse,
  text,
} from "./options.js";
import { isFileUrl, pathOption } from "./path.js";
import { ownView } from "./realm.js";
import {
  gather,
  type Gathered,
  type GatherOptions,
  type ModelSource,
  NoRoom,
  type Place,
  sourceOption,
} from "./source.js";
import { textSource, textStream } from "./text_stream.js";

const precisions = ["auto", "f32", "bf16", "i8"] as const;
const poolings = ["mean", "cls", "max", "last", "mean-sqrt", "weighted-mean"] as const;

/**
 * The numbers the encoder's dense layers multiply; all else is 32-bit floats. `"auto"`: `"bf16"` where the
 * class multiplies it in matrix units (`"intel-sapphire"` and up), else `"f32"`. Every class
 * computes every precision, to the same bits in each dense layer; without instructions for it, slowly.
 * `"i8"`: whole numbers of 8 bits with a scale for each output's weights and one for each token, found as
 * it is computed; a token's few outliers have 16 bits. Nothing is calibrated.
 */
export type Precision = (typeof precisions)[number];

/** How the vectors of a text's tokens become one. */
export type Pooling = (typeof poolings)[number];

/** How {@link Model.loadRam} loads. */
export interface LoadRamOptions {
  /** Which threads read and pack the weights. Default: two temporary threads. */
  executor?: Executor | undefined;
  /**
   * The memory domains (NUMA nodes, by the system's ids) the weights lie in, by turns where there
   * are several. Absent or `[]`: those the executor was placed in, else wherever the system puts them.
   */
  memoryDomains?: readonly number[] | undefined;
  /** The class of kernels. Absent: the executor's where it is pinned, else the CPU's own. */
  cpuClass?: CpuClass | undefined;
  /** The numbers to compute in. Absent: `"auto"`. */
  precision?: Precision | undefined;
}

/** How {@link Model.loadVram} loads. */
export interface LoadVramOptions {
  /** Whose devices get the weights, and whose threads read them. */
  executor: Executor<"vram">;
  /**
   * Which of the executor's devices, by their positions in {@link gpuDevices}. Each gets all of the
   * weights, and a share of every batch. Absent or `[]`: all of them.
   */
  devices?: readonly number[] | undefined;
  /** The class of kernels. Absent: the executor's where it is pinned, else each device's own. */
  gpuClass?: string | undefined;
  /**
   * The numbers to compute in. Absent: `"auto"`, which is `"bf16"` where the devices' matrix units
   * multiply it and the model's sizes suit them, else `"f32"`.
   */
  precision?: Exclude<Precision, "i8"> | undefined;
}

/**
 * How {@link Model.open} loads: as {@link Model.loadVram} on an executor of GPUs, else as
 * {@link Model.loadRam}. Progress is in bytes.
 */
export type OpenOptions<R extends Residency = "ram"> = {
  ram: LoadRamOptions & OpenDeferredOptions;
  vram: LoadVramOptions & OpenDeferredOptions;
}[R];

/** How {@link Model.open} loads where only the program knows, while it runs, what its executor drives. */
export interface OpenAnywhereOptions extends OpenDeferredOptions {
  /** Who loads, and where the weights go. */
  executor: Executor<Residency>;
  /** What the encoder's dense layers multiply. Absent: `"auto"`. */
  precision?: Precision | undefined;
}

/** What {@link Model.open} takes besides. */
export interface OpenDeferredOptions extends DeferredOptions {
  /**
   * Keeps what is taken from a URL in the browser's cache, and takes it from there the next time,
   * as long as the server tells the same size or cannot be reached. Absent: `false`.
   */
  cache?: boolean | undefined;
}

/** How {@link Model.encodeTextSync} encodes. Absent: what the model's own files say. */
export interface EncodeTextSyncOptions<R extends Residency = "ram"> {
  /**
   * Who computes, of the model's residency. Absent: the caller for an immediate call, else one thread the
   * library keeps; a model on GPUs needs one.
   */
  executor?: Executor<R> | undefined;
  /** How the vectors of a text's tokens become one. */
  pooling?: Pooling | undefined;
  /** Whether each vector is scaled to length 1. */
  normalize?: boolean | undefined;
  /** Keeps this many leading numbers of each vector, before normalising. Absent: all. */
  dimensions?: number | undefined;
  /** The name of a prompt in the model's files, which is put before each text. */
  prompt?: string | undefined;
  /** A prompt as it is, which is put before each text. */
  promptText?: string | undefined;
  /** What becomes of a text over the token limit. `true` (or absent): cut. `"error"`: refused. */
  truncate?: true | "error" | undefined;
  /**
   * What becomes of a special token that a text spells, such as `[SEP]`. `"parse"` (or absent): it is that token.
   * `"text"`: it is text like any other, which is what texts of strangers are; so is what a prompt spells.
   */
  special?: "parse" | "text" | undefined;
}

/** How {@link Model.encodeText} encodes. Progress is in texts. */
export interface EncodeTextOptions<R extends Residency = "ram">
  extends EncodeTextSyncOptions<R>, DeferredOptions {}

/** How {@link Model.encodeTextStream} encodes. */
export type EncodeTextStreamOptions<R extends Residency = "ram"> = Omit<
  EncodeTextOptions<R>,
  "onProgress"
>;

/** How {@link Model.tokenize} and {@link Model.countTokens} read texts. */
export type TokenizeOptions = Pick<EncodeTextSyncOptions, "special">;

/** The tokens of texts, and where they are: {@link Model.tokenize}. */
export interface Tokens {
  /** The ids of all texts, one text after the other. */
  readonly ids: Uint32Array;
  /** Where each text's ids begin in {@link ids}, and, last, how many there are: a text more than there are texts. */
  readonly offsets: Uint32Array;
  /**
   * Two numbers a token: where it starts in its text and where it ends, in UTF-16 units, so that
   * `text.slice(start, end)` is what became of it. Both are 0 for the special tokens that are added around a text.
   * Tokens that share a character, as the bytes of an emoji do, have all of it.
   */
  readonly spans: Uint32Array;
}

/** What a model's vectors come as: in host memory, or where GPUs computed them. */
type Found<R extends Residency> = { ram: TextEmbeddings; vram: DeviceEmbeddings }[R];

const loadShape = {
  executor: executorOption,
  memoryDomains: ids,
  cpuClass,
  precision: oneOf(precisions),
};
const loadVramShape = {
  executor: executorOption,
  devices: ids,
  gpuClass: text,
  precision: oneOf(precisions),
};
const deferredShape = { signal: abortSignal, onProgress: progressListener };
const encodeShape = {
  executor: executorOption,
  pooling: oneOf(poolings),
  normalize: flag,
  dimensions: positive,
  prompt: text,
  promptText: text,
  truncate: oneOf([true, "error"]),
  special: oneOf(["parse", "text"]),
};
const tokenizeShape = { special: encodeShape.special };
const streamShape = { ...encodeShape, signal: abortSignal };
/** What {@link Model.encodeTextStream} does not take. */
const onlyWhole = {
  onProgress: "the number of texts is not known before the source ends; count rows as they come",
};
/** Options {@link Model.encodeTextSync} rejects. */
const onlyDeferred = {
  signal: "an immediate call cannot be given up; encodeText takes it",
  onProgress: "an immediate call holds the thread that would be told; encodeText takes it",
};
const openShape = { ...loadShape, ...loadVramShape, cache: flag, ...deferredShape };
const encodeDeferredShape = { ...encodeShape, ...deferredShape };

/** Options of other libraries, and what serves here instead. */
const instead = {
  revision:
    "a model is a folder or a URL: download that revision, `hf download NAME --revision R --local-dir " +
    "FOLDER`, and pass the folder",
  token: "nothing is downloaded from a hub: `hf download` takes a token",
  cacheDir: "nothing is downloaded from a hub: pass the model's folder",
  dtype: "`precision` says what is computed in",
  quantized: '`precision: "i8"` computes in 8 bits',
  device: "`executor` says where it is computed, and `devices` on which of its GPUs",
};

/** Options {@link Model.loadRam} rejects. */
const onlyOpen = {
  ...instead,
  cache: "a path has nothing to keep; Model.open takes it for a URL",
};

const placeOption: Option<string | Place> = (value, refuse) =>
  typeof value === "string" || isFileUrl(value)
    ? pathOption(value, refuse)
    : sourceOption(value, refuse);

/** What models of the other residency take. */
const elsewhere = { ram: ["devices", "gpuClass"], vram: ["memoryDomains", "cpuClass"] } as const;
const residencies = {
  ram: { of: "in host memory", by: "no executor, or one of Executor.forRam or Executor.onPool" },
  vram: { of: "on GPUs", by: "an executor of Executor.forVram" },
} as const;

/** Refuses options that a model of this residency does not have. */
function refuseElsewhere(residency: Residency, given: Readonly<Record<string, unknown>>): void {
  const option = elsewhere[residency].find((option) => given[option] !== undefined);
  if (option === undefined) return;
  const { of, by } = residencies[residency === "ram" ? "vram" : "ram"];
  throw new InvalidArgumentError(
    `Model.open: \`${option}\` is for a model ${of}, and by its executor this one is ${residencies[residency].of}: ` +
      `leave it out, or pass ${by}`,
  );
}

/** Only this module makes models. */
const key = Symbol("model");

/**
 * A text embedding model: weights, tokenizer and settings, read once from its files.
 *
 * Its vectors do not depend on the texts beside a text, the number of threads, or the executor.
 */
export class Model<R extends Residency = "ram"> extends Handle {
  /** The backend's handle. */
  declare readonly compiled: CompiledModel;
  readonly #residency: R;
  readonly #outstanding = new Outstanding();
  #freed = false;

  private constructor(caller: typeof key, compiled: CompiledModel, residency: R) {
    super();
    if (caller !== key) {
      throw new InvalidArgumentError(
        "a Model is made by Model.loadRam, Model.loadVram or Model.open, not by `new`",
      );
    }
    this.#residency = residency;
    constantCompiled(this, compiled);
  }

  /**
   * Loads a model into host memory while the caller waits.
   *
   * @param path - A folder in the Hugging Face / sentence-transformers layout, or a `.safetensors`
   * file with its `config.json` and `tokenizer.json` beside it; or the `file:` URL of either.
   * @param options - Where and how; every part has a default.
   * @throws {@link NotFoundError}, {@link CorruptModelError}, {@link IoError} or
   * {@link UnsupportedError} for the files; {@link InvalidArgumentError} for the arguments;
   * {@link ContendedError} when the executor is busy.
   */
  static loadRam(path: string | URL, options: LoadRamOptions = {}): Model {
    const checked = readArgument("Model.loadRam", "path", path, pathOption);
    const { executor, ...rest } = readOptions("Model.loadRam", options, loadShape, onlyOpen);
    const runner = compiledExecutor(executor);
    return new Model(
      key,
      translated(() => backend().modelLoadRam(checked, rest, runner)),
      "ram",
    );
  }

  /**
   * Loads a model into the memory of an executor's GPUs while the caller waits. Any executor that drives
   * one of the devices computes it.
   *
   * @param path - As for {@link loadRam}.
   * @param options - Whose devices, which of them, and how.
   * @throws As {@link loadRam}; {@link InvalidArgumentError} for an executor that drives no GPU, devices that
   * are not its, or a class they cannot run; {@link UnsupportedError} for a precision or model the
   * devices' kernels do not compute; {@link OutOfMemoryError} for their memory;
   * {@link DeviceFaultError}.
   */
  static loadVram(path: string | URL, options: LoadVramOptions): Model<"vram"> {
    const where = "Model.loadVram";
    const checked = readArgument(where, "path", path, pathOption);
    const { executor, ...rest } = readOptions(where, options, loadVramShape, onlyOpen);
    const devices = "an Executor made by Executor.forVram, whose devices get the weights,";
    if (executor === undefined) refuse(where, "`executor`", devices, executor);
    const runner = compiledExecutor(executor);
    return new Model<"vram">(
      key,
      translated(() => backend().modelLoadVram(checked, rest, runner)),
      "vram",
    );
  }

  /**
   * Loads a model without blocking: the files are read on the executor's threads, and the event
   * loop stays free. Where WebAssembly computes, it {@link load}s the module first.
   *
   * @param source - A path as for {@link loadRam}, where there are files: in Node.js, Deno and Bun; or the URL of
   * the model's folder, its files, or a record of them. From a path the addon's joins the executor's queue at
   * once, others when their files are there.
   * @param options - Where and how; every part has a default.
   * @throws As {@link loadRam}, by rejecting; {@link DeferredLimitError} when too many calls are
   * outstanding on the executor; {@link IoError} for what cannot be fetched.
   */
  static open(source: string | ModelSource, options: OpenOptions<"vram">): Promise<Model<"vram">>;
  static open(source: string | ModelSource, options?: OpenOptions): Promise<Model>;
  static open(
    source: string | ModelSource,
    options: OpenAnywhereOptions,
  ): Promise<Model<Residency>>;
  static async open(
    source: string | ModelSource,
    options: OpenOptions<Residency> | OpenAnywhereOptions = {},
  ): Promise<Model<Residency>> {
    const checked = readArgument("Model.open", "source", source, placeOption);
    const { executor, signal, onProgress, cache, ...rest } = readOptions(
      "Model.open",
      options,
      openShape,
      instead,
    );
    const residency = Executor.residency(executor);
    refuseElsewhere(residency, rest);
    const how: Opening = { executor, residency, signal, onProgress, cache, rest };
    if (typeof checked !== "string") {
      return new Model<Residency>(key, await openFiles(checked, how), residency);
    }
    if (cache === true) refuse("Model.open", "`cache`", "`false` for a path", cache);
    const open = bringsPaths() ? openFolder : openPath;
    return new Model<Residency>(key, await open(checked, how), residency);
  }

  /**
   * Vectors of texts, without blocking. The texts are copied before this returns.
   *
   * @param texts - One text or many. `""` is a text like any other. Unpaired surrogates are
   * read as U+FFFD.
   * @param options - Where and how; absent parts come from the model's own files.
   * @returns One row a text, in order. An empty array gives zero rows. Of a model on GPUs, the vectors
   * stay in their memory.
   * @throws By rejecting: {@link InvalidArgumentError} for the arguments,
   * {@link DeferredLimitError} when too many calls are outstanding on the executor,
   * {@link FreedError} when the model or executor was freed, or the signal's reason.
   */
  async encodeText(
    texts: string | readonly string[],
    options: EncodeTextOptions<R> = {},
  ): Promise<Found<R>> {
    const where = "model.encodeText";
    const model = usable(where, this);
    const checked = readTexts(where, texts);
    const read = readOptions(where, options, encodeDeferredShape);
    const engine = backendOf(model);
    const runner = compiledExecutor(read.executor, engine);
    if (this.#residency === "vram") {
      const found = await deferred<CompiledDeviceEmbeddings>(engine, read, {
        submit: (call, settle) =>
          engine.modelEncodeTextVramDeferred(
            model,
            runner,
            checked,
            encodeOptions(read),
            call,
            settle,
          ),
        discard: (unwanted) => engine.vectorsFree(unwanted.vectors),
        outstanding: this.#outstanding,
      });
      return DeviceEmbeddings.of(found) as Found<R>;
    }
    const parts = await deferred<EmbeddingsParts>(engine, read, {
      submit: (call, settle) =>
        engine.modelEncodeTextDeferred(model, runner, checked, encodeOptions(read), call, settle),
      outstanding: this.#outstanding,
    });
    return new TextEmbeddings(parts) as Found<R>;
  }

  /**
   * Vectors of texts, while the caller waits.
   *
   * @param texts - As for {@link encodeText}.
   * @param options - As for {@link encodeText}, without `signal` and `onProgress`.
   * @throws {@link InvalidArgumentError} for the arguments, {@link ContendedError} when another call
   * holds the executor or is queued on it, {@link FreedError} when the model or executor was freed.
   */
  encodeTextSync(
    texts: string | readonly string[],
    options: EncodeTextSyncOptions<R> = {},
  ): Found<R> {
    const where = "model.encodeTextSync";
    const model = usable(where, this);
    const checked = readTexts(where, texts);
    const read = readOptions(where, options, encodeShape, onlyDeferred);
    const engine = backendOf(model);
    const runner = compiledExecutor(read.executor, engine);
    const encoding = encodeOptions(read);
    if (this.#residency === "vram") {
      const encode = () => engine.modelEncodeTextVram(model, runner, checked, encoding);
      return DeviceEmbeddings.of(translated(encode)) as Found<R>;
    }
    const encode = () => engine.modelEncodeText(model, runner, checked, encoding);
    return new TextEmbeddings(translated(encode)) as Found<R>;
  }

  /**
   * Vectors of the texts of any source, a batch at a time, as fast as those of one large call and in bounded
   * memory: two batches are in flight while a third is read, each of at most 1024 texts, and of a million UTF-16
   * units and a text. While nothing is computed, a batch does not wait for a slow source.
   *
   * To stop it, leave the loop: calls in flight are given up, and the source's `return()` is called. An error of the
   * source comes out after the vectors of the texts before it.
   *
   * @param source - An iterable or async iterable of strings: an array, a generator, the lines of a file.
   * @param options - As for {@link encodeText}, without `onProgress`.
   * @returns A generator of embeddings in the order of the source; all their rows together are its texts. Those of a
   * model on GPUs are its consumer's to free.
   * @throws As {@link encodeText}, when the first vectors are asked for; {@link InvalidArgumentError} for what is
   * not a string in the source, by its position.
   */
  encodeTextStream(
    source: Iterable<string> | AsyncIterable<string>,
    options: EncodeTextStreamOptions<R> = {},
  ): AsyncGenerator<Found<R>, void, undefined> {
    const where = "model.encodeTextStream";
    return textStream<Found<R>>(() => {
      usable(where, this);
      const { signal, ...rest } = readOptions(where, options, streamShape, onlyWhole);
      const how = rest as EncodeTextSyncOptions<R>;
      return {
        where,
        source: readArgument(where, "source", source, textSource),
        signal,
        encode: (texts, signal) => this.encodeText(texts, { ...how, signal }),
        discard: (found) => {
          if (found instanceof DeviceEmbeddings) found.free();
        },
      };
    });
  }

  /**
   * The tokens of texts, as {@link encodeText} embeds them without a prompt and before any cut, and where each
   * is in its text. Nothing is encoded; the caller waits, tens of milliseconds for each hundred kilobytes of text.
   *
   * @param texts - As for {@link encodeText}.
   * @param options - `special`: whether special tokens that a text spells are read as such.
   * @throws {@link InvalidArgumentError} for the arguments, {@link FreedError} when the model was freed,
   * {@link OutOfMemoryError}.
   */
  tokenize(texts: string | readonly string[], options: TokenizeOptions = {}): Tokens {
    const where = "model.tokenize";
    const model = usable(where, this);
    const checked = readTexts(where, texts);
    const { special } = readOptions(where, options, tokenizeShape);
    const engine = backendOf(model);
    const found = translated(() => engine.modelTokenize(model, checked, special === "text"));
    const [ids, offsets, spans] = found.map((numbers) => ownView(Uint32Array, numbers));
    return { ids: ids!, offsets: offsets!, spans: spans! };
  }

  /**
   * How many tokens each text has, as {@link TextEmbeddings.tokens} tells without a prompt: special ones
   * included, before any cut. Nothing is encoded, and no places are found, which is faster than
   * {@link tokenize}; the caller waits.
   *
   * @param texts - As for {@link encodeText}.
   * @param options - As for {@link tokenize}.
   * @throws As {@link tokenize}.
   */
  countTokens(texts: string | readonly string[], options: TokenizeOptions = {}): Uint32Array {
    const where = "model.countTokens";
    const model = usable(where, this);
    const checked = readTexts(where, texts);
    const { special } = readOptions(where, options, tokenizeShape);
    const engine = backendOf(model);
    const counts = translated(() => engine.modelCountTokens(model, checked, special === "text"));
    return ownView(Uint32Array, counts);
  }

  /**
   * What the model is, and how it computes.
   *
   * @throws {@link FreedError} when the model was freed.
   */
  describe(): ModelDescription<R> {
    const model = usable("model.describe", this);
    const engine = backendOf(model);
    const found = translated(() => engine.modelDescribe(model));
    return describe<R>(found, engine.module ?? null);
  }

  /**
   * Waits, blocking the caller, for the model's calls in flight, and releases its weights; `await
   * using` does not block. Afterwards its use throws {@link FreedError}, and a second
   * `free()` does nothing.
   */
  free(): void {
    if (Model.isFreed(this) === undefined) detached("model.free");
    this.#freed = true;
    translated(() => backendOf(this.compiled).modelFree(this.compiled));
  }

  /** @internal */
  async freeAsync(): Promise<void> {
    // From here on nothing is accepted, so that freeing finds nothing to wait for.
    this.#freed = true;
    await this.#outstanding.none();
    this.free();
  }

  /**
   * Whether a model was freed; `undefined` for what is not a model.
   *
   * @internal
   */
  static isFreed(model: Model<Residency>): boolean | undefined {
    return typeof model === "object" && model !== null && #freed in model
      ? model.#freed
      : undefined;
  }
}

/** What {@link Model.open} was asked for. */
interface Opening extends GatherOptions {
  readonly executor: Executor<Residency> | undefined;
  readonly residency: Residency;
  readonly rest: LoadOptions & VramLoadOptions;
}

/** A model from a path that the backend finds by itself. */
function openPath(path: string, how: Opening): Promise<CompiledModel> {
  const { executor, residency, signal, onProgress, rest } = how;
  const engine = backend();
  const runner = compiledExecutor(executor);
  return deferred<CompiledModel>(
    engine,
    { signal, onProgress },
    {
      submit: (call, settle) =>
        residency === "vram"
          ? engine.modelOpenVram(path, rest, runner, call, settle)
          : engine.modelOpenRam(path, rest, runner, call, settle),
      discard: (unwanted) => engine.modelFree(unwanted),
    },
  );
}

/** A model from a path whose files are brought to the backend. */
async function openFolder(path: string, how: Opening): Promise<CompiledModel> {
  how.signal?.throwIfAborted();
  await unlessAborted(how.signal, loaded());
  const folder = Folder.at("Model.open", path);
  try {
    const compiled = await openFiles(folder, how);
    return folder.unlessChanged(compiled, () => backendOf(compiled).modelFree(compiled));
  } finally {
    folder.close();
  }
}

const loaded = () =>
  loadBackend().catch((failure) => {
    throw fromBackend(failure);
  });

/** A model whose files are brought to the backend. */
async function openFiles(source: Place, how: Opening): Promise<CompiledModel> {
  const { executor, residency, signal, onProgress, cache, rest } = how;
  signal?.throwIfAborted();
  await unlessAborted(signal, loaded());
  compiledExecutor(executor);
  // A folder's weights are read where they lie, by the call that opens the model.
  const [brought, read] =
    source instanceof Folder ? [undefined, onProgress] : [onProgress, undefined];
  const told = { signal, onProgress: brought, cache };
  const { engine, files, bytes } = await gatherWhereItFits(source, told, executor);
  const runner = compiledExecutor(executor, engine);
  const compiled = await deferred<CompiledModel>(
    engine,
    { signal, onProgress: read },
    {
      submit: (call, settle) =>
        residency === "vram"
          ? engine.modelOpenFilesVram(files, rest, runner, call, settle)
          : engine.modelOpenFiles(files, rest, runner, call, settle),
      discard: (unwanted) => engine.modelFree(unwanted),
    },
  );
  placed(compiled, engine);
  try {
    await brought?.(bytes, bytes);
  } catch (thrown) {
    engine.modelFree(compiled);
    throw thrown;
  }
  return compiled;
}

/** A model's files, in the loaded module or in one that has room for them. */
async function gatherWhereItFits(
  source: Place,
  told: GatherOptions,
  executor: Executor<Residency> | undefined,
): Promise<Gathered & { engine: Backend }> {
  const engine = backend();
  try {
    return { engine, ...(await gather(engine, source, told)) };
  } catch (failure) {
    if (!(failure instanceof NoRoom)) throw failure;
    const large = `Model.open: the model's files have ${failure.bytes} bytes, too many for the module ${engine.module}`;
    if (executor !== undefined) {
      throw new OutOfMemoryError(
        `${large}, whose calls the executor orders: leave \`executor\` out, or await load({ wasm: "wasm64" }) ` +
          "before anything else",
      );
    }
    const wide = await wideBackend().catch((failure: unknown) => {
      if (!(failure instanceof UnsupportedError)) throw failure;
      throw new UnsupportedError(`${large}: ${failure.message}`, { cause: failure });
    });
    return { engine: wide, ...(await gather(wide, source, told)) };
  }
}

/** The handle of a model that may be used. */
function usable(where: string, model: Model<Residency>): CompiledModel {
  const freed = Model.isFreed(model);
  if (freed === undefined) detached(where);
  if (freed) throw new FreedError("the model was freed; load it again");
  return model.compiled;
}

type EmbeddingsParts = ConstructorParameters<typeof TextEmbeddings>[0];
type Encoding = Omit<EncodeTextSyncOptions, "executor">;

function encodeOptions({
  pooling,
  normalize,
  dimensions,
  prompt,
  promptText,
  truncate,
  special,
}: Encoding): EncodeOptions | undefined {
  const refuseLongTexts = truncate === "error" || undefined;
  const specialAsText = special === "text" || undefined;
  const given = [
    pooling,
    normalize,
    dimensions,
    prompt,
    promptText,
    refuseLongTexts,
    specialAsText,
  ];
  if (given.every((option) => option === undefined)) return undefined;
  return {
    pooling,
    normalize,
    dimensions,
    prompt,
    promptText,
    refuseLongTexts,
    specialAsText,
  };
}

function readTexts(where: string, texts: unknown): string[] {
  if (typeof texts === "string") return [texts];
  if (isRevoked(texts) || !Array.isArray(texts))
    refuse(where, "`texts`", "a string or an array of strings", texts);
  return Array.from(texts as unknown[], (text, index) => {
    if (typeof text !== "string") refuse(where, `\`texts[${index}]\``, "a string", text);
    return text;
  });
}
