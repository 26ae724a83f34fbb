import { Worker } from "node:worker_threads";

new Worker(new URL("./esm.mjs", import.meta.url), { argv: process.argv.slice(2) });
