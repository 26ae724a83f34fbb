import { InvalidArgumentError, messageOf, UnsupportedError } from "../errors.js";
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
  if (names.length === 0) {
    throw new UnsupportedError(
      `uform has no native addon for ${here()}, only for ${Object.keys(addons).join(", ")}. ${wayOut}`,
    );
  }
  const failures: unknown[] = [];
  for (const name of names) {
    try {
      return addonOf(addons[name]!());
    } catch (failure) {
      failures.push(failure);
    }
  }
  const reasons = names.map((name, index) => whyNot(`@uform/${name}`, failures[index]));
  throw new UnsupportedError(`${reasons.join(". ")}. ${wayOut}`, { cause: failures[0] });
}

/** In a bundle, a module that has the addon as its default. */
const addonOf = (found: unknown) =>
  ((found as { default?: unknown }).default ?? found) as NativeBackend;

const wayOut = "Where no addon fits, the WebAssembly build, uform/web, is the way out.";

/** Why an addon was not loaded: it is not there, or a part of it, or the system refused it. */
function whyNot(name: string, failure: unknown): string {
  const { existsSync } = builtIn<typeof import("node:fs")>("node:fs");
  const { dirname, join } = builtIn<typeof import("node:path")>("node:path");
  const from = origin(failure);
  let folder: string | undefined;
  for (let [inner, outer] = [from, dirname(from)]; !folder && outer !== inner;) {
    const candidate = join(outer, "node_modules", name);
    if (existsSync(candidate)) folder = candidate;
    [inner, outer] = [outer, dirname(outer)];
  }
  if (folder === undefined) {
    const isBundled = !/[\\/]uform[\\/]dist[\\/]\w+\.js$/.test(from) || !existsSync(from);
    return notFound(name, from, isBundled);
  }
  const file = join(folder, "uform.node");
  if (!existsSync(file)) {
    return (
      `uform's native addon, ${name}, is installed, but its file ${file} is missing: the installation was cut ` +
      "short, or the program was copied without it. Install it again, or copy that file too"
    );
  }
  const message = messageOf(failure).replace(/\.$/, "");
  return (
    `uform's native addon, ${file}, cannot be loaded on ${here()}: ${message}. ` +
    `Install it again with \`npm install ${name}\``
  );
}

function notFound(name: string, from: string, isBundled: boolean): string {
  const install =
    `uform's native addon, ${name}, was not found from ${from}. If it is not installed, run ` +
    `\`npm install ${name}\`: npm leaves it out when optional dependencies are omitted or the lock file is ` +
    "another platform's";
  if (!isBundled) return install;
  return (
    `${install}. If it is installed, a bundler has moved uform's code away from it: keep uform out of the bundle, ` +
    'in Next.js by `serverExternalPackages: ["uform"]`, and install it where the program runs'
  );
}

/** One of Node's own modules. A bundle of ES modules has no `require`. */
const builtIn = <T>(name: string): T => (process.getBuiltinModule?.(name) ?? require(name)) as T;

/** The file that looked for the addon. A bundle of ES modules tells it by the failure alone. */
function origin(failure: unknown): string {
  const { requireStack } = Object(failure) as { requireStack?: unknown };
  const asked: unknown = Array.isArray(requireStack) ? requireStack[0] : undefined;
  if (typeof asked === "string") return asked;
  return typeof __filename === "undefined" ? (process.argv[1] ?? process.cwd()) : __filename;
}

/** This platform, as messages name it. */
const here = () =>
  process.platform === "linux"
    ? `${process.platform}-${process.arch} with ${libc()}`
    : `${process.platform}-${process.arch}`;

/** Only for messages: writing the report takes a while. */
function libc(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? "musl" : `glibc ${version}`;
}
