// Compiled, never run: what the types promise, and what they refuse.
import {
  capabilitiesAvailable,
  capabilitiesCompiled,
  type CompiledExecutor,
  type CompiledModel,
  ContendedError,
  type CpuClass,
  DeviceEmbeddings,
  Embeddings,
  type EncodeTextOptions,
  type EncodeTextStreamOptions,
  Executor,
  load,
  type ModelSource,
  type WasmModule,
  type ExecutorDescription,
  type ExecutorForRamConfig,
  type ExecutorForVramConfig,
  type ExecutorOnPoolConfig,
  type GpuDevice,
  gpuDevices,
  GpuVendor,
  type LoadRamOptions,
  type LoadVramOptions,
  Mesh,
  Model,
  type ModelDescription,
  Mood,
  MultimemTier,
  type OpenOptions,
  type Pooling,
  Status,
  TextEmbeddings,
  ThreadPool,
  type ThreadPoolConfig,
  type TokenizeOptions,
  type Tokens,
  UformError,
} from "uform";
import * as native from "uform";
import * as web from "uform/web";

/** Holds for one type only: `any` and wider or narrower types fail. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const is = <_Holds extends true>() => {};

is<Same<keyof typeof native, keyof typeof web>>();
is<Same<ReturnType<typeof capabilitiesCompiled>, string>>();
is<Same<ReturnType<typeof capabilitiesAvailable>, string>>();
is<Same<ReturnType<typeof gpuDevices>, GpuDevice[]>>();
is<Same<GpuDevice["vendor"], GpuVendor>>();
is<Same<GpuDevice["gpuClass"] | GpuDevice["uuid"] | GpuDevice["pciAddress"], string | null>>();
is<Same<(typeof GpuVendor)["Apple"], GpuVendor.Apple>>();

{
  using executor = Executor.forRam({ threads: 2, cpuClass: "serial", deferredLimit: 8 });
  is<Same<typeof executor, Executor>>();
  is<Same<typeof executor.compiled, CompiledExecutor>>();
  is<Same<ReturnType<typeof executor.drain>, void>>();
  is<Same<ReturnType<typeof executor.drainAsync>, Promise<void>>>();
  executor.drain(Mood.Spinning);
  await executor.drainAsync();
}

{
  using pool = ThreadPool.spawn({ threads: 2, name: "shared" });
  is<Same<typeof pool, ThreadPool>>();
  is<Same<typeof pool.address, bigint>>();
  is<Same<typeof pool.threads, number>>();
  using executor = Executor.onPool(pool.address, { cpuClass: "serial", deferredLimit: 8 });
  is<Same<typeof executor, Executor>>();
}

await using model = await Model.open("folder", {
  signal: AbortSignal.timeout(1),
  onProgress: (done, total) => is<Same<[typeof done, typeof total], [number, number]>>(),
});
is<Same<typeof model.compiled, CompiledModel>>();
is<Same<ReturnType<typeof load>, Promise<void>>>();
await load({ wasm: new URL("https://example.org/wasm32.wasm") });
await load({ wasm: "wasm64" });
await Model.open(new URL("https://example.org/model/"), { cache: true });
({ "config.json": new Uint8Array(), "model.safetensors": new Blob([]) }) satisfies ModelSource;
[new File([], "config.json")] satisfies ModelSource;
is<Same<ReturnType<typeof Model.loadRam>, Model>>();

const description = model.describe();
is<Same<typeof description, ModelDescription>>();
is<Same<typeof description.cpuClass, CpuClass>>();
is<Same<typeof description.precision, "f32" | "bf16" | "i8">>();
is<Same<typeof description.pooling, Pooling | null>>();
is<Same<typeof description.prompts, Readonly<Record<string, string>>>>();

const texts: readonly string[] = ["a", "b"];
const found = await model.encodeText(texts, { pooling: "weighted-mean", truncate: "error" });
is<Same<typeof found, TextEmbeddings>>();
is<Same<ReturnType<typeof model.encodeTextSync>, TextEmbeddings>>();
found satisfies Embeddings;
for (const row of found) is<Same<typeof row, Float32Array>>();
is<Same<ReturnType<typeof found.toArray>, number[][]>>();
is<Same<ReturnType<typeof found.toJSON>, number[][]>>();
is<Same<ReturnType<typeof found.toBinary>, Uint8Array>>();
is<Same<ReturnType<typeof found.toInt8>, { data: Int8Array; scales: Float32Array }>>();
is<Same<typeof found.rows, number>>();
is<Same<ReturnType<typeof found.row>, Float32Array>>();
is<Same<typeof found.tokens, Uint32Array>>();
is<Same<typeof found.truncated, Uint8Array>>();
is<Same<typeof description.similarity, "cosine" | "dot" | "euclidean" | "manhattan" | undefined>>();
is<Same<ReturnType<typeof model.tokenize>, Tokens>>();
is<Same<ReturnType<typeof model.countTokens>, Uint32Array>>();
const { spans } = model.tokenize(texts, { special: "text" });
is<Same<typeof spans, Uint32Array>>();
({ special: undefined }) satisfies TokenizeOptions;
({ special: "parse", signal: undefined }) satisfies EncodeTextStreamOptions;
async function* lines() {
  yield "a";
}
for await (const found of model.encodeTextStream(lines(), { special: "text" })) {
  is<Same<typeof found, TextEmbeddings>>();
}
model.encodeTextStream(texts);
model.encodeTextStream(new Set(texts));

{
  using gpus = Executor.forVram({ devices: [0], gpuClass: "nvidia-ampere", streams: [0n] });
  is<Same<typeof gpus, Executor<"vram">>>();
  using resident = Model.loadVram("folder", { executor: gpus, devices: [0], precision: "bf16" });
  is<Same<typeof resident, Model<"vram">>>();
  const plain = await Model.open("folder");
  is<Same<typeof plain, Model>>();
  const opened = await Model.open("folder", { executor: gpus, signal: AbortSignal.timeout(1) });
  is<Same<typeof opened, Model<"vram">>>();
  using vectors = await resident.encodeText("a", { executor: gpus, dimensions: 8 });
  is<Same<typeof vectors, DeviceEmbeddings>>();
  is<Same<(typeof vectors.parts)[number]["address"], bigint>>();
  is<Same<ReturnType<typeof vectors.toHost>, Promise<TextEmbeddings>>>();
  using now = resident.encodeTextSync(["a"], { executor: gpus });
  is<Same<typeof now, DeviceEmbeddings>>();
  for await (const part of resident.encodeTextStream(["a"], { executor: gpus })) {
    is<Same<typeof part, DeviceEmbeddings>>();
  }
  const described = resident.describe();
  is<Same<typeof described.cpuClass, null>>();
  is<Same<typeof described.gpuClass, string | null>>();
  is<Same<typeof described.residency, "vram">>();
  is<Same<ReturnType<typeof gpus.describe>["kind"], "vram">>();
  await vectors[Symbol.asyncDispose]();

  // @ts-expect-error: an executor of another residency.
  resident.encodeText("a", { executor: Executor.forRam() });
  // @ts-expect-error
  model.encodeText("a", { executor: gpus });
  // @ts-expect-error
  Model.loadRam("folder", { executor: gpus });
  // @ts-expect-error
  Model.loadVram("folder", { executor: Executor.forRam() });
  // @ts-expect-error
  Model.loadVram("folder", { executor: gpus, precision: "i8" });
  // @ts-expect-error
  Model.loadVram("folder");
  // @ts-expect-error
  Model.open("folder", { executor: gpus, memoryDomains: [0] });
  // @ts-expect-error
  Model.open("folder", { devices: [0] });
  // @ts-expect-error
  Executor.forVram({ threads: 2 });
  // @ts-expect-error
  Executor.forVram({ streams: [0] });
  // @ts-expect-error
  vectors.rows = 3;
  // @ts-expect-error
  new DeviceEmbeddings();
}

const error: UformError = new ContendedError("busy", { cause: new Error() });
is<Same<typeof error.code, string>>();
is<Same<typeof error.status, Status>>();

// Options may be built with parts left undefined, also under exactOptionalPropertyTypes.
({ threads: undefined }) satisfies ExecutorForRamConfig;
({ cpuClass: undefined }) satisfies ExecutorOnPoolConfig;
({ devices: undefined, streams: undefined }) satisfies ExecutorForVramConfig;
({ executor: Executor.forVram(), gpuClass: undefined }) satisfies LoadVramOptions;
({ threads: undefined, name: undefined }) satisfies ThreadPoolConfig;
({ executor: undefined, precision: "f32" }) satisfies LoadRamOptions;
({ signal: undefined }) satisfies OpenOptions;
({ dimensions: undefined, signal: undefined }) satisfies EncodeTextOptions;

const described = Executor.forRam({ memoryDomains: [0] as const }).describe();
is<Same<typeof described, ExecutorDescription>>();
is<Same<typeof described.kind, "ram" | "pool" | "inline">>();
is<Same<typeof described.residency, "ram">>();
is<Same<typeof described.mood, Mood>>();
is<Same<typeof described.module, WasmModule | null>>();
is<Same<typeof described.counted.quota, number | null>>();
({ memoryDomains: [0, 1] }) satisfies OpenOptions;

// What is not delivered does not compile.
// @ts-expect-error
Executor.forRam({ memoryDomains: 0 });
// @ts-expect-error
described.cores.push(1);
// @ts-expect-error
Executor.forRam({ threads: "2" });
// @ts-expect-error
Executor.forRam(null);
// @ts-expect-error
Executor.forRam({ cpuClass: "haswell" });
// @ts-expect-error
description.bytes = 0;
// @ts-expect-error
Executor.onPool(1);
// @ts-expect-error
Executor.onPool(1n, { threads: 2 });
// @ts-expect-error
new ThreadPool();
// @ts-expect-error
new Executor();
// @ts-expect-error
new Model();
Model.loadRam(new URL("file:///model"));
// @ts-expect-error
Model.open({ "config.json": "text" });
// @ts-expect-error
load({ wasm: "wasm32.wasm" });
// @ts-expect-error
Model.loadRam("folder", { precision: "int8" });
// @ts-expect-error
Model.loadRam("folder", { signal: AbortSignal.timeout(1) });
// @ts-expect-error
model.encodeTextSync("x", { onProgress: () => {} });
// @ts-expect-error
model.encodeText([1]);
// @ts-expect-error
model.encodeText("x", { pooling: "average" });
// @ts-expect-error
model.encodeText("x", { truncate: false });
// @ts-expect-error
found.rows = 3;
// @ts-expect-error
model.encodeTextStream([1]);
// @ts-expect-error
model.encodeTextStream(texts, { onProgress: () => {} });
// @ts-expect-error
model.tokenize("x", { special: "plain" });
// @ts-expect-error
model.compiled = found;
// @ts-expect-error: a handle of one kind is not one of another.
is<Same<CompiledExecutor, CompiledModel>>();
// @ts-expect-error: internal.
model.freeAsync();

{
  const executor = Executor.forVram();
  using mesh = Mesh.bootstrap(executor, { directory: "/shared", job: undefined });
  is<Same<ReturnType<typeof Mesh.join>, Promise<Mesh>>>();
  is<Same<ReturnType<typeof mesh.allReduce>, Promise<void>>>();
  const { multimemTier, gpuClass, firstGpuIndex } = mesh.describe();
  is<Same<typeof multimemTier, MultimemTier>>();
  is<Same<typeof gpuClass, string | null>>();
  is<Same<typeof firstGpuIndex, number>>();
  await Mesh.join(executor, { signal: AbortSignal.timeout(1) });
  // Whether an executor drives devices may be known only while the program runs.
  const either = gpuDevices().length > 0 ? Executor.forVram() : Executor.forRam();
  await Mesh.join(either);
  const model = await Model.open("folder", { executor: either, precision: "bf16" });
  const vectors = await model.encodeText("a", { executor: either });
  is<Same<typeof vectors, TextEmbeddings | DeviceEmbeddings>>();
}
