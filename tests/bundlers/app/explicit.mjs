// For a bundler that is told what to do with the file: its address is handed to `load`.

import { load } from "uform";
import wasm from "uform/wasm32.wasm";
import { embed } from "./embed.mjs";

const page = async () => {
  await load({ wasm: new URL(wasm, import.meta.url) });
  return embed(new URL("/model/", location.href).href, "a red bicycle");
};

globalThis.outcome = page().then((page) => ({ page }));
