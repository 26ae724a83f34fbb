import { InvalidArgumentError } from "../errors.js";
import { noneFor, noneLoaded } from "./addon-failure.js";
import type { NativeBackend } from "./backend.js";
import type { Provider } from "./chosen.js";

/**
 * The published addons, by the platform each is for. Tracers of files, such as Next.js has, and bundlers find an addon
 * by its name as it is written in `require`.
 */
const addons: Readonly<Record<string, () => unknown>> = {
  "linux-x64-gnu": () => require("@uform/linux-x64-gnu"),
};

let addon: NativeBackend | undefined;

/**
 * The native addon, loaded when first needed: importing the package loads no machine code.
 *
 * @internal
 */
export const native = {
  drivesGpus: true,
  backend: (): NativeBackend => (addon ??= load()),
  async load(wasm?: unknown): Promise<void> {
    if (wasm !== undefined) {
      throw new InvalidArgumentError(
        "load: `wasm` was given, and here the native addon computes: leave it out, or import uform/web",
      );
    }
    this.backend();
  },
} satisfies Provider;

function load(): NativeBackend {
  const platform = `${process.platform}-${process.arch}`;
  const names = Object.keys(addons).filter((name) => name.startsWith(platform));
  if (names.length === 0) throw noneFor(Object.keys(addons));
  const failures: [name: string, failure: unknown][] = [];
  for (const name of names) {
    try {
      return addonOf(addons[name]!());
    } catch (failure) {
      failures.push([`@uform/${name}`, failure]);
    }
  }
  throw noneLoaded(failures);
}

/** In a bundle, a module that has the addon as its default. */
const addonOf = (found: unknown) =>
  ((found as { default?: unknown }).default ?? found) as NativeBackend;
