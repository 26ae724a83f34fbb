import { Executor, Model } from "uform";

const executor = Executor.forRam({ threads: 2 });
const model = await Model.open(process.argv[2], { executor });
try {
  const found = await model.encodeText(["a red bicycle", "a bike painted red"], { executor });
  const cosine = found.row(0).reduce((sum, value, i) => sum + value * found.row(1)[i], 0);
  console.log(cosine > 0.8 ? "close" : `cosine ${cosine}`);
} finally {
  model.free();
  executor.free();
}
