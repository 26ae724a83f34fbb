// Debian's Chromium, driven by playwright-core; and pages of it that may ask nobody but this machine.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chromium } from "playwright-core";

/** Milliseconds for whatever a page is waited for: far more than it takes, on a busy machine too. */
const PATIENCE = Number(process.env.PATIENCE ?? 120_000);

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
 * Opens an address in a context of its own and runs `use(page)`. Fails for whatever the page says in the
 * console as an error, for an uncaught exception, and for a request off this machine; but not for what `expected`
 * matches.
 */
export async function onPage(browser, address, options, use, expected) {
  const context = await browser.newContext(options);
  const complaints = [];
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()))
      complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("requestfailed", (request) => {
    const { errorText } = request.failure();
    // Given up by the page itself.
    if (errorText !== "net::ERR_ABORTED") complaints.push(`${request.url()}: ${errorText}`);
  });
  context.on("request", (request) => {
    const { protocol, hostname, href } = new URL(request.url());
    if (["data:", "blob:"].includes(protocol) || hostname === "localhost") return;
    complaints.push(`a request to ${href}`);
  });
  try {
    await page.goto(address);
    const result = await use(page);
    assert.deepEqual(
      complaints.filter((complaint) => !expected?.test(complaint)),
      [],
    );
    return result;
  } catch (failure) {
    // What the page complained of explains the failure better than what was waited for in vain.
    if (complaints.length > 0) failure.message += `\nThe page: ${complaints.join("\n")}`;
    throw failure;
  } finally {
    await context.close();
  }
}

function pathOf(name) {
  if (name === undefined) return undefined;
  const { status, stdout } = spawnSync("sh", ["-c", 'command -v "$1"', "sh", name], {
    encoding: "utf8",
  });
  return status === 0 ? stdout.trim() : undefined;
}
