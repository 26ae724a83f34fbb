/** Why there is no addon: none for this platform, not installed, without its file, or refused by the system. */
import { messageOf, UnsupportedError } from "../errors.js";

const wayOut = "Where no addon fits, the WebAssembly build, uform/web, is the way out.";

/** @internal */
export function noneFor(published: readonly string[]): UnsupportedError {
  return new UnsupportedError(
    `uform has no native addon for ${here()}, only for ${published.join(", ")}. ${wayOut}`,
  );
}

/**
 * @param failures - Of each addon of this platform, its package and how it failed.
 * @internal
 */
export function noneLoaded(
  failures: readonly (readonly [name: string, failure: unknown])[],
): UnsupportedError {
  const reasons = failures.map(([name, failure]) => whyNot(name, failure));
  const cause = failures[0]?.[1];
  return new UnsupportedError(`${reasons.join(". ")}. ${wayOut}`, { cause });
}

function whyNot(name: string, failure: unknown): string {
  const { existsSync, join } = files();
  const from = origin(failure);
  const folder = folderOf(name, from);
  if (folder === undefined) return notFound(name, from);
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

function notFound(name: string, from: string): string {
  const install =
    `uform's native addon for ${here()}, ${name}, was not found from ${from}. If it is not installed, run ` +
    `\`npm install ${name}\`: npm leaves it out when optional dependencies are omitted or the lock file is ` +
    "another platform's";
  if (/[\\/]dist[\\/]uform\.js$/.test(from) && files().existsSync(from)) return install;
  return (
    `${install}. If it is installed, a bundler has moved uform's code away from it: keep uform out of the bundle, ` +
    'in Next.js by `serverExternalPackages: ["uform"]`, and install it where the program runs'
  );
}

/** A package's folder, as Node.js looks for it from a file; `undefined`: there is none. */
function folderOf(name: string, from: string): string | undefined {
  const { dirname, existsSync, join } = files();
  const above = dirname(from);
  if (above === from) return undefined;
  const folder = join(above, "node_modules", name);
  return existsSync(folder) ? folder : folderOf(name, above);
}

/** The file that looked for the addon. A bundle of ES modules has no name for itself; the failure may tell it. */
function origin(failure: unknown): string {
  const { requireStack } = Object(failure) as { requireStack?: unknown };
  const asked: unknown = Array.isArray(requireStack) ? requireStack[0] : undefined;
  if (typeof asked === "string") return asked;
  return typeof __filename === "undefined" ? (process.argv[1] ?? process.cwd()) : __filename;
}

/** What looks at files. A bundle of ES modules has no `require`, and Node.js before 20.16 nothing else. */
function files() {
  const { existsSync } = process.getBuiltinModule?.("node:fs") ?? require("node:fs");
  const { dirname, join } = process.getBuiltinModule?.("node:path") ?? require("node:path");
  return { existsSync, dirname, join };
}

/** This platform, as messages name it. */
function here(): string {
  const platform = `${process.platform}-${process.arch}`;
  return process.platform === "linux" ? `${platform} with ${libc()}` : platform;
}

/** Only for messages: writing the report takes a while. */
function libc(): string {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } };
  const version = report?.header?.glibcVersionRuntime;
  return version === undefined ? "musl" : `glibc ${version}`;
}
