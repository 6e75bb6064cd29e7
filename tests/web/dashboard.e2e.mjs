// The dashboard against a real service, in a real browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import { browser, countTones, demo, openPage, useDemo } from "./lib.mjs";

useDemo();

test("the printed link opens the dashboard signed in, and a raid is announced until it is acknowledged", async () => {
  const { page, faults, close } = await openPage(browser, demo, { signedIn: false, path: "/" });
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  const known = faults.length; // `/me` answers 401, which the console calls an error
  await page.goto(demo.openUrl);
  await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
  assert.equal(new URL(page.url()).origin, demo.apiUrl);

  const alert = page.getByRole("alert").filter({ hasText: /^RAID/ });
  await alert.waitFor({ state: "attached", timeout: 60_000 });
  assert.match(await page.title(), /RAID|Demo/);
  await page.getByRole("button", { name: "Show on map" }).first().click();
  await page.getByRole("button", { name: "Acknowledge", exact: true }).first().click();
  // An alarm that goes on may open another incident meanwhile.
  await page.waitForFunction(
    () => {
      dispatchEvent(new KeyboardEvent("keydown", { code: "KeyA", altKey: true, cancelable: true }));
      return document.querySelectorAll(".raid-bar .primary").length === 0;
    },
    null,
    { polling: 1000 },
  );
  await page.getByText("Acknowledged").first().waitFor();
  assert.equal(await alert.count(), 0);
  const { alarms } = await demo.call("GET", `/paired-servers/${demo.serverId}/alarms`);
  assert.ok(Object.keys(alarms[0].acks).length > 0, "the service knows of it");
  assert.deepEqual(
    faults.slice(known).filter((fault) => !fault.includes("401")),
    [],
  );
  await close();
});

test("a switch shows the wanted state, and then the game's", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await page.getByRole("tab", { name: "Devices" }).click();
  const gate = page.getByRole("switch", { name: "Gate" });
  await gate.waitFor();
  const before = await gate.getAttribute("aria-checked");
  await gate.click();
  await page.waitForFunction(
    ([name, was]) => {
      const one = document.querySelector(`[role=switch][aria-label="${name}"]`);
      return one?.getAttribute("aria-checked") !== was && !one?.hasAttribute("aria-busy");
    },
    ["Gate", before],
  );
  const { devices } = await demo.call("GET", `/paired-servers/${demo.serverId}/devices`);
  assert.equal(String(devices.find(({ name }) => name === "Gate").value), await gate.getAttribute("aria-checked"));
  assert.deepEqual(faults, []);
  await close();
});

test("every tab works, by mouse and by keys", async () => {
  const { page, faults, close } = await openPage(browser, demo, { width: 390, height: 844 });
  for (const name of ["Team", "Devices", "Feed", "Shops", "More", "Map"]) {
    const tab = page.getByRole("tab", { name });
    await tab.click();
    assert.equal(await tab.getAttribute("aria-selected"), "true");
  }
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  assert.equal(await page.getByRole("tab", { name: "Team" }).getAttribute("aria-selected"), "true");
  await page.getByText("Juniper").first().waitFor();
  const chat = page.getByRole("textbox", { name: "Say something" });
  await chat.fill("hello from the dashboard");
  await chat.press("Enter");
  await page.getByRole("log", { name: "Team chat" }).getByText("hello from the dashboard").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a tab is opened where it was left", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  const panel = page.locator("#panel");
  const open = (name) => page.getByRole("tab", { name }).click();
  const scrolled = () => panel.evaluate((element) => element.scrollTop);
  await open("More");
  await page.getByText("My data").waitFor();
  await panel.evaluate((element) => (element.scrollTop = 200));
  await open("Devices");
  await page.getByRole("switch").first().waitFor();
  assert.equal(await scrolled(), 0, "another tab begins at its top");
  await open("More");
  await page.getByText("My data").waitFor();
  assert.equal(await scrolled(), 200);
  assert.deepEqual(faults, []);
  await close();
});

test("the map is beside a list of what is on it", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await page.getByRole("application", { name: "Map" }).waitFor();
  await page.getByRole("tab", { name: "Map" }).click();
  const list = page.getByRole("list", { name: "On the map" });
  await list.getByRole("button", { name: /^Juniper [A-Z]+[0-9]+$/ }).click();
  await page.getByRole("button", { name: "Follow" }).click();
  await page.getByText("Following Juniper").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a map that is not known yet, as after the pairing, comes later", async () => {
  let asked = 0;
  const prepare = (page) =>
    page.route(/\/paired-servers\/[^/]+\/map$/, (route) => {
      asked += 1;
      if (asked === 1)
        return route.fulfill({ status: 404, json: { code: "not_found", detail: "There is no map yet." } });
      return route.continue();
    });
  const { page, close } = await openPage(browser, demo, { prepare });
  await page.waitForResponse((answer) => answer.url().includes("/map/image") && answer.ok());
  assert.equal(asked, 2);
  await close();
});

test("a page to which the service gives no answer comes back by itself", async () => {
  let isDown = true;
  const prepare = async (page) => {
    await page.route(
      ({ pathname }) => pathname === "/",
      async (route) => {
        const answer = await route.fetch();
        const body = (await answer.text()).replace(/(id="answers">).*?(<\/script>)/, "$1$2");
        await route.fulfill({ response: answer, body });
      },
    );
    await page.route(/\/me$/, (route) =>
      isDown ? route.fulfill({ status: 503, json: { code: "unavailable", detail: "Not now." } }) : route.continue(),
    );
  };
  const { page, close } = await openPage(browser, demo, { prepare });
  await page.getByText("Not now.").waitFor();
  isDown = false;
  await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
  await close();
});

test("a connection that is lost is said, and comes back", async () => {
  const { page, close } = await openPage(browser, demo);
  const status = page.getByRole("status", { name: "Connection" });
  await status.filter({ hasText: /^live/ }).waitFor();
  await page.context().setOffline(true);
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pagehide")));
  await status.filter({ hasText: /^offline/ }).waitFor();
  await page.context().setOffline(false);
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  await status.filter({ hasText: /^live/ }).waitFor();
  await close();
});

test("a place of an alarm is set on the map", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await page.getByRole("tab", { name: "Devices" }).click();
  const row = page.getByRole("listitem").filter({ hasText: "Wall alarm" });
  await row.getByRole("button", { name: "Name and place" }).click();
  await row.getByRole("textbox", { name: "Name" }).fill("North wall");
  await row.getByRole("button", { name: "Save" }).click();
  const renamed = page.getByRole("listitem").filter({ hasText: "North wall" });
  await renamed.getByRole("button", { name: "Name and place" }).click();
  await renamed.getByRole("button", { name: "Set its place on the map" }).click();
  await page.getByText("Choose where it stands.").waitFor();
  await page.getByRole("application", { name: "Map" }).click({ position: { x: 200, y: 300 } });
  await page.getByText("Choose where it stands.").waitFor({ state: "detached" });
  const { devices } = await demo.call("GET", `/paired-servers/${demo.serverId}/devices`);
  const [wall, base] = ["North wall", "Base alarm"].map((name) =>
    devices.find((device) => (device.label ?? device.name) === name),
  );
  assert.notDeepEqual([wall.x, wall.y], [base.x, base.y]);
  assert.deepEqual(faults, []);
  await close();
});

test("the outcome of a payment is said to those who come back", async () => {
  const { page, faults, close } = await openPage(browser, demo, { path: "/?billing=cancelled" });
  await page.getByText("You did not buy anything.").waitFor();
  assert.equal(new URL(page.url()).search, "");
  await page.getByRole("button", { name: "See your plan" }).click();
  await page.getByText("Plan and payment").click();
  await page.getByText("There is no subscription.").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("tabs of one browser have one connection, and when its tab is closed another one goes on", async () => {
  const first = await openPage(browser, demo);
  const live = (page) => page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
  await live(first.page);
  const second = await first.page.context().newPage();
  const opened = second.waitForEvent("websocket", { timeout: 60_000 });
  let count = 0;
  second.on("websocket", () => (count += 1));
  await second.goto(demo.apiUrl);
  await live(second);
  await second.getByText("Juniper").first().waitFor();
  assert.equal(count, 0);
  await first.page.close({ runBeforeUnload: false });
  await opened;
  await live(second);
  await second.getByRole("tab", { name: "Devices" }).click();
  await second.getByRole("switch", { name: "Lights" }).click();
  await second.locator('[role=switch][aria-label="Lights"]:not([aria-busy])').waitFor();
  assert.deepEqual(first.faults, []);
  await first.close();
});

test("a drill rings in one tab, and stops when it is acknowledged in the other", async () => {
  const first = await openPage(browser, demo);
  const second = await first.page.context().newPage();
  await second.goto(demo.apiUrl);
  // A click arms the sound, as in the hands of a player; what rings is counted by its tones.
  for (const page of [first.page, second]) {
    await page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
    await countTones(page);
    await page.getByRole("tab", { name: "Team" }).click();
    await page.getByRole("button", { name: "Sound is on" }).waitFor();
  }
  while ((await second.locator(".raid-bar .primary").count()) > 0) {
    await second.keyboard.press("Alt+a");
    await second
      .locator(".raid-bar .primary")
      .first()
      .waitFor({ state: "detached", timeout: 2000 })
      .catch(() => {});
  }
  await demo.call("POST", `/paired-servers/${demo.serverId}/drill`);
  const ringing = async () =>
    (await first.page.evaluate(() => globalThis.ringing)) + (await second.evaluate(() => globalThis.ringing));
  for (const page of [first.page, second]) await page.getByText(/drill/).first().waitFor();
  assert.equal(await ringing(), 1);
  await second.bringToFront();
  await second.keyboard.press("Alt+a");
  await first.page.getByText("Acknowledged").first().waitFor();
  await first.page.waitForFunction(() => globalThis.ringing === 0);
  await second.waitForFunction(() => globalThis.ringing === 0);
  assert.deepEqual(first.faults, []);
  await first.close();
});
