// For workerd, which takes a module compiled ahead of time and files as data modules.

import { Executor, load, Model } from "uform";
import wasm from "uform/wasm32.wasm";
import config from "model/config.json";
import modules from "model/modules.json";
import pooling from "model/1_Pooling/config.json";
import tokenizer from "model/tokenizer.json";
import weights from "model/model.safetensors";

const files = {
  "config.json": config,
  "modules.json": modules,
  "1_Pooling/config.json": pooling,
  "tokenizer.json": tokenizer,
  "model.safetensors": weights,
};

export default {
  async fetch(request) {
    await load({ wasm });
    const executor = Executor.forRam();
    const model = await Model.open(files, { executor });
    try {
      const { data } = await model.encodeText(await request.text(), { executor });
      return Response.json({ vector: Array.from(data), module: executor.describe().module });
    } finally {
      model.free();
      executor.free();
    }
  },
};
