// What holds on both backends, on the native one. `tests/wasm` runs the same.
import { after, test } from "node:test";
import * as uform from "uform";
import { serve } from "../shared/serve.mjs";
import { suite } from "../shared/suite.mjs";

const { base, close } = await serve();
after(close);

for (const { name, run } of suite({ uform, base })) test(name, run);
