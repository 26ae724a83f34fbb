// One measured program: the bench's side of the protocol that peers/serve.mjs tells.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

/** How much of what a program says on stderr is kept for the message of its failure. */
const STDERR_CHARACTERS = 2000;

export class Program {
  #child;
  #lines;
  #stderr = "";
  #closed;

  /** Starts it; its first message is its versions, so `versions` resolves when its model is loaded, and so does `weightBytes`. */
  constructor([command, ...args], env = {}) {
    this.#child = spawn(command, args, { env: { ...process.env, ...env } });
    this.#child.stderr.setEncoding("utf8").on("data", (text) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_CHARACTERS);
    });
    // A program that died before it read all is reported by the reply that does not come.
    this.#child.stdin.on("error", () => {});
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
    this.#closed = new Promise((resolve) => {
      this.#child.once("error", ({ message }) => resolve(message));
      this.#child.once("close", (code, signal) => resolve(`it ended with ${signal ?? code}`));
    });
    const first = this.#message();
    this.versions = first.then(({ versions }) => versions);
    this.weightBytes = first.then(({ weightBytes }) => weightBytes);
    // A program that fails is told by `versions`, which everybody waits for.
    this.weightBytes.catch(() => {});
  }

  /** Sends calls and gives `{ times, wall, vectors }`, in milliseconds. */
  async request(message) {
    await this.versions;
    this.#child.stdin.write(`${JSON.stringify(message)}\n`);
    return this.#message();
  }

  /** The most resident memory it has ever had, in megabytes (MiB). */
  peakMegabytes() {
    const status = readFileSync(`/proc/${this.#child.pid}/status`, "utf8");
    const [, kilobytes] = /^VmHWM:\s+(\d+)/m.exec(status);
    return Number(kilobytes) / 1024;
  }

  /** Ends it and waits until it has. */
  async end() {
    this.#child.stdin.end();
    await this.#closed;
  }

  async #message() {
    const { value, done } = await this.#lines.next();
    if (!done) return JSON.parse(value);
    throw new Error(`${await this.#closed}\n${this.#stderr.trim()}`);
  }
}
