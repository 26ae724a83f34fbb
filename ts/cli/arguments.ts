import { parseArgs } from "node:util";
import { nearest } from "../options.js";
import { UsageError } from "./failures.js";

/** The options of a command: each takes a value, or is a flag. */
export type Options = Readonly<Record<string, "value" | "flag">>;

/** The options that were given. */
export type Given<O extends Options> = {
  readonly [key in keyof O]: (O[key] extends "value" ? string : true) | undefined;
};

/**
 * Reads a command line, each option at most once.
 *
 * @throws {@link UsageError} for an unknown option (the nearest one is named), a value that is
 * missing or not wanted, and an option that is there twice.
 */
export function read<const O extends Options>(
  args: string[],
  options: O,
): { given: Given<O>; files: string[] } {
  const types = Object.entries(options).map(
    ([name, kind]) => [name, { type: kind === "value" ? "string" : "boolean" }] as const,
  );
  // Not "strict", which would complain in words of its own, and name no nearest option.
  const { tokens } = parseArgs({
    args,
    options: Object.fromEntries(types),
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const given: Record<string, string | true> = {};
  const files: string[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") files.push(token.value);
    if (token.kind !== "option") continue;
    const { name, rawName, value } = token;
    const kind =
      Object.hasOwn(options, name) && rawName.startsWith("--") ? options[name] : undefined;
    if (kind === undefined) throw unknown(rawName, Object.keys(options));
    if (Object.hasOwn(given, name)) throw new UsageError(`${rawName} is there twice`);
    if (kind === "flag" && value !== undefined) {
      throw new UsageError(`${rawName} takes no value, and ${JSON.stringify(value)} was given`);
    }
    if (kind === "value") needsValue(rawName, value, token.inlineValue);
    given[name] = value ?? true;
  }
  return { given: given as Given<O>, files };
}

function unknown(option: string, names: string[]): UsageError {
  const near = nearest(option.replace(/^-+/, ""), names);
  const all = names.map((name) => `--${name}`).join(", ");
  return new UsageError(
    `${option} is not an option; ${near ? `did you mean --${near}?` : `there are ${all}`}`,
  );
}

function needsValue(option: string, value: string | undefined, inline: boolean | undefined): void {
  if (value === undefined) throw new UsageError(`${option} needs a value`);
  if (inline || !value.startsWith("-")) return;
  throw new UsageError(
    `${option} needs a value, and ${value} looks like an option; if it is meant: ${option}=${value}`,
  );
}

/** A whole number of at least 1. */
export function count(option: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!/^\d+$/.test(value) || !Number.isSafeInteger(number) || number < 1) {
    throw new UsageError(
      `--${option} takes a whole number of at least 1, and ${JSON.stringify(value)} was given`,
    );
  }
  return number;
}

/** One of some words. */
export function word<const W extends string>(
  option: string,
  value: string | undefined,
  words: readonly W[],
): W | undefined {
  if (value === undefined) return undefined;
  const found = words.find((word) => word === value);
  if (found === undefined) {
    throw new UsageError(
      `--${option} takes ${words.join(", ")}, and ${JSON.stringify(value)} was given`,
    );
  }
  return found;
}
