// The tests that both backends share, in a page, on each of the package's modules.

import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { folders, serve } from "../../examples/browser/serve.mjs";
import { root } from "../node/support.mjs";
import { serve as serveFixtures } from "../shared/serve.mjs";
import { suite } from "../shared/suite.mjs";
import { launch, skip, visit } from "./chromium.mjs";

/** Files that are not there, and transfers that are cut, are what some of the tests are about. */
const remarks = /Failed to load resource|net::ERR/;

describe("what both backends do, in Chromium", { skip }, () => {
  let browser;
  let server;
  let address;
  let fixtures;

  before(async () => {
    ({ server, address } = await serve({
      ...folders,
      "/": join(root, "tests/browser"),
      "/shared/": join(root, "tests/shared"),
    }));
    fixtures = await serveFixtures();
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    fixtures?.close();
    server?.close();
  });

  for (const module of ["wasm32", "wasm32-relaxed", "wasm64"]) {
    describe(module, () => {
      let page;
      let close;

      before(async () => {
        // The fixtures are another origin, which the policy of the demo's server forbids.
        const options = { bypassCSP: true };
        ({ page, close } = await visit(browser, `${address}empty.html`, options, remarks));
        const loaded = await page.evaluate(prepare, { module, base: fixtures.base });
        if (loaded !== module) throw new Error(`${loaded} was loaded`);
      });
      after(() => close());

      for (const { name } of suite({ uform: {}, base: "http://localhost/" }))
        test(name, () => page.evaluate((name) => globalThis.tests.get(name)(), name));
    });
  }
});

/** In the page: loads a module, and keeps the tests by their names. Returns what was loaded. */
async function prepare({ module, base }) {
  const uform = await import("/uform/dist/web/web.js");
  const { suite } = await import("/shared/suite.mjs");
  await uform.load({ wasm: new URL(`/uform/dist/web/${module}.wasm`, location.href) });
  globalThis.tests = new Map(suite({ uform, base }).map(({ name, run }) => [name, run]));
  const executor = uform.Executor.forRam();
  const loaded = executor.describe().module;
  executor.free();
  return loaded;
}
