// A worker of changing-files.test.mjs, which changes a file while another thread reads it. It answers when it begins
// and when it has ended.
import fs from "node:fs";
import { parentPort } from "node:worker_threads";

const PIECE = 64 << 10;

/** Writes a file anew in pieces, over what it has. */
function write(file, from) {
  const bytes = fs.readFileSync(from);
  for (let at = 0; at < bytes.length; at += PIECE) {
    fs.writeSync(file, bytes, at, Math.min(PIECE, bytes.length - at), at);
  }
}

const changes = {
  /** All the while: the signs of numbers here and there. */
  "overwritten here and there"({ path, stop }) {
    const file = fs.openSync(path, "r+");
    const size = fs.fstatSync(file).size;
    const bytes = Buffer.alloc(PIECE);
    while (Atomics.load(stop, 0) === 0) {
      // The second half has no header, and its numbers lie at multiples of 4 from the end.
      const at = size - 4 * Math.ceil((Math.random() * (size / 2 - PIECE)) / 4) - PIECE;
      fs.readSync(file, bytes, 0, PIECE, at);
      for (let sign = 3; sign < PIECE; sign += 4) bytes[sign] ^= 0x80;
      fs.writeSync(file, bytes, 0, PIECE, at);
    }
    fs.closeSync(file);
  },
  "written anew"({ path, other }) {
    const file = fs.openSync(path, "w");
    write(file, other);
    fs.closeSync(file);
  },
  cut: ({ path }) => fs.truncateSync(path, Math.floor(Math.random() * fs.statSync(path).size)),
  emptied: ({ path }) => fs.truncateSync(path, 0),
  "made longer": ({ path, other }) => fs.appendFileSync(path, fs.readFileSync(other)),
  deleted: ({ path }) => fs.rmSync(path),
  replaced: ({ path, beside }) => fs.renameSync(beside, path),
  "replaced by a pipe": ({ path, beside }) => fs.renameSync(beside, path),
  "made a folder"({ path }) {
    fs.rmSync(path);
    fs.mkdirSync(path);
  },
};

parentPort.on("message", (what) => {
  parentPort.postMessage("begun");
  for (const start = performance.now(); performance.now() - start < what.after;);
  changes[what.change](what);
  parentPort.postMessage("ended");
});
