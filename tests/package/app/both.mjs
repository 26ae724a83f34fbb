// One package loaded both ways is one package: its classes are the same.
import { createRequire } from "node:module";
import * as imported from "uform";

const required = createRequire(import.meta.url)("uform");
const differing = Object.keys(required).filter((name) => required[name] !== imported[name]);
try {
  imported.Model.loadRam("no/such/model");
} catch (error) {
  if (!(error instanceof required.NotFoundError)) differing.push("NotFoundError");
}
console.log(differing.length === 0 ? "close" : `differing: ${differing}`);
