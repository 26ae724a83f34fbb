// How long the event loop waits while uform works: `loop.mjs TEXTS`. Sends
// { open, encode }, each the loop's delay in milliseconds: 99th percentile and worst.

import { monitorEventLoopDelay } from "node:perf_hooks";
import { model } from "./places.mjs";
import { corpus } from "./texts.mjs";
import { Executor, Model } from "./uform.mjs";

const texts = corpus(Number(process.argv[2]));
const executor = Executor.forRam();
let encoder;
const open = await delayDuring(async () => {
  encoder = await Model.open(model, { executor });
});
const encode = await delayDuring(() => encoder.encodeText(texts, { executor }));
encoder.free();
executor.free();
process.send({ open, encode }, () => process.disconnect());

async function delayDuring(work) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  await new Promise((resolve) => setTimeout(resolve, 50)); // what came before has settled
  delay.enable();
  await work();
  await new Promise((resolve) => setTimeout(resolve, 5)); // a delay at the very end is seen too
  delay.disable();
  return { p99: delay.percentile(99) / 1e6, worst: delay.max / 1e6 };
}
