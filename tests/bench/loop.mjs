// How long the event loop waits while uform works: `loop.mjs THREADS TEXTS`. Sends
// { open, encode }, each the loop's delay in milliseconds: 99th percentile and worst.

import { monitorEventLoopDelay } from "node:perf_hooks";
import { Executor, Model } from "../../dist/index.mjs";
import { model } from "./places.mjs";
import { corpus } from "./texts.mjs";

const [threads, count] = process.argv.slice(2).map(Number);
const texts = corpus(count);
const executor = Executor.forRam({ threads });
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
