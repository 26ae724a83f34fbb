// How long it takes to read a model's weights once: the least a single query can take.
//
// Threads read a share each at the same time, over and over, from memory that was read before, as
// weights are in a service. What reads is the search for a byte that is not there: in Node.js that
// is the C library's, as fast as memory.

import { fileURLToPath } from "node:url";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { median } from "./statistics.mjs";

const MEGABYTES_TO_READ = 1000;

/** The median of the milliseconds that `threads` threads need to read so many bytes together. */
export async function readMilliseconds(bytes, threads) {
  const share = Math.max(1, Math.ceil(bytes / threads));
  const rounds = Math.max(5, Math.round((MEGABYTES_TO_READ << 20) / bytes));
  const meetings = new Int32Array(new SharedArrayBuffer(4));
  const readers = Array.from({ length: threads }, () =>
    reader({ share, rounds, threads, meetings }),
  );
  const times = await Promise.all(readers);
  return median(times[0].map((_, round) => Math.max(...times.map((own) => own[round]))));
}

function reader(data) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: data });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

/** A thread's times. Before each round it waits until every thread has come. */
function read({ share, rounds, threads, meetings }) {
  const memory = Buffer.alloc(share, 1);
  const times = [];
  for (let round = 1; round <= rounds; round++) {
    Atomics.add(meetings, 0, 1);
    while (Atomics.load(meetings, 0) < round * threads);
    const start = performance.now();
    if (memory.includes(2)) throw new Error("memory is not what was written");
    times.push(performance.now() - start);
  }
  return times;
}

if (!isMainThread) parentPort.postMessage(read(workerData));
