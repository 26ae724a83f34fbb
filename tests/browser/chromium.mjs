// Debian's Chromium, driven by playwright-core; and pages of it that may ask nobody but this machine.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chromium } from "playwright-core";

/** Milliseconds for whatever a page is waited for: far more than it takes, on a busy machine too. */
const PATIENCE = 120_000;

const names = [process.env.UFORM_TEST_CHROMIUM, "chromium", "chromium-browser", "google-chrome"];
const executable = names.map(pathOf).find((path) => path !== undefined);

/** What tests that need a browser take as `skip`: false, or why not. */
export const skip =
  executable === undefined && "SKIPPED: no Chromium here; `apt-get install chromium` brings one";

/** A browser; close it. */
export function launch() {
  return chromium.launch({ executablePath: executable });
}

/**
 * Opens an address in a context of its own: `{ page, close }`. Closing fails for whatever the page said in the
 * console as an error or warning, for an uncaught exception, and for a request off this machine; but not for what
 * `expected` matches.
 */
export async function visit(browser, address, options = {}, expected = undefined) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const complaints = [];
  const complain = (complaint) => {
    if (!expected?.test(complaint)) complaints.push(complaint);
  };
  page.on("console", (message) => {
    const isBad = ["error", "warning"].includes(message.type());
    if (isBad) complain(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => complain(String(error)));
  page.on("requestfailed", (request) => {
    const { errorText } = request.failure();
    // Given up by the page itself.
    if (errorText !== "net::ERR_ABORTED") complain(`${request.url()}: ${errorText}`);
  });
  context.on("request", (request) => {
    const { protocol, hostname, href } = new URL(request.url());
    const isHere = ["localhost", "127.0.0.1"].includes(hostname);
    if (isHere || ["data:", "blob:"].includes(protocol)) return;
    complain(`a request to ${href}`);
  });
  await page.goto(address);
  const close = async () => {
    await context.close();
    assert.deepEqual(complaints, []);
  };
  return { page, close };
}

/** Runs `use(page)` at an address, as {@link visit} opens it, and returns what it does. */
export async function onPage(browser, address, use) {
  const { page, close } = await visit(browser, address);
  try {
    return await use(page);
  } finally {
    // Last: what the page complained of explains what was waited for and did not come.
    await close();
  }
}

function pathOf(name) {
  if (name === undefined) return undefined;
  const { status, stdout } = spawnSync("sh", ["-c", 'command -v "$1"', "sh", name], {
    encoding: "utf8",
  });
  return status === 0 ? stdout.trim() : undefined;
}
