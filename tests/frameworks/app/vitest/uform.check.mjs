import { expect, test } from "vitest";
import * as uform from "uform";
import { checks } from "../checks.cjs";

for (const [name, check] of Object.entries(checks)) test(name, () => check(uform, expect));
