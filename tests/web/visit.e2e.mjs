// A visit waits for nothing but its page, when the files are there already. Each answer that is waited for before the
// dashboard is drawn is a round trip of the player's line; how long that takes is printed by `figures.mjs`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, demo, openPage, useDemo } from "./lib.mjs";

useDemo();

const isLive = (page) => page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();

test("the dashboard is drawn and live without any answer but its page", async () => {
  const asked = [];
  const prepare = (page) =>
    page.route(/./, (route) => {
      if (route.request().resourceType() !== "fetch") return route.continue();
      asked.push(new URL(route.request().url()).pathname);
    });
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  await isLive(page);
  await page.locator("#panel .row .avatar").first().waitFor();
  assert.deepEqual(
    asked.filter((path) => /^\/(me|client-config|paired-servers|relay\/token)$/.test(path)),
    [],
  );
  assert.deepEqual(faults, []);
  await close();
});

test("of a page whose token is no longer good, the connection is made with another one", async () => {
  const prepare = (page) =>
    page.route(
      ({ pathname }) => pathname === "/",
      async (route) => {
        const answer = await route.fetch();
        const body = (await answer.text()).replace(/("relay":\{"token":")[^"]*/, "$1none");
        await route.fulfill({ response: answer, body });
      },
    );
  const { page, close } = await openPage(browser, demo, { prepare });
  await isLive(page);
  await close();
});

test("a repeated visit waits for no answer of the network but its page before it is drawn", {
  skip: process.env.WEB_DIR && "files of a directory are asked for again",
}, async () => {
  const prepare = (page) =>
    page.addInitScript(() => {
      new MutationObserver((_, seen) => {
        if (!document.querySelector(".shell")) return;
        globalThis.drawnAt = performance.now();
        seen.disconnect();
      }).observe(document, { childList: true, subtree: true });
    });
  const { page, close } = await openPage(browser, demo, { prepare });
  await isLive(page);
  await page.goto(demo.apiUrl);
  await page.locator(".shell").waitFor();
  const { files, sent } = await page.evaluate(() => {
    const before = performance
      .getEntriesByType("resource")
      .filter(({ responseEnd }) => responseEnd < globalThis.drawnAt);
    const names = (entries) => entries.map(({ name }) => new URL(name).pathname);
    return {
      files: names(before).filter((path) => path.startsWith("/_/")).length,
      // A file that the browser has kept is of no size.
      sent: names(before.filter(({ transferSize }) => transferSize > 0)),
    };
  });
  assert.ok(files > 10, `${files} files`);
  assert.deepEqual(sent, []);
  await close();
});
