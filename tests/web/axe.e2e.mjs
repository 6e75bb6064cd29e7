// Accessibility of each part of the dashboard, in light and dark, on a phone and a laptop, by the rules of axe.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { browser, demo, openPage, useDemo } from "./lib.mjs";

const AXE = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const TABS = ["Map", "Team", "Devices", "Feed", "Shops", "More"];

useDemo();

async function faultsOf(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate((tags) => globalThis.axe.run(document, { runOnly: tags }), RULES);
  return violations.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`)
        .slice(0, 3)
        .join(" | ")}`,
  );
}

for (const colorScheme of ["dark", "light"]) {
  for (const [width, height] of [
    [390, 844],
    [1366, 768],
  ]) {
    test(`axe finds nothing at ${width} × ${height}, ${colorScheme}`, async () => {
      const { page, close } = await openPage(browser, demo, { width, height, colorScheme, reducedMotion: "reduce" });
      await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
      for (const name of TABS) {
        const tab = page.getByRole("tab", { name });
        if ((await tab.getAttribute("aria-selected")) === "false") await tab.click();
        const hasPanel = !(name === "Map" && width < 720) && !(name === "Feed" && width >= 1100);
        if (hasPanel) await page.locator("#panel > *").first().waitFor({ state: "attached" });
        assert.deepEqual(await faultsOf(page), [], name);
      }
      await page.getByRole("button", { name: "Acknowledge" }).first().waitFor({ timeout: 200_000 });
      assert.deepEqual(await faultsOf(page), [], "a raid");
      await close();
    });
  }
}

test("axe finds nothing in an overlay", async () => {
  const { serverId } = demo;
  const { code } = await demo.call("POST", "/pairing/device/code", { scope: "overlay", serverId, label: "axe" });
  const { token } = await demo.call("POST", "/pairing/device/activate", { code });
  const path = `/overlay?server=${serverId}&show=raid,events,team&theme=plate#${token}`;
  const { page, faults, close } = await openPage(browser, demo, { signedIn: false, path });
  await page.locator(".member:not([hidden])").first().waitFor();
  // A layer over a picture has no heading.
  const found = (await faultsOf(page)).filter((fault) => !fault.startsWith("page-has-heading-one"));
  assert.deepEqual(found, []);
  assert.deepEqual(faults, []);
  await close();
});

test("axe finds nothing on the page for those who are not signed in", async () => {
  const { page, close } = await openPage(browser, demo, { signedIn: false });
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  assert.deepEqual(await faultsOf(page), []);
  await close();
});

for (const colorScheme of ["dark", "light"]) {
  test(`axe finds nothing in what is opened by hand, and in pages of the service, ${colorScheme}`, async () => {
    const { page, close } = await openPage(browser, demo, { colorScheme, reducedMotion: "reduce" });
    await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
    await page.getByRole("tab", { name: "Devices" }).click();
    await page.getByRole("button", { name: "Group switches" }).click();
    await page.getByRole("button", { name: "Name and place" }).first().click();
    assert.deepEqual(await faultsOf(page), [], "devices");
    await page.getByRole("tab", { name: "Shops" }).click();
    await page.locator("#panel .row button[aria-expanded]").first().click();
    assert.deepEqual(await faultsOf(page), [], "an offer");
    await page.getByRole("tab", { name: "More" }).click();
    await page.getByText("My data").waitFor();
    const closed = page.locator("#panel details:not([open]) > summary");
    while ((await closed.count()) > 0) await closed.first().click();
    await page.getByRole("button", { name: "Sign in with the game again" }).click();
    await page.waitForFunction(() => !document.querySelector("#panel")?.textContent?.includes("Loading…"));
    assert.deepEqual(await faultsOf(page), [], "all of more");
    await page.context().setOffline(true);
    await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pagehide")));
    await page
      .getByRole("status", { name: "Connection" })
      .filter({ hasText: /^offline/ })
      .waitFor();
    assert.deepEqual(await faultsOf(page), [], "offline");
    await page.context().setOffline(false);
    for (const path of ["/status", "/nothing", "/problems", "/problems/not_found"]) {
      await page.goto(demo.apiUrl + path);
      assert.deepEqual(await faultsOf(page), [], path);
    }
    await close();
  });
}
