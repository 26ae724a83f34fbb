import { readFileSync } from "node:fs";
import { join } from "node:path";

/** The version in the package's own `package.json`. */
export function packageVersion(): string {
  const file = readFileSync(join(__dirname, "../../package.json"), "utf8");
  return (JSON.parse(file) as { version: string }).version;
}
