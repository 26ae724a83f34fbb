// Assertions for wherever there is JavaScript.

class CheckError extends Error {}

export function fail(message) {
  throw new CheckError(message);
}

export function ok(value, message = "not so") {
  if (!value) fail(message);
}

/** The same value, or arrays (typed ones too) and plain objects of the same values. */
export function equal(got, wanted, message = "") {
  if (!same(got, wanted)) fail(`${message}: got ${show(got)}, wanted ${show(wanted)}`);
}

function same(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  const [keys, others] = [Object.keys(a), Object.keys(b)];
  return keys.length === others.length && keys.every((key) => same(a[key], b[key]));
}

function show(value) {
  if (ArrayBuffer.isView(value)) return `${value.constructor.name} of ${value.length}`;
  if (value instanceof Error) return String(value.stack);
  return JSON.stringify(value) ?? String(value);
}

/** What `work` throws, or rejects with. */
export async function failure(work) {
  try {
    await (typeof work === "function" ? work() : work);
  } catch (thrown) {
    return thrown;
  }
  return fail("it did not fail");
}

/** An error of exactly this class, whose message names what it must. */
export async function fails(work, type, ...words) {
  const error = await failure(work);
  ok(error instanceof type && error.constructor === type, `${type.name} wanted: ${show(error)}`);
  equal(error.name, type.name, "its name");
  for (const word of words) ok(error.message.includes(word), `no ${word} in: ${error.message}`);
  return error;
}

/** The cosine of two vectors; not a number where one of them has none. */
export function cosine(a, b) {
  let [dot, as, bs] = [0, 0, 0];
  for (let index = 0; index < a.length; index++) {
    dot += a[index] * b[index];
    as += a[index] ** 2;
    bs += b[index] ** 2;
  }
  return dot / Math.sqrt(as * bs);
}
