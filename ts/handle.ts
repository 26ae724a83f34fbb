import { InvalidArgumentError } from "./errors.js";

/**
 * Something outside the collector's heap, which its user gives back.
 *
 * `using` and `await using` do so at the end of a block. A forgotten handle is
 * released some time after it was collected. A handle belongs to the environment (main
 * thread or worker) that made it: `postMessage` and `structuredClone` of one throw.
 */
export abstract class Handle {
  /** The same as {@link free}. Absent where the engine has no `Symbol.dispose`. */
  declare readonly [Symbol.dispose]: () => void;
  /** Releases the handle without blocking. Absent where the engine has no `Symbol.asyncDispose`. */
  declare readonly [Symbol.asyncDispose]: () => Promise<void>;

  /** Releases what the handle stands for. A second time does nothing. */
  abstract free(): void;

  /**
   * {@link free} once nothing is left to wait for.
   *
   * @internal
   */
  abstract freeAsync(): Promise<void>;
}

// As properties of the prototype rather than methods of the class: where a symbol does
// not exist, a method would be named "undefined".
method(Symbol.dispose, function (this: Handle) {
  this.free();
});
method(Symbol.asyncDispose, function (this: Handle) {
  return this.freeAsync();
});

function method(symbol: symbol | undefined, value: (this: Handle) => unknown): void {
  if (symbol === undefined) return;
  Object.defineProperty(Handle.prototype, symbol, { value, configurable: true, writable: true });
}

/** What all handles have, those of other copies of this module too. */
const brand = Symbol.for("uform.handle");
Object.defineProperty(Handle.prototype, brand, { value: true });

/** Whether a value is a handle: of this copy of the module, or of another version's or realm's. @internal */
export const isHandle = (value: unknown): boolean =>
  (Object(value) as Record<symbol, unknown>)[brand] === true;

/** Refuses a method that was called without its handle; `where` is such as `"model.free"`. @internal */
export function detached(where: string): never {
  const [handle] = where.split(".");
  throw new InvalidArgumentError(`${where}: called without its ${handle}; write ${where}(…)`);
}

/** A property that stays: own, so that cloning the handle meets it, and never another value. @internal */
export function constant(handle: Handle, name: string, value: unknown): void {
  Object.defineProperty(handle, name, { value, enumerable: true });
}

/** The backends' handles, each a frozen object without anything in it. */
const compiled = new WeakSet<object>();

/** Gives a handle its backend's. @internal */
export function constantCompiled(handle: Handle, value: object): void {
  compiled.add(value);
  constant(handle, "compiled", value);
}

/** Whether a value is a backend's handle, which looks like an object of options that has none. @internal */
export const isCompiled = (value: object) => compiled.has(value);
