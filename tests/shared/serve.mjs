// The server of the shared tests: the fixtures, the test model, and what may go wrong on the way.
//
// | path | what it is |
// | --- | --- |
// | `/fixtures/…` | tests/fixtures |
// | `/model/…` | all-MiniLM-L6-v2 |
// | `/unsized/…` | fixtures, without a word on their size |
// | `/cut/ID/…` | fixtures, but the first time weights are asked for under an ID they end in the middle |
// | `/slow/…` | fixtures, but weights never end |
// | `/huge/…` | fixtures, but weights are said to have more bytes than any memory, and end in the middle |
// | `/app/…` | fixtures, and a page for what is not there |

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const model = process.env.UFORM_TEST_MODEL ?? join(root, "models/all-MiniLM-L6-v2");
const fixtures = join(root, "tests/fixtures");

/** Serves on a port of its own: the URL, and what ends it. */
export async function serve() {
  const cut = new Set();
  const server = createServer((request, response) => answer(request, response, cut));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    base: `http://127.0.0.1:${server.address().port}/`,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Answers a request for one of the paths above. */
export function answer(request, response, cut) {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://host").pathname));
  const [, kind, ...rest] = path.split("/");
  const id = kind === "cut" ? rest.shift() : undefined;
  const file = join(kind === "model" ? model : fixtures, ...rest);
  const size = statSync(file, { throwIfNoEntry: false })?.size;
  response.setHeader("access-control-allow-origin", "*");
  if (size === undefined && kind === "app") {
    response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end("<!doctype html>");
    return;
  }
  if (
    size === undefined ||
    !["fixtures", "model", "unsized", "cut", "slow", "huge", "app"].includes(kind)
  ) {
    response.writeHead(404).end();
    return;
  }
  const isWeights = file.endsWith(".safetensors");
  const told = isWeights && kind === "huge" ? Number.MAX_SAFE_INTEGER : size;
  if (kind !== "unsized") response.setHeader("content-length", told);
  response.writeHead(200);
  if (isWeights && (kind === "huge" || (kind === "cut" && !cut.has(id)))) {
    cut.add(id);
    createReadStream(file, { end: size >> 1 })
      .on("end", () => response.destroy())
      .pipe(response, { end: false });
  } else if (isWeights && kind === "slow") {
    createReadStream(file, { end: size >> 1 }).pipe(response, { end: false });
  } else {
    createReadStream(file).pipe(response);
  }
}
