// Prints the vector of a text as JSON: `embed.mjs MODEL TEXT`.
import { Executor, Model } from "uform";

const [path, text] = process.argv.slice(2);
const executor = Executor.forRam({ threads: 1 });
const model = await Model.open(path, { executor });
console.log(JSON.stringify(Array.from((await model.encodeText(text, { executor })).data)));
model.free();
executor.free();
