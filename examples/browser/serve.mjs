// A small static server for the page: `npm run demo:browser`. PORT comes from the environment.
//
// It listens on this machine alone, and its Content-Security-Policy has the browser refuse every request to
// anywhere else.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

const types = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".mjs": "text/javascript; charset=utf-8",
  ".wasm": "application/wasm", // or it is not compiled while it arrives
};
const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data:";

const page = fileURLToPath(new URL("./", import.meta.url));
const root = fileURLToPath(new URL("../../", import.meta.url));

/** The page, and what it takes from the checkout: the package, and the model. */
export const folders = {
  "/": page,
  "/uform/dist/": join(root, "dist"),
  "/models/": join(root, "models"),
};

/** Serves folders by the path they appear under; resolves, when it listens, to the server and its address. */
export async function serve(folders, port = 0) {
  const server = createServer((request, response) => {
    answer(folders, request, response).catch(() => response.destroy());
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  return { server, address: `http://localhost:${server.address().port}/` };
}

async function answer(folders, request, response) {
  if (request.method !== "GET" && request.method !== "HEAD") return refuse(response, 405);
  const file = fileOf(folders, request.url);
  const found = file && (await stat(file).catch(() => undefined));
  if (!found?.isFile()) return refuse(response, 404);
  response.writeHead(200, {
    "content-type": types[extname(file)] ?? "application/octet-stream",
    "content-length": found.size,
    "content-security-policy": policy,
    "cache-control": "no-cache",
  });
  if (request.method === "HEAD") return response.end();
  await pipeline(createReadStream(file), response);
}

function refuse(response, status) {
  response.writeHead(status, { "content-type": "text/plain" }).end(`${status}\n`);
}

/** The file an address names, or undefined: nothing above a folder, nothing hidden. */
function fileOf(folders, address) {
  let path;
  try {
    path = decodeURIComponent(new URL(`http://localhost${address}`).pathname);
  } catch {
    return undefined; // not an address, or not UTF-8
  }
  // An encoded slash or backslash may bring back what the parser of addresses has resolved.
  if (/[\\\0]|(^|\/)\./.test(path)) return undefined;
  if (path.endsWith("/")) path += "index.html";
  const prefixes = Object.keys(folders).filter((prefix) => path.startsWith(prefix));
  const prefix = prefixes.toSorted((a, b) => b.length - a.length)[0];
  return prefix && join(folders[prefix], path.slice(prefix.length).replaceAll("/", sep));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { PORT = "8080" } = process.env;
  try {
    const { address } = await serve(folders, Number(PORT));
    console.log(`Semantic search in your browser: ${address}`);
  } catch (error) {
    if (error.code !== "EADDRINUSE") throw error;
    console.error(`Port ${PORT} is taken: set the environment variable PORT to another one.`);
    process.exitCode = 1;
  }
}
