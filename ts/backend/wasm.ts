/**
 * The WebAssembly module as a {@link Backend}.
 *
 * The module computes on the calling thread and knows no event loop. Here the loop turns it: a
 * deferred call is computed in steps, a slice of them at a time, and outcomes are delivered between.
 * An instance that trapped is not called again: what it was doing may be half done.
 */
import type * as Glue from "../glue/glue.js";
import type { InnerCall, InnerExecutor, InnerFiles, InnerModel } from "../glue/glue.js";
import {
  InvalidArgumentError,
  OutOfMemoryError,
  Status,
  UformError,
  UnsupportedError,
} from "../errors.js";
import type {
  Backend,
  CompiledCall,
  CompiledEmbeddings,
  CompiledExecutor,
  CompiledFiles,
  CompiledModel,
  Settle,
  WasmModule,
} from "./backend.js";
import type { Provider } from "./chosen.js";
import { findFiles, Folder, hasFiles, noFiles } from "../disk.js";
import { instantiate } from "../modules.js";
import { gatherNow } from "../source.js";
import { areLong, joinTexts, lendTexts } from "./texts.js";
import { Turns } from "./turns.js";

let loaded: Backend | undefined;
/** What the module that is loading, or loaded, was said to be, and when it is there. */
let loading: { readonly given: unknown; readonly done: Promise<void> } | undefined;
/** Another instance, for models that the loaded one has no room for. */
let widening: Promise<Backend> | undefined;

/** @internal */
export const wasm: Provider = {
  drivesGpus: false,
  backend() {
    if (loaded !== undefined) return loaded;
    throw new UnsupportedError(
      "uform's WebAssembly module is not loaded yet: await load() or Model.open() first",
    );
  },
  async load(from) {
    while (loading !== undefined) {
      const { given, done } = loading;
      if (from === given) return done;
      try {
        await done;
      } catch {
        // That is told who asked for it.
        continue;
      }
      if (from === undefined || from === loaded?.module) return;
      throw new InvalidArgumentError(
        "load: `wasm` was given, and another module is loaded already: give it in the first call",
      );
    }
    // Where there turn out to be none, a path is told so.
    const files = hasFiles() ? findFiles().catch(() => {}) : undefined;
    const done = Promise.all([instantiate(from), files]).then(
      ([{ glue, name }]) => void (loaded = new WasmBackend(glue, name)),
      (failure) => {
        loading = undefined;
        throw failure;
      },
    );
    loading = { given: from, done };
    await done;
  },
  bringsPaths: hasFiles(),
  async wide() {
    widening ??= instantiate("wasm64").then(({ glue, name }) => new WasmBackend(glue, name));
    try {
      return await widening;
    } catch (failure) {
      widening = undefined;
      throw failure;
    }
  },
};

/** What the handles stand for. */
const inners = new WeakMap<object, unknown>();

/** An opaque handle. As a set it is refused by structured cloning, as the addon's handles are. */
function handle<T>(inner: unknown): T {
  const made = Object.freeze(Object.setPrototypeOf(new WeakSet(), null));
  inners.set(made, inner);
  return made;
}

function inner<T>(handle: object): T {
  return inners.get(handle) as T;
}

const executorOf = (handle: CompiledExecutor) => inner<InnerExecutor>(handle);
const modelOf = (handle: CompiledModel) => inner<InnerModel>(handle);
const callOf = (handle: CompiledCall) => inner<InnerCall>(handle);
const filesOf = (handle: CompiledFiles) => inner<InnerFiles>(handle);

class WasmBackend implements Backend {
  readonly #glue: typeof Glue;
  readonly module: WasmModule;
  /** Why the instance is not to be called any more. */
  #broken: UformError | undefined;
  /** Deferred calls that have not been told their outcome. */
  readonly #settles = new Map<number, (failure: unknown, value: unknown) => void>();
  #lastTicket = 0;
  /** Executors that may have a call to compute: kept, also when their user forgot them. */
  readonly #busy = new Set<InnerExecutor>();
  readonly #turns = new Turns(() => this.#step());

  constructor(glue: typeof Glue, module: WasmModule) {
    this.#glue = glue;
    this.module = module;
  }

  capabilitiesCompiled = () => this.#run((glue) => glue.capabilitiesCompiled());
  capabilitiesAvailable = () => this.#run((glue) => glue.capabilitiesAvailable());
  hardwareDescribe = () => this.#run((glue) => glue.hardwareDescribe());
  hardwareGpuDevices: Backend["hardwareGpuDevices"] = () => [];

  executorForRam: Backend["executorForRam"] = (config) =>
    handle(this.#run((glue) => glue.executorForRam(config)));
  executorForVram: Backend["executorForVram"] = () => noDevices("Executor.forVram");
  executorOnPool: Backend["executorOnPool"] = () => noThreads("Executor.onPool");
  executorInline: Backend["executorInline"] = () =>
    handle(this.#run((glue) => glue.executorInline()));
  executorDescribe: Backend["executorDescribe"] = (executor) =>
    this.#run((glue) => glue.executorDescribe(executorOf(executor)));
  executorDrain: Backend["executorDrain"] = (executor, mood) =>
    this.#run((glue) => glue.executorDrain(executorOf(executor), mood));
  executorDrainDeferred: Backend["executorDrainDeferred"] = (executor, mood, settle) =>
    this.#submit(executor, settle, (glue, executor, ticket) =>
      glue.executorDrainDeferred(executor, mood, ticket),
    );
  executorFree: Backend["executorFree"] = (executor) =>
    this.#run((glue) => glue.executorFree(executorOf(executor)));

  poolSpawn: Backend["poolSpawn"] = () => noThreads("ThreadPool.spawn");
  poolAddress: Backend["poolAddress"] = () => noThreads("pool.address");
  poolThreads: Backend["poolThreads"] = () => noThreads("pool.threads");
  poolFree: Backend["poolFree"] = () => noThreads("pool.free");

  filesCreate: Backend["filesCreate"] = (place, names) =>
    handle(this.#run((glue) => glue.filesCreate(place, names)));
  filesWanted: Backend["filesWanted"] = (files) =>
    this.#run((glue) => glue.filesWanted(filesOf(files)));
  filesAbsent: Backend["filesAbsent"] = (files, name) =>
    this.#run((glue) => glue.filesAbsent(filesOf(files), name));
  filesBegin: Backend["filesBegin"] = (files, name, size) =>
    this.#run((glue) => glue.filesBegin(filesOf(files), name, size));
  filesAppend: Backend["filesAppend"] = (files, name, bytes) =>
    this.#run((glue) => glue.filesAppend(filesOf(files), name, bytes));

  filesLend = (...[files, ...rest]: Parameters<NonNullable<Backend["filesLend"]>>) =>
    this.#run((glue) => glue.filesLend(filesOf(files), ...rest));

  modelLoadRam: Backend["modelLoadRam"] = (path, options, executor) => {
    const folder = Folder.at("Model.loadRam", path);
    try {
      const files = filesOf(gatherNow(this, folder));
      const model: CompiledModel = handle(
        this.#run((glue) => glue.modelLoadFiles(files, options, executorOf(executor))),
      );
      return folder.unlessChanged(model, () => this.modelFree(model));
    } finally {
      folder.close();
    }
  };
  modelOpenRam: Backend["modelOpenRam"] = () => noFiles("Model.open");
  modelOpenFiles: Backend["modelOpenFiles"] = (files, options, executor, call, settle) =>
    this.#submit(
      executor,
      (failure, model: InnerModel) => settle(failure, handle(model)),
      (glue, executor, ticket) =>
        glue.modelOpenFiles(filesOf(files), options, executor, this.#call(call), ticket),
    );
  modelLoadVram: Backend["modelLoadVram"] = () => noDevices("Model.loadVram");
  modelOpenVram: Backend["modelOpenVram"] = () => noDevices("Model.open");
  modelOpenFilesVram: Backend["modelOpenFilesVram"] = () => noDevices("Model.open");
  modelDescribe: Backend["modelDescribe"] = (model) =>
    this.#run((glue) => glue.modelDescribe(modelOf(model)));
  modelEncodeText: Backend["modelEncodeText"] = (model, executor, texts, options) => {
    const { utf8, ends } = joinTexts(texts);
    return this.#run((glue) =>
      glue.modelEncodeText(modelOf(model), executorOf(executor), utf8, ends, options ?? {}),
    );
  };
  modelEncodeTextDeferred: Backend["modelEncodeTextDeferred"] = (
    model,
    executor,
    texts,
    options,
    call,
    settle,
  ) => {
    if (areLong(texts)) {
      const read = lendTexts(texts);
      return this.#submit<CompiledEmbeddings>(executor, settle, (glue, executor, ticket) =>
        glue.modelEncodeLentDeferred(
          modelOf(model),
          executor,
          read,
          options ?? {},
          this.#call(call),
          ticket,
        ),
      );
    }
    const { utf8, ends } = joinTexts(texts);
    this.#submit<CompiledEmbeddings>(executor, settle, (glue, executor, ticket) =>
      glue.modelEncodeTextDeferred(
        modelOf(model),
        executor,
        utf8,
        ends,
        options ?? {},
        this.#call(call),
        ticket,
      ),
    );
  };
  modelEncodeTextVram: Backend["modelEncodeTextVram"] = () => noDevices("model.encodeTextSync");
  modelEncodeTextVramDeferred: Backend["modelEncodeTextVramDeferred"] = () =>
    noDevices("model.encodeText");
  modelTokenize: Backend["modelTokenize"] = (model, texts, specialAsText) => {
    const { utf8, ends } = joinTexts(texts);
    return this.#run((glue) => glue.modelTokenize(modelOf(model), utf8, ends, specialAsText));
  };
  modelCountTokens: Backend["modelCountTokens"] = (model, texts, specialAsText) => {
    const { utf8, ends } = joinTexts(texts);
    return this.#run((glue) => glue.modelCountTokens(modelOf(model), utf8, ends, specialAsText));
  };
  modelFree: Backend["modelFree"] = (model) => this.#run((glue) => glue.modelFree(modelOf(model)));

  vectorsToHost: Backend["vectorsToHost"] = () => noDevices("embeddings.toHost");
  vectorsFree: Backend["vectorsFree"] = () => noDevices("embeddings.free");

  meshBootstrap: Backend["meshBootstrap"] = () => noDevices("Mesh.bootstrap");
  meshJoin: Backend["meshJoin"] = () => noDevices("Mesh.join");
  meshDescribe: Backend["meshDescribe"] = () => noDevices("mesh.describe");
  meshAllReduce: Backend["meshAllReduce"] = () => noDevices("mesh.allReduce");
  meshesLeave: Backend["meshesLeave"] = () => {};
  meshFree: Backend["meshFree"] = () => noDevices("mesh.free");

  callCreate: Backend["callCreate"] = () => handle(this.#run((glue) => glue.callCreate()));
  callCancel: Backend["callCancel"] = (call) => this.#run((glue) => glue.callCancel(callOf(call)));
  callProgress: Backend["callProgress"] = (call) => {
    const [done = 0, total = 0] = Array.from(this.#run((glue) => glue.callProgress(callOf(call))));
    return [done, total];
  };

  /** The module's side of a call; for an unwatched call, a new one. */
  #call(call: CompiledCall | undefined): InnerCall {
    return callOf(call ?? this.callCreate());
  }

  /** Calls the module. Whatever it did may have ended deferred calls. */
  #run<T>(work: (glue: typeof Glue) => T): T {
    if (this.#broken !== undefined) throw this.#broken;
    try {
      return work(this.#glue);
    } catch (failure) {
      if (isRefusal(failure)) throw failure;
      throw (this.#broken = whatBroke(this.#glue, failure));
    } finally {
      if (this.#settles.size > 0) this.#turns.wake();
    }
  }

  /** Hands a deferred call to the module. */
  #submit<T>(
    executor: CompiledExecutor,
    settle: Settle<T>,
    submit: (glue: typeof Glue, executor: InnerExecutor, ticket: number) => void,
  ): void {
    const runner = executorOf(executor);
    const ticket = (this.#lastTicket = (this.#lastTicket + 1) % 2 ** 32);
    this.#run((glue) => submit(glue, runner, ticket));
    this.#settles.set(ticket, (failure, value) => settle(failure, value as T));
    this.#busy.add(runner);
    this.#turns.wake();
  }

  /** Delivers an outcome, or else computes a step; whether there was anything to do. */
  #step(): boolean {
    if (this.#settles.size === 0) {
      this.#busy.clear();
      return false;
    }
    try {
      return this.#deliver() || this.#compute();
    } catch (failure) {
      // No one else can be told.
      for (const settle of this.#settles.values()) settle(failure, undefined);
      this.#settles.clear();
      return false;
    }
  }

  #deliver(): boolean {
    const outcome = this.#run((glue) => glue.outcomeNext());
    if (outcome === undefined) return false;
    const [ticket, failure, value] = outcome;
    const settle = this.#settles.get(ticket);
    this.#settles.delete(ticket);
    settle?.(failure, value);
    return true;
  }

  /** A step of the executor whose turn it is: they take turns, as threads would. */
  #compute(): boolean {
    const [executor] = this.#busy;
    if (executor === undefined) return false;
    this.#busy.delete(executor);
    if (this.#run((glue) => glue.executorTurn(executor))) this.#busy.add(executor);
    return true;
  }
}

/** An error of the engine's, which harmed nothing, rather than a trap. */
function isRefusal(failure: unknown): boolean {
  return failure instanceof Error && "code" in failure && String(failure.code).startsWith("UFORM_");
}

function whatBroke(glue: typeof Glue, failure: unknown): UformError {
  const ending =
    "the WebAssembly instance cannot be used any more: reload the page, or start a new worker";
  try {
    const [panic, refused] = [glue.failurePanic(), glue.failureRefused()];
    if (panic === undefined && refused > 0) {
      const message = `the WebAssembly module was refused ${refused} bytes of memory; ${ending}`;
      return new OutOfMemoryError(message, { cause: failure });
    }
    const message = `the WebAssembly module failed: ${panic ?? String(failure)}; ${ending}`;
    return new UformError(Status.Internal, message, { cause: failure });
  } catch {
    const message = `the WebAssembly module failed: ${String(failure)}; ${ending}`;
    return new UformError(Status.Internal, message, { cause: failure });
  }
}

function noThreads(where: string): never {
  throw new UnsupportedError(
    `${where}: the WebAssembly build has no threads, and so no pools of them; in Node.js the native addon has`,
  );
}

function noDevices(where: string): never {
  throw new UnsupportedError(
    `${where}: the WebAssembly build drives no GPU; in Node.js the native addon does`,
  );
}
