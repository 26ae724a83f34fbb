import { InvalidArgumentError } from "./errors.js";
import { Handle, isCompiled, isHandle } from "./handle.js";
import type { CpuClass } from "./hardware.js";

/**
 * What one option accepts. It returns the value the option stands for, `undefined` when it
 * means "absent", and calls `refuse` for anything else.
 *
 * @internal
 */
export type Option<T> = (value: unknown, refuse: (expected: string) => never) => T;

/** @internal */
export type Shape = Readonly<Record<string, Option<unknown>>>;

/** @internal */
export type Read<S extends Shape> = { readonly [key in keyof S]: ReturnType<S[key]> | undefined };

/**
 * Reads an options object, each option once.
 *
 * @param where - The function the options are for, as its user knows it.
 * @param elsewhere - Options that belong to another function, and what to do instead.
 * @internal
 */
export function readOptions<S extends Shape>(
  where: string,
  given: unknown,
  shape: S,
  elsewhere: Readonly<Record<string, string>> = {},
): Read<S> {
  if (!isPlain(given)) {
    const keys = Object.keys(shape).join(", ");
    refuse(where, "the options", `a plain object with any of ${keys}`, given);
  }
  const own = Reflect.ownKeys(given);
  for (const key of own) {
    if (typeof key === "string" && Object.hasOwn(shape, key)) continue;
    const known = typeof key === "string" && Object.hasOwn(elsewhere, key);
    const instead = known ? elsewhere[key] : undefined;
    unknownOption(where, key, Object.keys(shape), instead);
  }
  // It inherits nothing, whatever was done to the prototype of all objects.
  const read: Record<string, unknown> = Object.create(null);
  // Others may inherit what they do not own.
  const keys = isLiteral(given) ? (own as string[]) : Object.keys(shape);
  for (const key of keys) {
    const value = (given as Record<string, unknown>)[key];
    if (value === undefined) continue;
    read[key] = shape[key]?.(askable(value), (expected) =>
      refuse(where, `\`${key}\``, expected, value),
    );
  }
  return read as Read<S>;
}

/**
 * Checks one argument.
 *
 * @internal
 */
export function readArgument<T>(where: string, name: string, value: unknown, option: Option<T>): T {
  return option(askable(value), (expected) => refuse(where, `\`${name}\``, expected, value));
}

/** @internal */
export function refuse(where: string, what: string, expected: string, value: unknown): never {
  throw new InvalidArgumentError(
    `${where}: expected ${expected} for ${what} but received ${show(value)}`,
  );
}

/**
 * Whether a value is a proxy that was revoked. Any look at it throws an
 * error that names no argument.
 *
 * @internal
 */
export function isRevoked(value: unknown): boolean {
  try {
    // The only question that a proxy passes on without a trap.
    Array.isArray(value);
    return false;
  } catch {
    return true;
  }
}

/** A value to be asked what it is: no option takes `null`, and a revoked proxy is no better. */
const askable = (value: unknown) => (isRevoked(value) ? null : value);

/** What `{ ... }` makes: nearly every object of options. */
const isLiteral = (value: object) => Object.getPrototypeOf(value) === Object.prototype;

/** An object of options, rather than something else that happens to be one. */
function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null || isRevoked(value)) return false;
  if (isLiteral(value)) return true;
  return !isHandle(value) && tag(value) === "[object Object]" && !isCompiled(value);
}

function unknownOption(
  where: string,
  key: string | symbol,
  keys: string[],
  instead: string | undefined,
): never {
  const near = nearest(String(key), keys);
  const hint = instead ?? (near ? `the nearest valid one is \`${near}\`` : "it has no such option");
  throw new InvalidArgumentError(
    `${where}: unknown option ${show(key)}; ${hint} (valid: ${keys.join(", ")})`,
  );
}

/** A whole number of things, where 0 means "as many as you see fit". @internal */
export const count: Option<number | undefined> = (value, refuse) => {
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    refuse("a whole number (0 or undefined: absent)");
  }
  return value === 0 ? undefined : (value as number);
};

/** A whole number of things, at least one. @internal */
export const positive: Option<number> = (value, refuse) => {
  if (!Number.isSafeInteger(value) || (value as number) < 1) refuse("a whole number of at least 1");
  return value as number;
};

/** Numbers by which the system names things, where `[]` means "absent". @internal */
export const ids: Option<readonly number[] | undefined> = (value, refuse) => {
  const copy: unknown[] = Array.isArray(value) ? Array.from(value) : [value];
  if (!Array.isArray(value) || !copy.every(isId)) {
    refuse("an array of ids, whole numbers from 0 ([] or undefined: absent)");
  }
  return copy.length === 0 ? undefined : (copy as number[]);
};

/** The system's numbers have 32 bits. */
const isId = (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;

/** Where something lies in memory. @internal */
export const address: Option<bigint> = (value, refuse) => {
  if (typeof value !== "bigint" || value <= 0n || value >= 1n << 64n) {
    refuse("an address: a bigint of at most 64 bits, not 0n");
  }
  return value as bigint;
};

/** Where things lie in memory, one each, where `0n` means "absent", and so does `[]`. @internal */
export const addresses: Option<readonly bigint[] | undefined> = (value, refuse) => {
  const copy: unknown[] = Array.isArray(value) ? Array.from(value) : [value];
  const isAddress = (one: unknown) => typeof one === "bigint" && one >= 0n && one < 1n << 64n;
  if (!Array.isArray(value) || !copy.every(isAddress)) {
    refuse("an array of addresses, bigints of at most 64 bits (0n: absent; [] or undefined: all)");
  }
  return copy.length === 0 ? undefined : (copy as bigint[]);
};

/** @internal */
export const text: Option<string> = (value, refuse) =>
  typeof value === "string" ? value : refuse("a string");

/** A string of which the engine is the judge: {@link CpuClass} is what types say it takes. @internal */
export const cpuClass: Option<CpuClass> = (value, refuse) => text(value, refuse) as CpuClass;

/** @internal */
export const flag: Option<boolean> = (value, refuse) =>
  typeof value === "boolean" ? value : refuse("true or false");

/** What kind of object a value is, whichever realm it is from. @internal */
export const tag = (value: unknown) => Object.prototype.toString.call(value);

/** Whether a value is of a kind, and has what is used of it: anything may say that it is of a kind. */
const isOf = (kind: string, value: unknown, ...methods: string[]) =>
  !isRevoked(value) &&
  tag(value) === `[object ${kind}]` &&
  methods.every((name) => typeof (value as Record<string, unknown>)[name] === "function");

/** @internal */
export const isUrl = (value: unknown): value is URL => isOf("URL", value, "toJSON");

/** @internal */
export const isBlob = (value: unknown): value is Blob =>
  isFile(value) || isOf("Blob", value, "slice", "arrayBuffer");

/** @internal */
export const isFile = (value: unknown): value is File =>
  isOf("File", value, "slice", "arrayBuffer") && typeof (value as File).name === "string";

/** @internal */
export const isStream = (value: unknown): value is ReadableStream =>
  isOf("ReadableStream", value, "getReader");

/** Without a look at the global `Response`, at which Node.js loads all that fetches. @internal */
export const isResponse = (value: unknown): value is Response =>
  isOf("Response", value, "arrayBuffer");

/** @internal */
export const isModule = (value: unknown): value is WebAssembly.Module =>
  isOf("WebAssembly.Module", value);

/** Throws for what is no `ArrayBuffer`, whichever realm it is from. */
const bufferLength = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength")!.get!;

/** @internal */
export function isBuffer(value: unknown): value is ArrayBuffer {
  try {
    bufferLength.call(value);
    return true;
  } catch {
    return false;
  }
}

/** What kind of array a view of bytes is, whichever realm it is from, and whatever it says of itself. */
const viewKind = Object.getOwnPropertyDescriptor(
  Object.getPrototypeOf(Uint8Array.prototype),
  Symbol.toStringTag,
)!.get!;

/** Whether a value is bytes, rather than a proxy of some. @internal */
export const isBytes = (value: unknown): value is Uint8Array =>
  viewKind.call(value) === "Uint8Array";

/** One of a few values. @internal */
export function oneOf<const T extends string | number | boolean>(values: readonly T[]): Option<T> {
  return (value, refuse) => {
    if (!values.includes(value as T)) refuse(`one of ${values.map(show).join(", ")}`);
    return value as T;
  };
}

/** @internal */
export const abortSignal: Option<AbortSignal> = (value, refuse) => {
  const signal = Object(value) as Partial<AbortSignal>;
  const watchable =
    typeof signal.aborted === "boolean" &&
    typeof signal.addEventListener === "function" &&
    typeof signal.removeEventListener === "function";
  if (!watchable) refuse("an AbortSignal");
  return value as AbortSignal;
};

/** @internal */
export const progressListener: Option<(done: number, total: number) => void> = (value, refuse) => {
  if (typeof value !== "function") refuse("a function of (done, total)");
  return value as (done: number, total: number) => void;
};

/** A value as a message names it: short, and without calling into it. @internal */
export function show(value: unknown): string {
  switch (typeof value) {
    case "string": {
      const quoted = JSON.stringify(value.slice(0, 100));
      const isWhole = value.length <= 100 && quoted.length <= 100;
      return isWhole ? quoted : `${quoted.slice(0, 100)}… (${value.length} characters)`;
    }
    case "bigint":
      // Writing down a long one takes minutes.
      return BigInt.asIntN(128, value) === value ? `${value}n` : "a bigint of more than 128 bits";
    case "symbol":
      return value.description === undefined ? "Symbol()" : `Symbol(${cut(value.description)})`;
    case "function":
      return isRevoked(value) ? "a proxy that was revoked" : "a function";
    case "object":
      if (value === null) return "null";
      if (isRevoked(value)) return "a proxy that was revoked";
      if (value instanceof Handle) return `a handle: pass it as an option, such as { executor }`;
      if (isHandle(value)) return "a handle of another copy of uform: the program has loaded two";
      if (isUrl(value)) return `a ${cut(value.protocol)} URL`;
      return Array.isArray(value) ? showArray(value) : "an object";
    default:
      return Object.is(value, -0) ? "-0" : String(value);
  }
}

const cut = (text: string) => (text.length <= 100 ? text : `${text.slice(0, 100)}…`);

/** Few and simple values one by one. */
function showArray(values: unknown[]): string {
  const isShort = values.length <= 8;
  return isShort && Array.from(values).every((value) => Object(value) !== value)
    ? `[${Array.from(values, show).join(", ")}]`
    : `an array of ${values.length}`;
}

/**
 * The word that was probably meant; `undefined` where none is near.
 *
 * @internal
 */
export function nearest(word: string, words: readonly string[]): string | undefined {
  // Comparing takes as long as both are, and so long a word is near none.
  if (word.length > 100) return undefined;
  const [near] = [...words].sort((a, b) => distance(a, word) - distance(b, word));
  // A third of its letters wrong is a slip of the pen; more is another word.
  return near !== undefined && distance(near, word) <= 1 + near.length / 3 ? near : undefined;
}

/** How many letters must change to make one word of the other, whatever their case (Levenshtein). */
function distance(a: string, b: string): number {
  const [from, to] = [a.toLowerCase(), b.toLowerCase()];
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let line = 1; line <= from.length; line++) {
    const next = [line];
    for (let column = 1; column <= to.length; column++) {
      const same = from[line - 1] === to[column - 1] ? 0 : 1;
      next.push(Math.min(next[column - 1]! + 1, row[column]! + 1, row[column - 1]! + same));
    }
    row = next;
  }
  return row[to.length]!;
}
