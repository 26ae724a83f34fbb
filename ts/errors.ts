/** What kind of failure a {@link UformError} is. The numbers are the engine's and do not change. */
export enum Status {
  /** An argument is of the wrong type, out of range, unknown, or does not fit another one. */
  InvalidArgument = 1,
  /** An immediate call found another call holding or queued on its executor. */
  Contended = 2,
  /** One more deferred call would exceed the executor's `deferredLimit`. */
  DeferredLimit = 3,
  /** The request is well-formed, but this build, machine or model cannot serve it. */
  Unsupported = 4,
  /** Processes of one mesh disagree on something that must match. */
  ConfigMismatch = 5,
  /** A wait reached its deadline. */
  TimedOut = 6,
  /** A handle was used after it was freed. */
  Freed = 7,
  /** Memory, on the host or on a device, could not be had. */
  OutOfMemory = 8,
  /** A device failed; its executor stays failed. */
  DeviceFault = 9,
  /** A file or folder does not exist. */
  NotFound = 10,
  /** A model's files contradict their format, each other, or themselves. */
  CorruptModel = 11,
  /** The operating system refused to read or write. */
  Io = 12,
  /** The caller gave up on the call. With a signal, its own reason is thrown instead. */
  Aborted = 13,
  /** A defect of this library, caught before it could do harm. */
  Internal = 14,
}

/** `InvalidArgument` becomes `UFORM_INVALID_ARGUMENT`. */
function codeOf(status: Status): string {
  const word = Status[status] ?? Status[Status.Internal];
  return "UFORM" + word.replace(/[A-Z]/g, (letter) => "_" + letter).toUpperCase();
}

/**
 * The most characters of a message, and a few: what is quoted in one is bounded where it is quoted, and this is
 * for what is not bounded there, such as a path of a megabyte.
 */
const LONGEST_MESSAGE = 2048;

/** What stands in for the middle of a message is no longer: the engine's messages have such middles already. */
const MIDDLE = 64;

/** A message without its middle, where it is too long: its end is the way out. */
function bounded(message: string): string {
  if (message.length <= LONGEST_MESSAGE + MIDDLE) return message;
  const [head, tail] = [(LONGEST_MESSAGE / 4) * 3, LONGEST_MESSAGE / 4];
  const left = message.length - head - tail;
  return `${message.slice(0, head)}… (${left} more characters) …${message.slice(-tail)}`;
}

/** What led to a failure. As `ErrorOptions`, which programs compiled for an older language lack. */
interface Cause {
  cause?: unknown;
}

/** What every failure of this library throws or rejects with. Most are of a subclass. */
export class UformError extends Error {
  /** The status as a word that does not change, such as `"UFORM_CONTENDED"`. */
  readonly code: string;
  /** What kind of failure this is. */
  readonly status: Status;

  /**
   * @param status - What kind of failure this is.
   * @param message - Names the thing, the value and the way out. Of one that is too long for a log's line
   * the middle is left out.
   * @param options - `cause`: what led to it.
   */
  constructor(status: Status, message: string, options?: Cause) {
    super(bounded(message), options);
    this.status = status;
    this.code = codeOf(status);
  }
}

/** An argument is of the wrong type, out of range, unknown, or does not fit another one. */
export class InvalidArgumentError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.InvalidArgument, message, options);
  }
}

/** An immediate call found another call holding or queued on its executor. It was not run. */
export class ContendedError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.Contended, message, options);
  }
}

/** The executor has `deferredLimit` calls outstanding. This one was not queued: try it later. */
export class DeferredLimitError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.DeferredLimit, message, options);
  }
}

/** The request is well-formed, but this build, machine or model cannot serve it. */
export class UnsupportedError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.Unsupported, message, options);
  }
}

/** Processes of one mesh disagree on something that must match. */
export class ConfigMismatchError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.ConfigMismatch, message, options);
  }
}

/** A wait reached its deadline. */
export class TimedOutError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.TimedOut, message, options);
  }
}

/** A handle was used after it was freed. */
export class FreedError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.Freed, message, options);
  }
}

/** Memory, on the host or on a device, could not be had. */
export class OutOfMemoryError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.OutOfMemory, message, options);
  }
}

/** A device failed. Its executor stays failed. */
export class DeviceFaultError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.DeviceFault, message, options);
  }
}

/** A file or folder does not exist. */
export class NotFoundError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.NotFound, message, options);
  }
}

/** A model's files contradict their format, each other, or themselves. */
export class CorruptModelError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.CorruptModel, message, options);
  }
}

/** The operating system refused to read or write. */
export class IoError extends UformError {
  constructor(message: string, options?: Cause) {
    super(Status.Io, message, options);
  }
}

/** The class of each status that has one. Such a class is named as its status. */
const classes: {
  readonly [status in Status]?: new (message: string, options?: Cause) => UformError;
} = {
  [Status.InvalidArgument]: InvalidArgumentError,
  [Status.Contended]: ContendedError,
  [Status.DeferredLimit]: DeferredLimitError,
  [Status.Unsupported]: UnsupportedError,
  [Status.ConfigMismatch]: ConfigMismatchError,
  [Status.TimedOut]: TimedOutError,
  [Status.Freed]: FreedError,
  [Status.OutOfMemory]: OutOfMemoryError,
  [Status.DeviceFault]: DeviceFaultError,
  [Status.NotFound]: NotFoundError,
  [Status.CorruptModel]: CorruptModelError,
  [Status.Io]: IoError,
};

// The names as text, which survives a minifier; on the prototypes, so that an error
// printed by Node does not list its name among its properties.
for (const status of statuses()) named(classes[status], `${Status[status]}Error`);
named(UformError, "UformError");

function named(type: { prototype: Error } | undefined, name: string): void {
  if (type === undefined) return;
  Object.defineProperty(type.prototype, "name", {
    value: name,
    configurable: true,
    writable: true,
  });
}

function statuses(): Status[] {
  return Object.values(Status).filter((status) => typeof status === "number");
}

/**
 * A failure as the backend reports it, by its `code`, as the error of its class.
 * A failure without a code of ours is a defect of ours.
 *
 * @internal
 */
export function fromBackend(failure: unknown): UformError {
  if (failure instanceof UformError) return failure;
  const { code, message, cause } = Object(failure) as Partial<Record<string, unknown>>;
  const status = statuses().find((status) => codeOf(status) === code) ?? Status.Internal;
  const text = typeof message === "string" ? message : String(failure);
  const options = cause === undefined ? undefined : { cause };
  const type = classes[status];
  return type ? new type(text, options) : new UformError(status, text, options);
}

/** What a failure says, whichever realm it is from. @internal */
export function messageOf(failure: unknown): string {
  const { message } = Object(failure) as { message?: unknown };
  return typeof message === "string" ? message : String(failure);
}

/**
 * Runs a backend's function, whose failures become errors of their classes.
 *
 * @internal
 */
export function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (failure) {
    throw fromBackend(failure);
  }
}
