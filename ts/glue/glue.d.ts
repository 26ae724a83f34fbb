/**
 * What wasm-bindgen writes for each module of `crates/uform-wasm`. Handles are objects of its own,
 * which `ts/backend/wasm.ts` keeps to itself.
 */
import type { CompiledEmbeddings, CompiledExecutorDescription } from "../backend/backend.js";
import type {
  CompiledModelDescription,
  CompiledTokens,
  EncodeOptions,
} from "../backend/backend.js";
import type { HardwareDescription, LoadOptions, RamConfig } from "../backend/backend.js";

declare const kind: unique symbol;
interface Inner<Kind extends string> {
  readonly [kind]: Kind;
}
export type InnerExecutor = Inner<"executor">;
export type InnerModel = Inner<"model">;
export type InnerCall = Inner<"call">;
export type InnerFiles = Inner<"files">;

export function capabilitiesCompiled(): string;
export function capabilitiesAvailable(): string;
export function hardwareDescribe(): HardwareDescription;

export function executorForRam(config: RamConfig): InnerExecutor;
export function executorInline(): InnerExecutor;
export function executorDescribe(executor: InnerExecutor): CompiledExecutorDescription;
export function executorDrain(executor: InnerExecutor, mood: number): void;
export function executorDrainDeferred(executor: InnerExecutor, mood: number, ticket: number): void;
export function executorFree(executor: InnerExecutor): void;
export function executorTurn(executor: InnerExecutor): boolean;

export function filesCreate(place: string, names: string[]): InnerFiles;
export function filesWanted(files: InnerFiles): string[];
export function filesAbsent(files: InnerFiles, name: string): void;
export function filesBegin(files: InnerFiles, name: string, size: number): void;
export function filesAppend(files: InnerFiles, name: string, bytes: Uint8Array): void;
export function filesLend(
  files: InnerFiles,
  name: string,
  size: number,
  read: (at: number, most: number) => Uint8Array,
): void;

export function modelLoadFiles(
  files: InnerFiles,
  options: LoadOptions,
  executor: InnerExecutor,
): InnerModel;
export function modelOpenFiles(
  files: InnerFiles,
  options: LoadOptions,
  executor: InnerExecutor,
  call: InnerCall,
  ticket: number,
): void;
export function modelDescribe(model: InnerModel): CompiledModelDescription;
export function modelEncodeText(
  model: InnerModel,
  executor: InnerExecutor,
  utf8: Uint8Array,
  ends: Uint32Array,
  options: Partial<EncodeOptions>,
): CompiledEmbeddings;
export function modelEncodeTextDeferred(
  model: InnerModel,
  executor: InnerExecutor,
  utf8: Uint8Array,
  ends: Uint32Array,
  options: Partial<EncodeOptions>,
  call: InnerCall,
  ticket: number,
): void;
export function modelEncodeLentDeferred(
  model: InnerModel,
  executor: InnerExecutor,
  read: () => [utf8: Uint8Array, ends: Uint32Array] | undefined,
  options: Partial<EncodeOptions>,
  call: InnerCall,
  ticket: number,
): void;
export function modelTokenize(
  model: InnerModel,
  utf8: Uint8Array,
  ends: Uint32Array,
  specialAsText: boolean,
): CompiledTokens;
export function modelCountTokens(
  model: InnerModel,
  utf8: Uint8Array,
  ends: Uint32Array,
  specialAsText: boolean,
): Uint32Array;
export function modelFree(model: InnerModel): void;

export function callCreate(): InnerCall;
export function callCancel(call: InnerCall): void;
export function callProgress(call: InnerCall): ArrayLike<number>;

/** The next outcome of a deferred call: its ticket, its failure or `undefined`, its value. */
export function outcomeNext(): [ticket: number, failure: unknown, value: unknown] | undefined;

export function failurePanic(): string | undefined;
export function failureRefused(): number;

/** Instantiates a compiled module. */
export default function init(from: { module_or_path: WebAssembly.Module }): Promise<unknown>;
