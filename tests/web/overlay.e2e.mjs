// The overlay: its address is made in the dashboard, and it shows what that says, without a sign-in.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, demo, openPage, useDemo } from "./lib.mjs";

useDemo();

test("an overlay is made in the dashboard and shows a raid to a browser that has no session", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await page.getByRole("tab", { name: "More" }).click();
  await page.getByText("Overlay for streams").click();
  await page.getByLabel("team", { exact: true }).check();
  await page.getByRole("img", { name: "Preview" }).getByText("RAID H5").waitFor();
  await page.getByRole("button", { name: "Make the address" }).click();
  const address = await page.locator("pre").textContent();
  const url = new URL(address ?? "");
  assert.equal(url.pathname, "/overlay");
  assert.match(url.hash, /^#[0-9a-f]{96}$/, "the token is where no server sees it");
  assert.deepEqual(faults, []);
  await close();

  const path = url.pathname + url.search + url.hash;
  const overlay = await openPage(browser, demo, { width: 1920, height: 1080, signedIn: false, path });
  await overlay.page.locator(".member:not([hidden])").first().waitFor();
  await overlay.page.locator(".raid:not([hidden])").waitFor({ timeout: 150_000 });
  assert.match((await overlay.page.locator(".raid").textContent()) ?? "", /^RAID [A-Z]+[0-9]+/);
  const background = await overlay.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(background, "rgba(0, 0, 0, 0)");
  assert.deepEqual(overlay.faults, []);
  if (process.env.SHOTS) await overlay.page.screenshot({ path: `${process.env.SHOTS}/overlay.png` });
  await overlay.close();
});

test("an address without a token says what to do", async () => {
  const { page, faults, close } = await openPage(browser, demo, { signedIn: false, path: "/overlay" });
  await page.getByText("This address has no token.").waitFor();
  assert.deepEqual(faults, []);
  await close();
});
