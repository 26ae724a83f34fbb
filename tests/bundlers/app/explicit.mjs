// For a bundler that is told what to do with the file: its address is handed to `load`.

import { load } from "uform";
import wasm from "uform/wasm32.wasm";

await load({ wasm: new URL(wasm, import.meta.url) });
await import("./page.mjs");
