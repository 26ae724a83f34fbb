// Prints the vector of a text as JSON: `embed.cjs MODEL TEXT`.
const { Executor, Model } = require("uform");

const [path, text] = process.argv.slice(2);
const executor = Executor.forRam({ threads: 1 });
const model = Model.loadRam(path, { executor });
console.log(JSON.stringify(Array.from(model.encodeTextSync(text, { executor }).data)));
model.free();
executor.free();
