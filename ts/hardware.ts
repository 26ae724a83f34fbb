import { backend } from "./backend/native.js";
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
