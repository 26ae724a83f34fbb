// Embeds in the page, and in a module worker. The test awaits `outcome`.

import { embed } from "./embed.mjs";

const question = [new URL("/model/", location.href).href, "a red bicycle"];

globalThis.outcome = Promise.all([embed(...question), inWorker(question)]).then(
  ([page, worker]) => ({ page, worker }),
);

function inWorker(question) {
  const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data: { result, failure } }) =>
      failure === undefined ? resolve(result) : reject(new Error(failure));
    worker.onerror = ({ message }) => reject(new Error(message ?? "the worker did not start"));
    worker.postMessage(question);
  });
}
