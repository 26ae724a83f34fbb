// The page of examples/browser as a visitor has it: in Chromium, at a desk and on a phone, by day and by night.
// Screenshots go to target/screenshots/.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { folders, serve } from "../../examples/browser/serve.mjs";
import { modelPath, root } from "../node/support.mjs";
import { launch, skip, visit } from "./chromium.mjs";

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

  for (const [name, view] of Object.entries(views)) {
    describe(`on a ${name}`, () => {
      let page;
      let close;
      before(async () => ({ page, close } = await visit(browser, address, view)));
      // Fails for what the page said in the console meanwhile.
      after(() => close());

      test("has something to look at before anything is done", async () => {
        await answered(page, /Hot water comes from the wood boiler/);
        assert.match(await page.textContent("#figures"), /Modulewasm(32|64)/);
      });

      test("answers a question, by day and by night", async () => {
        await ask(page, "can I bring my dog?");
        await answered(page, /^Well-mannered pets/);
        assert.match(await page.textContent("#status"), /^The best 5 of 24 passages, in/);
        assert.match(await page.textContent("#results .score"), /^0\.\d\d$/);
        assert.match(await page.textContent("#results mark"), /pets may stay/);
        for (const colorScheme of ["light", "dark"]) {
          await page.emulateMedia({ colorScheme });
          const path = join(screenshots, `${name}-${colorScheme}.png`);
          await page.screenshot({ path });
          await page.screenshot({ path: path.replace(".png", "-whole.png"), fullPage: true });
        }
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.equal(width, view.viewport.width, "it scrolls sideways");
      });

      test("is used without a mouse", async () => {
        await page.focus("#query");
        await page.keyboard.press("ControlOrMeta+A");
        await page.keyboard.type("thunder and lightning");
        await page.keyboard.press("Enter");
        await answered(page, /^Storms build up/);
        const passed = [];
        for (let i = 0; i < 8; i++) {
          await page.keyboard.press("Tab");
          passed.push(
            await page.evaluate(
              () => document.activeElement.textContent.trim() || document.activeElement.id,
            ),
          );
        }
        assert.equal(passed[0], "Search");
        assert.equal(passed[1], "can I bring my dog?");
        assert.deepEqual(passed.slice(5), ["text", "Read this text", "choose"]);
        await page.focus("#examples button");
        await page.keyboard.press("Enter");
        await answered(page, /^Well-mannered pets/);
      });

      test("reads files and pasted text, and says what it cannot read", async () => {
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
        await page.click("#files button >> nth=0");
        await page.locator("#figures", { hasText: "3 passages" }).waitFor();

        await page.setInputFiles("#choose", file("photo.jpg", "\xff\xd8\0\0"));
        await page.waitForSelector("text=photo.jpg is not a text file.");
        assert.ok(await isInView(page, "#problem"), "the problem is out of sight");
        await page.screenshot({ path: join(screenshots, `${name}-problem.png`) });
        await page.click("#files button");
        await page.fill("#text", "");
        await page.click("text=Read this text");
        await page.waitForSelector("text=There is no text to read");
      });

      test("shows what is pasted as text, never as markup", async () => {
        const text = "An <img src=x onerror=alert(1)> is <b>not</b> an image.";
        await page.fill("#text", text);
        await page.click("text=Read this text");
        await answered(page, /^An <img src=x onerror=alert\(1\)> is <b>not<\/b> an image\.$/);
      });
    });
  }

  test("a download can be given up, and begun again", async () => {
    const { page, close } = await visit(browser, "about:blank", views.phone);
    let downloads = 0;
    await page.route("**/model.safetensors", () => downloads++); // never answered
    const begun = page.waitForRequest("**/model.safetensors");
    await page.goto(address);
    await begun;
    await page.screenshot({ path: join(screenshots, "phone-loading.png") });
    await page.press("#query", "Enter"); // waits with the text for the same model
    await page.click("#cancel");
    await page.waitForSelector("text=The model was not loaded.");
    await page.unroute("**/model.safetensors");
    await page.click("text=Try again");
    await answered(page, /Hot water/);
    assert.equal(downloads, 1);
    await close();
  });

  test("a model that is not there is a sentence, not a blank page", async () => {
    const missing = /404 .*nowhere/;
    const { page, close } = await visit(browser, `${address}?model=nowhere/`, views.phone, missing);
    await page.waitForSelector("#problem >> text=config.json: no such file");
    await page.waitForSelector("#problem >> text=Try again");
    await close();
  });
});

async function ask(page, question) {
  await page.fill("#query", question);
  await page.press("#query", "Enter");
}

/** Whether all of an element is between the window's edges. */
function isInView(page, selector) {
  return page.$eval(selector, (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });
}

/** Waits until the first passage says so, and its best sentence is marked. */
async function answered(page, words) {
  const first = page.locator("#results li:first-child blockquote");
  await first.filter({ has: page.locator("mark"), hasText: words }).waitFor();
}
