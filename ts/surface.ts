/**
 * Local text embeddings, on threads placed by you.
 *
 * An {@link Executor} runs: it owns threads, and drives GPUs. A {@link Model} owns: its weights. A verb of a model,
 * such as {@link Model.encodeText}, takes the executor to run on among its options.
 *
 * @packageDocumentation
 */
/// <reference lib="esnext.disposable" preserve="true" />

export type {
  CompiledExecutor,
  CompiledMesh,
  CompiledMeshDescription,
  CompiledModel,
  CoreCount,
  WasmModule,
} from "./backend/backend.js";
export type { ModelDescription } from "./description.js";
export { DeviceEmbeddings, type DevicePart } from "./device-embeddings.js";
export { Embeddings, TextEmbeddings } from "./embeddings.js";
export {
  ConfigMismatchError,
  ContendedError,
  CorruptModelError,
  DeferredLimitError,
  DeviceFaultError,
  FreedError,
  InvalidArgumentError,
  IoError,
  NotFoundError,
  OutOfMemoryError,
  Status,
  TimedOutError,
  UformError,
  UnsupportedError,
} from "./errors.js";
export {
  type DrivenDevice,
  Executor,
  type ExecutorDescription,
  type ExecutorForRamConfig,
  type ExecutorForVramConfig,
  type ExecutorOnPoolConfig,
  Mood,
  type Residency,
} from "./executor.js";
export {
  capabilitiesAvailable,
  capabilitiesCompiled,
  type CpuClass,
  type GpuDevice,
  gpuDevices,
  GpuVendor,
} from "./hardware.js";
export {
  type EncodeTextOptions,
  type EncodeTextSyncOptions,
  Model,
  type LoadRamOptions,
  type LoadVramOptions,
  type OpenAnywhereOptions,
  type OpenOptions,
  type EncodeTextStreamOptions,
  type Pooling,
  type Precision,
  type TokenizeOptions,
  type Tokens,
} from "./model.js";
export {
  Mesh,
  type MeshDescription,
  type MeshJoinOptions,
  type MeshOptions,
  MultimemTier,
} from "./mesh.js";
export { load, type LoadOptions } from "./load.js";
export type { ModelFile, ModelSource } from "./source.js";
export { ThreadPool, type ThreadPoolConfig } from "./pool.js";
