// Embeddings over HTTP: POST /embed {"texts": ["…"]} → {"dimensions": 384, "vectors": [[…]]}
//
//   node examples/embedding-service/server.mjs      PORT, MODEL and DEFERRED_LIMIT come from the environment
//
// Every request is one deferred call: the event loop stays free, the executor
// computes them in order. When too many wait, the newest gets 429 at once, and
// a client that hangs up takes its call out of the queue.

import { createServer } from "node:http";
import { once } from "node:events";
import { json } from "node:stream/consumers";
import { DeferredLimitError, Executor, InvalidArgumentError, Model, Mood } from "uform";

const { PORT = "8080", MODEL = "models/all-MiniLM-L6-v2", DEFERRED_LIMIT = "64" } = process.env;
const MOST_TEXTS = 256; // of one request: calls run one at a time, so a huge one makes all others wait

const executor = Executor.forRam({ deferredLimit: Number(DEFERRED_LIMIT) });
const model = await Model.open(MODEL, { executor });
const server = createServer((request, response) => {
  answer(request, response).catch((error) =>
    reply(response, statusOf(error), { error: error.message }),
  );
});

server.listen(Number(PORT));
await once(server, "listening");
console.log(`Listening on port ${server.address().port}`);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, shutDown);

async function answer(request, response) {
  if (request.method !== "POST" || request.url !== "/embed")
    return reply(response, 404, { error: "POST /embed is all there is" });
  const texts = await json(request).then((body) => body?.texts);
  if (!Array.isArray(texts) || texts.length > MOST_TEXTS) {
    return reply(response, 400, {
      error: `"texts" must be an array of at most ${MOST_TEXTS} strings`,
    });
  }
  const hangUp = new AbortController();
  response.once("close", () => hangUp.abort());
  const embeddings = await model.encodeText(texts, { executor, signal: hangUp.signal });
  const vectors = texts.map((_, row) => Array.from(embeddings.row(row)));
  reply(response, 200, { dimensions: embeddings.dimensions, vectors });
}

function reply(response, status, body) {
  if (response.destroyed) return; // the client hung up
  response.setHeader("content-type", "application/json");
  if (status === 429) response.setHeader("retry-after", "1");
  if (!server.listening) response.setHeader("connection", "close"); // shutting down: do not wait for this client
  response.writeHead(status).end(JSON.stringify(body));
}

function statusOf(error) {
  if (error instanceof DeferredLimitError) return 429;
  if (error instanceof InvalidArgumentError || error instanceof SyntaxError) return 400;
  return 500;
}

/** Takes no new requests, answers those it has, and lets the process end. */
async function shutDown() {
  server.close();
  await once(server, "close");
  await executor.drainAsync(Mood.Parked);
  model.free();
  executor.free();
}
