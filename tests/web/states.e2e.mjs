// Every state of the dashboard and every page of the service, on a small phone and a laptop: nothing is beyond the edge, cut
// off or too small to be hit, and the rules of axe find nothing serious. The states are those of the pictures (`shots.mjs`).

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { flawsOf } from "./flaws.mjs";
import { browser, demo, openPage, useDemo } from "./lib.mjs";
import { signIn, startService } from "./service.mjs";
import { FAILING, PAGES, STATES, TABS, WITH_TABS } from "./states.mjs";

/** Axe and colours at both; the other file has both colours at each size. */
const SIZES = [
  { width: 360, height: 780, colorScheme: "dark", reducedMotion: "reduce" },
  { width: 1280, height: 800, colorScheme: "light", reducedMotion: "reduce" },
];

/** Pages as the service itself draws them. */
const DRAWN = {
  "/docs": 200,
  "/problems": 200,
  "/problems/not_found": 200,
  "/status": 200,
  "/wiki/tree": 200,
  "/wiki/page?slug=pairing": 200,
  "/ack/none": 404,
  "/none": 404,
  "/me": 401,
  // No one is an admin there.
  "/admin/overview": 503,
};

useDemo();

/** @type {any} a service with nothing paired, for the pages it draws */
let bare;
before(async () => {
  bare = await startService();
  // The demo is started meanwhile, and asks the game for the map once its link is up.
  while (!(await demo?.call("GET", `/paired-servers/${demo.serverId}/map`).catch(() => null)))
    await new Promise((resolve) => setTimeout(resolve, 500));
});
after(() => bare?.stop());

/** What is wrong with this page; requests that fail are errors to a browser, and are of some states. */
async function wrong(page, name, faults) {
  await page.waitForFunction(
    () => document.querySelector("#panel")?.closest("[hidden]") || !document.querySelector("#panel:empty"),
  );
  const said = faults.splice(0).filter((fault) => !(FAILING.includes(name) && /Failed to load/.test(fault)));
  return [...new Set([...(await flawsOf(page)), ...said])];
}

/** A page in a state. A raid turns a phone to the map, under the hands of what is done there: then once more. */
async function show(looks, prepare, then) {
  for (let tries = 1; ; tries++) {
    const opened = await openPage(browser, demo, { ...looks, prepare });
    try {
      await opened.page.locator(".shell, .sheet, .starting").first().waitFor();
      await then?.(opened.page);
      return opened;
    } catch (problem) {
      await opened.close();
      if (tries === 2) throw problem;
    }
  }
}

for (const looks of SIZES) {
  for (const [state, [prepare, then]] of Object.entries(STATES)) {
    test(`${state} at ${looks.width} pixels`, async () => {
      const { page, faults, close } = await show(looks, prepare, then);
      const found = {};
      for (const tab of WITH_TABS.includes(state) ? TABS : [""]) {
        const element = page.getByRole("tab", { name: new RegExp(`^${tab || "Team"}`) });
        if (tab && (await element.getAttribute("aria-selected")) === "false") await element.click();
        const flaws = await wrong(page, state, faults);
        if (flaws.length > 0) found[tab || state] = flaws;
      }
      await page.context().setOffline(false);
      await close();
      assert.deepEqual(found, {});
    });
  }

  for (const [name, path] of Object.entries(PAGES)) {
    test(`the page ${name} at ${looks.width} pixels`, async () => {
      const { page, faults, close } = await openPage(browser, demo, { ...looks, signedIn: false, path });
      assert.deepEqual(await wrong(page, name, faults), []);
      await close();
    });
  }

  test(`pages that the service draws, at ${looks.width} pixels`, async () => {
    const cookie = await signIn(bare);
    const { page, close } = await openPage(browser, { ...bare, cookie }, { ...looks, path: "/status" });
    for (const [path, status] of Object.entries(DRAWN)) {
      if (status === 401) await page.context().clearCookies();
      const answer = await page.goto(bare.apiUrl + path);
      if (path === "/me")
        await page.context().addCookies([{ name: "rp_sess", value: cookie.slice(8), url: bare.apiUrl }]);
      assert.equal(answer?.status(), status, path);
      assert.match(answer?.headers()["content-type"] ?? "", /^text\/html/, path);
      assert.equal(await page.evaluate(() => document.documentElement.lang), "en", path);
      // All of a page that is folded is looked at.
      await page.evaluate(() => {
        for (const one of document.querySelectorAll("details"))
          one.open = document.querySelectorAll("details").length < 40;
      });
      assert.deepEqual(await flawsOf(page), [], path);
    }
    // A form of another site.
    await page.route("**/auth/signout", (route) =>
      route.continue({ method: "POST", headers: { ...route.request().headers(), origin: "https://other.example" } }),
    );
    assert.equal((await page.goto(`${bare.apiUrl}/auth/signout`))?.status(), 403);
    assert.deepEqual(await flawsOf(page), [], "403");
    await close();
  });
}
