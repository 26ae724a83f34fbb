/**
 * A file from a server, and from the browser's cache where it was kept.
 *
 * A file is kept under its URL and its size as the server tells it, and only when all of it came:
 * a cut download is an error, of which nothing is kept, and a file of another size at the
 * same URL is another file. Where the server cannot be reached, what was kept is taken.
 */
import { IoError, messageOf, UnsupportedError } from "./errors.js";

/** A file that is there. */
export interface Downloaded {
  /** How many bytes will come; `undefined`: the server does not say. */
  readonly size: number | undefined;
  readonly body: ReadableStream<Uint8Array>;
}

/** The cache's name. */
const CACHE = "uform";

/** The parameter that makes one URL of a URL and a size. */
const SIZE = "uform-size";

/**
 * The file at a URL; `undefined`: there is none.
 *
 * @internal
 */
export async function download(
  url: URL,
  { signal, cache }: { signal: AbortSignal; cache: boolean },
): Promise<Downloaded | undefined> {
  const kept = cache ? await keeper() : undefined;
  let response: Response;
  try {
    response = await fetch(url, { signal });
  } catch (failure) {
    signal.throwIfAborted();
    const any = await kept?.keys(url, { ignoreSearch: true });
    const found = any?.find(({ url: key }) => withoutSize(key) === url.href);
    const response = found && (await kept?.match(found));
    if (response) return whole(response);
    const message = `${withoutSecrets(url)} cannot be fetched: ${reason(failure, url)}`;
    throw new IoError(message, causeOf(failure, url));
  }
  // Some servers answer with their front page what is not there, and no model's file is a page.
  const isPage = response.headers.get("content-type")?.startsWith("text/html") === true;
  if (response.status === 404 || response.status === 410 || isPage) return discard(response);
  if (!response.ok) {
    await discard(response);
    throw new IoError(`${withoutSecrets(url)} was answered with ${statusOf(response)}`);
  }
  if (kept === undefined) return whole(response);
  const told = response.headers.get("content-length");
  const known = told === null ? undefined : await kept.match(keyOf(url, told));
  if (known) {
    await discard(response);
    return whole(known);
  }
  return keep(kept, url, response);
}

/** A URL as messages tell it: what it is asked with, and by whom, is not theirs to tell, nor what is in it. */
export function withoutSecrets({ protocol, host, pathname }: URL): string {
  return protocol === "data:" ? "a data: URL" : `${protocol}//${host}${pathname}`;
}

/** How a server answered, with its words where it has some. */
export const statusOf = ({ status, statusText }: Response) => `${status} ${statusText}`.trim();

/** Why nothing came, as an error's cause: none of a URL with secrets, which engines tell. */
export const causeOf = (failure: unknown, { username, password, search }: URL) =>
  username || password || search ? undefined : { cause: failure };

/** Why nothing came, in the words of who knows best. */
export function reason(failure: unknown, url: URL): string {
  const { message, cause } = failure as Error;
  const words = cause ? messageOf(cause) || message : message;
  return words.replaceAll(url.href, withoutSecrets(url));
}

/** Passes a response on, and keeps it once all of it has come. */
function keep(kept: Cache, url: URL, response: Response): Downloaded {
  const { size, body } = whole(response);
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const through = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      parts.push(chunk);
      bytes += chunk.length;
      controller.enqueue(chunk);
    },
    async flush() {
      if (size !== undefined && bytes !== size) return;
      const told = response.headers.get("content-length") ?? String(bytes);
      const headers = { "content-length": String(bytes) };
      // A full cache is no reason to fail: the file is here.
      const copy = new Response(new Blob(parts as BlobPart[]), { headers });
      await kept.put(keyOf(url, told), copy).catch(() => {});
    },
  });
  return { size, body: body.pipeThrough(through) };
}

function keyOf(url: URL, told: string): string {
  const key = new URL(url);
  key.searchParams.append(SIZE, told);
  return key.href;
}

function withoutSize(key: string): string {
  return key.replace(new RegExp(`[?&]${SIZE}=[^&#]*`), "");
}

function whole(response: Response): Downloaded {
  const told = response.headers.get("content-length");
  // Of a compressed answer, what is told is the compressed size.
  const isPlain = /^\d+$/.test(told ?? "") && response.headers.get("content-encoding") === null;
  return {
    size: isPlain ? Number(told) : undefined,
    body: response.body ?? new Blob([]).stream(),
  };
}

async function discard(response: Response): Promise<undefined> {
  await response.body?.cancel().catch(() => {});
}

async function keeper(): Promise<Cache> {
  if (typeof caches === "undefined") {
    throw new UnsupportedError(
      "Model.open: `cache` was asked for, and there is no Cache API here: browsers have it in secure contexts",
    );
  }
  try {
    return await caches.open(CACHE);
  } catch (failure) {
    throw new IoError(`the browser's cache cannot be opened: ${(failure as Error).message}`, {
      cause: failure,
    });
  }
}
