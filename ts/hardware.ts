import { backend, drivesGpus } from "./backend/chosen.js";
import { translated } from "./errors.js";

/** What this binary was built with: comma-separated words, such as `"intel-skylake,threads"`. */
export function capabilitiesCompiled(): string {
  return translated(() => backend().capabilitiesCompiled());
}

/**
 * What this machine offers now: comma-separated words. Neither this list nor
 * {@link capabilitiesCompiled} implies the other.
 */
export function capabilitiesAvailable(): string {
  return translated(() => backend().capabilitiesAvailable());
}

/**
 * A CPU class: a bundle of instructions that kernels are written for. Which of them this CPU runs,
 * {@link capabilitiesAvailable} tells; which this build has kernels of its own for,
 * {@link capabilitiesCompiled}.
 */
export type CpuClass =
  | "serial"
  | "intel-haswell"
  | "intel-sierra"
  | "intel-skylake"
  | "intel-icelake"
  | "amd-genoa"
  | "intel-sapphire"
  | "intel-granite"
  | "intel-diamond"
  | "aws-g2"
  | "apple-m2"
  | "apple-m4"
  | "aws-g5"
  | "nvidia-vera"
  | "alibaba-c930"
  | "wasm32-v128"
  | "wasm64-extended"
  | "monoversioned";

/** Who made a GPU. The numbers are the engine's and do not change. */
export enum GpuVendor {
  /** None of the others. */
  Unknown = 0,
  Nvidia = 1,
  Amd = 2,
  Apple = 3,
}

/** A GPU that this process can drive. */
export interface GpuDevice {
  /** Who made it. */
  vendor: GpuVendor;
  /** The number by which `nvidia-smi` or `rocm-smi` lists it. */
  vendorOrdinal: number;
  /** The class whose kernels run on it, such as `"nvidia-hopper"`; `null`: none do. */
  gpuClass: string | null;
  /** Multiprocessors, or compute units. */
  computeUnits: number;
  /** Memory in all. */
  memoryBytes: number;
  /** As the driver names it, such as `"NVIDIA H200"`. */
  name: string;
  /** As the vendor's tool writes it, `GPU-…`; `null`: the driver does not tell. */
  uuid: string | null;
  /** Domain, bus, device and function, as in `"0000:3b:00.0"`; `null`: the driver does not tell. */
  pciAddress: string | null;
}

/**
 * Every GPU that this process can drive: NVIDIA devices, then AMD ones, as the vendors' drivers
 * list them. The position in this list is a device's ordinal. Without a GPU, or a driver that works, it
 * is empty, and nothing is printed. The list is read once a process, when it is first asked for.
 */
export function gpuDevices(): GpuDevice[] {
  return drivesGpus() ? translated(() => backend().hardwareGpuDevices()) : [];
}
