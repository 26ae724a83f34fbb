// The page of examples/browser as a visitor has it: in Chromium, at a desk and on a phone, by day and by night.
// Screenshots go to target/screenshots/.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { folders, serve } from "../../examples/browser/serve.mjs";
import { modelPath, root } from "../node/support.mjs";
import { launch, onPage, skip } from "./chromium.mjs";

const screenshots = join(root, "target/screenshots");
const views = {
  desktop: { viewport: { width: 1280, height: 800 } },
  phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true },
};

describe("the page", { skip }, () => {
  let browser;
  let server;
  let address;

  before(async () => {
    mkdirSync(screenshots, { recursive: true });
    ({ server, address } = await serve({ ...folders, "/models/all-MiniLM-L6-v2/": modelPath }));
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });

  // A file that this model could have and has not, which the browser remarks upon.
  const absent = /404 .*2_Normalize\/config\.json/;
  const open = (options, use) => onPage(browser, address, options, use, absent);

  for (const [name, view] of Object.entries(views)) {
    for (const colorScheme of ["light", "dark"]) {
      test(`answers a question on a ${name}, ${colorScheme}`, async () => {
        await open({ ...view, colorScheme, hasTouch: name === "phone" }, async (page) => {
          // Something to look at without doing anything.
          await answered(page, /Hot water comes from the wood boiler/);
          await ask(page, "can I bring my dog?");
          await answered(page, /^Well-mannered pets/);
          assert.match(await page.textContent("#status"), /^The best 5 of 24 passages, in/);
          assert.match(await page.textContent("#results .score"), /^0\.\d\d$/);
          assert.match(await page.textContent("#results mark"), /pets may stay/);
          assert.match(await page.textContent("#figures"), /Module *wasm(32|64)/);
          const width = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.equal(width, view.viewport.width, "it scrolls sideways");
          const path = join(screenshots, `${name}-${colorScheme}.png`);
          await page.screenshot({ path });
          await page.screenshot({ path: path.replace(".png", "-whole.png"), fullPage: true });
        });
      });
    }
  }

  test("is used without a mouse", async () => {
    await open(views.desktop, async (page) => {
      await answered(page, /Hot water/);
      const reached = [];
      for (let i = 0; i < 9; i++) {
        await page.keyboard.press("Tab");
        reached.push(
          await page.evaluate(() => document.activeElement.textContent.trim().slice(0, 9)),
        );
      }
      // The field, its button, four questions, the text, its two buttons.
      assert.deepEqual(
        [reached[0], reached[1], reached[6], reached[7]],
        ["", "Search", "", "Read this"],
      );
      await page.focus("#examples button");
      await page.keyboard.press("Enter");
      await answered(page, /^Well-mannered pets/);
      await page.focus("#query");
      await page.keyboard.press("ControlOrMeta+A");
      await page.keyboard.type("thunder and lightning");
      await page.keyboard.press("Enter");
      await answered(page, /^Storms build up/);
    });
  });

  test("reads pasted text and files, and says what it cannot read", async () => {
    await open(views.desktop, async (page) => {
      await answered(page, /Hot water/);
      const file = (name, text) => ({ name, mimeType: "", buffer: Buffer.from(text) });
      await page.setInputFiles("#choose", [
        file("tides.md", "# Sea\n\nThe water is highest at noon.\n"),
        file("birds.txt", "Swifts sleep on the wing."),
      ]);
      await ask(page, "flying animals");
      await answered(page, /^Swifts sleep/);
      assert.match(await page.textContent("#results .from"), /^birds\.txt/);

      await page.fill("#text", "The baker opens at five.\n\nThe smith shoes horses.");
      await page.click("text=Read this text");
      await ask(page, "fresh bread in the early morning");
      await answered(page, /^The baker/);

      await page.click("text=Remove >> nth=0");
      await page.locator("#figures", { hasText: "3 passages" }).waitFor();

      await page.setInputFiles("#choose", file("photo.jpg", "\xff\xd8\0\0"));
      await page.waitForSelector("text=photo.jpg is not a text file.");
      await page.screenshot({ path: join(screenshots, "desktop-problem.png") });
      await page.fill("#text", "");
      await page.click("#files button");
      await page.waitForSelector("text=There is no text to read");
    });
  });

  test("what is pasted is text, never markup", async () => {
    await open(views.desktop, async (page) => {
      await answered(page, /Hot water/);
      await page.fill("#text", "An <img src=x onerror=alert(1)> is <b>not</b> an image.");
      await page.click("text=Read this text");
      await answered(page, /^An <img src=x onerror=alert\(1\)> is <b>not<\/b> an image\.$/);
    });
  });

  test("a download can be given up, and begun again", async () => {
    await open(views.phone, async (page) => {
      await answered(page, /Hot water/);
      await page.route("**/model.safetensors", () => {}); // never answered
      await page.goto(`${address}?precision=f32`);
      await page.evaluate(() =>
        caches.keys().then((keys) => Promise.all(keys.map((key) => caches.delete(key)))),
      );
      await page.reload();
      await page.waitForSelector("#work:not([hidden])");
      await page.screenshot({ path: join(screenshots, "phone-loading.png") });
      await page.click("#cancel");
      await page.waitForSelector("text=The model was not loaded.");
      await page.unroute("**/model.safetensors");
      await page.click("text=Try again");
      await answered(page, /Hot water/);
    });
  });

  test("a model that is not there is a sentence, not a blank page", async () => {
    const use = async (page) => {
      await page.waitForSelector("#problem >> text=config.json: no such file");
      await page.waitForSelector("#problem >> text=Try again");
    };
    await onPage(browser, `${address}?model=nowhere/`, views.phone, use, /404 .*nowhere/);
  });
});

async function ask(page, question) {
  await page.fill("#query", question);
  await page.press("#query", "Enter");
}

/** Waits until the first passage says so, and its best sentence is marked. */
async function answered(page, words) {
  const first = page.locator("#results li:first-child blockquote");
  await first.filter({ has: page.locator("mark"), hasText: words }).waitFor();
}
