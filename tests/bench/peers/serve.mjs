// The protocol between the bench and the programs it measures, a line of JSON each way:
//
//   program  { versions: { NAME: VERSION, … }, weightBytes: 1000 }        once its model is loaded
//   bench    { calls: [["a text", …], …], callers: 1, vectors: false }    as often as it likes
//   program  { times: [ms, …], wall: ms, vectors: [[0.1, …], …] }         a time for each call
//
// Calls are computed one after the other, or, in programs that serve several
// callers, by `callers` loops that each take the next call. A program gives its
// vectors where it is asked for them, a unit vector for each text in order. The
// bytes of weights that every text is multiplied by are said by uform alone. The
// end of its input ends it. This file is the program's side in JavaScript.

import { createInterface } from "node:readline";

/**
 * Serves until the input ends; `embed` turns an array of texts into an array of vectors, and `more`
 * is said beside the versions.
 */
export async function serve(versions, embed, more = {}) {
  say({ versions, ...more });
  for await (const line of createInterface({ input: process.stdin }))
    say(await answer(JSON.parse(line), embed));
  process.exit();
}

async function answer({ calls, callers = 1, vectors = false }, embed) {
  const times = [];
  const rows = [];
  let next = 0;
  const caller = async () => {
    while (next < calls.length) {
      const call = next++;
      const start = performance.now();
      const found = await embed(calls[call]);
      times[call] = performance.now() - start;
      if (vectors) rows[call] = found.map((row) => Array.from(row));
    }
  };
  const begin = performance.now();
  await Promise.all(Array.from({ length: callers }, caller));
  const wall = performance.now() - begin;
  return vectors ? { times, wall, vectors: rows.flat() } : { times, wall };
}

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
