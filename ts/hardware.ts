import { backend } from "./backend/chosen.js";
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
