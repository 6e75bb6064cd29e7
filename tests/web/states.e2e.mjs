// Every state of the dashboard and every page of the service, on a small phone and a laptop: nothing is beyond the edge, cut
// off or too small to be hit, and the rules of axe find nothing serious. The states are those of the pictures (`shots.mjs`).

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { flawsOf } from "./flaws.mjs";
import { browser, demo, end, openPage, openSession, useDemo } from "./lib.mjs";
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

useDemo({ isSideBySide: true });

/** @type {any} a service with nothing paired, for the pages it draws */
let bare;
before(async () => {
  bare = await startService();
  // The demo is started meanwhile, and asks the game for the map once its link is up.
  while (!(await demo?.call("GET", `/paired-servers/${demo.serverId}/map`).catch(() => null)))
    await new Promise((resolve) => setTimeout(resolve, 500));
  // The demo raids those who watch; from then on there is something to acknowledge.
  const { page, close } = await openPage(browser, demo);
  await page.getByRole("button", { name: "Acknowledge" }).first().waitFor({ timeout: 200_000 });
  await close();
});
after(() => bare?.stop());

/** The faults of this page; requests that fail are errors to a browser, and are of some states. */
async function wrong(page, name, faults, within) {
  await page.waitForFunction(
    () => document.querySelector("#panel")?.closest("[hidden]") || !document.querySelector("#panel:empty"),
  );
  const said = faults.splice(0).filter((fault) => !(FAILING.includes(name) && /Failed to load/.test(fault)));
  return [...new Set([...(await flawsOf(page, within)), ...said])];
}

/** One phone and one laptop, side by side; the pages of each have what it keeps in common. */
describe("at each size", { concurrency: SIZES.length }, () => {
  for (const looks of SIZES) describe(`at ${looks.width} pixels`, { concurrency: 1 }, () => look(looks));
});

function look(looks) {
  let session;
  before(async () => (session = await openSession(browser, demo, looks)));
  after(() => session && end(session));

  for (const [state, [prepare, then]] of Object.entries(STATES)) {
    test(`${state} at ${looks.width} pixels`, async () => {
      // Its clock is another one, for all pages of a session.
      const kept = state === "offline" ? null : session;
      const { page, faults, close } = await openPage(browser, demo, { ...looks, session: kept, prepare });
      await page.locator(".shell, .sheet, .starting").first().waitFor();
      await then?.(page);
      const found = {};
      for (const tab of WITH_TABS.includes(state) ? TABS : [""]) {
        const element = page.getByRole("tab", { name: new RegExp(`^${tab || "Team"}`) });
        if (tab && (await element.getAttribute("aria-selected")) === "false") await element.click();
        // Beside its panel, a tab is like the one before it.
        const flaws = await wrong(page, state, faults, tab === "" || tab === TABS[0] ? "body" : "#panel");
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
