const { Executor, Model } = require("uform");

const executor = Executor.forRam({ threads: 2 });
const model = Model.loadRam(process.argv[2], { executor });
try {
  const found = model.encodeTextSync(["the engine will not start", "my car is broken"], {
    executor,
  });
  const cosine = found.row(0).reduce((sum, value, i) => sum + value * found.row(1)[i], 0);
  console.log(cosine > 0.4 ? "close" : `cosine ${cosine}`);
} finally {
  model.free();
  executor.free();
}
