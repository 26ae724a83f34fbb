/** Where a model lies on this machine, as a caller may write it: a path, or a `file:` URL. */
import { hasFiles } from "./disk.js";
import { isUrl, type Option } from "./options.js";

const expected = "the path of a model's folder or .safetensors file, as a string, or its file: URL";

/**
 * A path, or a `file:` URL, which becomes one.
 *
 * @internal
 */
export const pathOption: Option<string> = (value, refuse) => {
  if (isUrl(value)) return pathOfUrl(value, refuse);
  if (typeof value !== "string" || value === "" || value.includes("\0")) return refuse(expected);
  // Two letters at least: `C:` is a drive.
  if (!/^[a-z][a-z0-9+.-]+:\//i.test(value)) return value;
  let url;
  try {
    url = new URL(value);
  } catch {
    return value;
  }
  return pathOfUrl(url, refuse);
};

/** Whether a value is the `file:` URL of something. @internal */
export const isFileUrl = (value: unknown): boolean =>
  (isUrl(value) && value.protocol === "file:") ||
  (typeof value === "string" && /^file:\//i.test(value));

function pathOfUrl(url: URL, refuse: (expected: string) => never): string {
  if (url.protocol !== "file:") {
    refuse(
      `${expected}; Model.open(new URL(…)) takes a model from a server, and a model of the hub is ` +
        "downloaded first: hf download NAME --local-dir FOLDER",
    );
  }
  if (!hasFiles()) refuse("something other than a file: URL, since there are no files here");
  if (url.hostname !== "") refuse("a file: URL of this machine, without a host's name");
  // As Node's fileURLToPath: a name with a separator in it is none.
  if (/%2f|%00/i.test(url.pathname)) refuse("a file: URL without %2F and %00");
  try {
    return decodeURIComponent(url.pathname);
  } catch {
    return refuse("a file: URL that is percent-encoded UTF-8");
  }
}
