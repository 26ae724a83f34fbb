// What every app does: a sentence to its vector, with the package as the app's surroundings resolve it.

import { Executor, load, Model } from "uform";

/** The vector of a text by the model at an address, and the module that computed it. */
export async function embed(address, text) {
  await load();
  const executor = Executor.forRam();
  const model = await Model.open(new URL(address), { executor });
  try {
    const { data } = await model.encodeText(text, { executor });
    return { vector: Array.from(data), module: executor.describe().module };
  } finally {
    model.free();
    executor.free();
  }
}
