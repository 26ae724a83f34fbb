import { InvalidArgumentError, UnsupportedError } from "../errors.js";
import type { NativeBackend } from "./backend.js";
import type { Provider } from "./chosen.js";

/** The platforms an addon is published for. */
const published = ["linux-x64-gnu"];

let addon: NativeBackend | undefined;

/** What loads a module by its name, from where the package lies. */
type Require = (name: string) => unknown;

let requireFrom: Require | undefined;

/**
 * Takes the `require` of an ES module, for a bundle that is one: there CommonJS modules have neither
 * a `require` nor a `__filename` of their own.
 *
 * @internal
 */
export function loadWith(require: Require): void {
  requireFrom = require;
}

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
  const load = typeof __filename === "undefined" && requireFrom ? requireFrom : ownRequire();
  const platform = `${process.platform}-${process.arch}`;
  const names = published
    .filter((name) => name.startsWith(platform))
    .map((name) => `@uform/${name}`);
  let reason: unknown;
  for (const name of names) {
    try {
      return load(name) as NativeBackend;
    } catch (failure) {
      reason = failure;
    }
  }
  throw new UnsupportedError(whyNot(platform, names, reason), { cause: reason });
}

/** Bundlers follow a plain `require` and choke on machine code; this one they leave alone. */
function ownRequire(): Require {
  const { createRequire } = require("node:module") as typeof import("node:module");
  return createRequire(__filename);
}

function whyNot(platform: string, names: string[], reason: unknown): string {
  const here = process.platform === "linux" ? `${platform} with ${libc()}` : platform;
  const wayOut = "Where no addon fits, the WebAssembly build, uform/web, is the way out.";
  if (names.length === 0) {
    return `uform has no native addon for ${here}, only for ${published.join(", ")}. ${wayOut}`;
  }
  const install = `npm install ${names.join(" or ")}`;
  if ((reason as { code?: unknown }).code === "MODULE_NOT_FOUND") {
    return (
      `uform's native addon for ${here} is not installed. Run \`${install}\`; npm leaves it out ` +
      `when optional dependencies are omitted or the lock file is another platform's. ${wayOut}`
    );
  }
  const message = (reason instanceof Error ? reason.message : String(reason)).replace(/\.$/, "");
  return (
    `uform's native addon (${names.join(", ")}) does not load on ${here}: ${message}. ` +
    `Reinstall it with \`${install}\`. ${wayOut}`
  );
}

/** Only for messages: writing the report takes a while. */
function libc(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? "musl" : `glibc ${version}`;
}
