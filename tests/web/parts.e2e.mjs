// Parts of the dashboard that a player uses now and then: timers, groups of switches, watched prices, older entries of
// the feed, pictures of players.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ITEM_SHAPES, RESOURCE_SHAPES } from "../../src/web/files/icons/item-shapes.js";
import { browser, demo, openPage, useDemo } from "./lib.mjs";

useDemo();

const live = (page) => page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();

test("players have their pictures, which come from the service", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.waitForFunction(() => document.querySelectorAll("#panel .avatar img").length >= 3);
  const widths = await page.$$eval("#panel .avatar img", (images) => images.map(({ naturalWidth }) => naturalWidth));
  assert.deepEqual([...new Set(widths)], [64]);
  assert.deepEqual(faults, []);
  await close();
});

test("a picture that did not come is asked for again", async () => {
  let isUp = false;
  const prepare = (page) =>
    page.route(/\/avatar$/, (route) => (isUp ? route.continue() : route.fulfill({ status: 503 })));
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  await live(page);
  await page.locator("#panel .avatar.is-late").first().waitFor();
  isUp = true;
  await page.locator("#panel .avatar img").first().waitFor();
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("503")),
    [],
  );
  await close();
});

test("two players of one name keep their own pictures in the chat", async () => {
  const ids = [];
  const prepare = (page) =>
    page.routeWebSocket(/\/v1$/, (socket) => {
      const relay = socket.connectToServer();
      relay.onMessage((data) => {
        const message = JSON.parse(String(data));
        socket.send(data);
        if (message.type !== "snapshot") return;
        ids.push(...Object.keys(message.state.team.members).slice(0, 2));
        for (const [at, authorId] of ids.entries()) {
          const chat = { id: `twin ${at}`, author: "Twin", authorId, text: `line ${at}`, ts: new Date().toISOString() };
          socket.send(JSON.stringify({ type: "chat", serverId: message.serverId, chat }));
        }
      });
    });
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  const pictures = page.locator(".chat-line").filter({ hasText: "Twin" }).locator("img");
  await pictures.nth(1).waitFor();
  const shown = await pictures.evaluateAll((images) => images.map(({ src }) => src.split("/").at(-2)));
  assert.deepEqual(shown, ids);
  assert.deepEqual(faults, []);
  await close();
});

test("a device that is paired is named, with its network and the way to what has access", async () => {
  const device = { id: "d1", label: "Laptop", serverId: null, network: "203.0.113.7" };
  let isSent = false;
  const prepare = (page) =>
    page.routeWebSocket(/\/v1$/, (socket) => {
      const relay = socket.connectToServer();
      relay.onMessage((data) => {
        socket.send(data);
        if (isSent || JSON.parse(String(data)).type !== "snapshot") return;
        isSent = true;
        socket.send(JSON.stringify({ type: "devicePaired", device }));
        socket.send(JSON.stringify({ type: "devicePaired", device: { ...device, id: "d2", label: null } }));
      });
    });
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  const notice = page.getByRole("status").filter({ hasText: "Laptop was paired with your account" });
  await notice.getByText("in the network 203.0.113.7").waitFor();
  await page.getByRole("status").filter({ hasText: "A helper program was paired" }).waitFor();
  await notice.getByRole("button", { name: "See what has access" }).click();
  await page.locator("summary", { hasText: "Helper programs" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a device that was paired while no page was open is named until it is closed", async () => {
  const { code } = await demo.call("POST", "/pairing/device/code", { label: "Tablet" });
  const { deviceId } = await demo.call("POST", "/pairing/device/activate", { code });
  const first = await openPage(browser, demo);
  const notice = first.page.getByRole("status").filter({ hasText: "Tablet was paired with your account on" });
  const seen = first.page.waitForResponse((response) => response.url().endsWith(`/pairing/device/${deviceId}/seen`));
  await notice.getByRole("button", { name: "Close" }).click();
  assert.equal((await seen).status(), 200);
  assert.equal(await notice.count(), 0);
  assert.deepEqual(first.faults, []);
  await first.close();
  const { devices } = await demo.call("GET", "/pairing/device");
  assert.ok(devices.find(({ id }) => id === deviceId).seenAt);
  await demo.call("DELETE", `/pairing/device/${deviceId}`);
});

test("a switch that turns back says when, and is left as it is by a press", async () => {
  const devices = `/paired-servers/${demo.serverId}/devices`;
  const gate = (await demo.call("GET", devices)).devices.find(({ name }) => name === "Gate");
  await demo.call("PATCH", `${devices}/${gate.deviceId}`, { customCommand: "gate" });
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "Devices" }).click();
  const chat = page.getByRole("textbox", { name: "Say something" });
  await chat.fill("!gate on 5m");
  await chat.press("Enter");
  const row = page.locator("#panel li").filter({ has: page.getByRole("switch", { name: "Gate" }) });
  // A caller gets one answer in two seconds, and the next test asks, too: these have passed then.
  await row.getByText(/^off again in 4:([0-4][0-9]|5[0-6])$/).waitFor();
  await row.getByRole("button", { name: "Leave it on" }).click();
  await row.getByText(/^off again/).waitFor({ state: "hidden" });
  assert.equal(await row.getByRole("switch").getAttribute("aria-checked"), "true");
  assert.deepEqual(faults, []);
  await close();
});

test("a timer of the team's chat counts down, also after a lost connection", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  const chat = page.getByRole("textbox", { name: "Say something" });
  await chat.fill("!timer 40m crate opens");
  await chat.press("Enter");
  const timer = page.getByRole("list", { name: "Timers" }).getByRole("listitem").filter({ hasText: "crate opens" });
  await timer.getByText(/^(40:00|39:[0-5][0-9])$/).waitFor();
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pagehide")));
  await page
    .getByRole("status", { name: "Connection" })
    .filter({ hasText: /^offline/ })
    .waitFor();
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  await live(page);
  // A caller gets one answer in two seconds: these have passed then.
  await timer.getByText(/^39:([0-4][0-9]|5[0-6])$/).waitFor();
  await chat.fill("!timer off 1");
  await chat.press("Enter");
  await timer.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
  await close();
});

test("switches are grouped, and switched as one", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "Devices" }).click();
  await page.getByRole("button", { name: "Group switches" }).click();
  const panel = page.locator("#panel");
  await panel.getByRole("textbox", { name: "Name", exact: true }).fill("All of it");
  await panel.getByRole("textbox", { name: "Its word in team chat" }).fill("all");
  const boxes = panel.getByRole("checkbox");
  const count = await boxes.count();
  for (let at = 0; at < count; at += 1) await boxes.nth(at).check();
  await page.getByRole("button", { name: "Add the group" }).click();
  const group = page.getByRole("switch", { name: "All of it" });
  await group.waitFor();
  for (let turn = 0; turn < 2; turn += 1) {
    const wanted = (await group.getAttribute("aria-checked")) !== "true";
    await group.click();
    await page.locator(`[role=switch][aria-label="All of it"][aria-checked="${wanted}"]:not([aria-busy])`).waitFor();
    const { devices } = await demo.call("GET", `/paired-servers/${demo.serverId}/devices`);
    const switches = devices.filter(({ kind }) => kind === "switch");
    assert.deepEqual([...new Set(switches.map(({ value }) => value))], [wanted]);
  }
  await page.getByRole("button", { name: "Name, word and switches" }).click();
  await page.getByRole("button", { name: "Remove the group" }).click();
  await page.getByRole("button", { name: "Sure?" }).click();
  await group.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
  await close();
});

test("a watched price is changed, and no longer watched", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "Shops" }).click();
  await page.locator("#panel .row button[aria-expanded]").first().click();
  await page.getByRole("button", { name: "Watch", exact: true }).click();
  await page.getByRole("heading", { name: "Watched prices" }).waitFor();
  await page.getByRole("button", { name: /^Change the watch of/ }).click();
  await page.getByLabel(/^Expected price/).fill("37");
  await page.getByLabel("There is news when the price").selectOption("atMost");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("news at most 37").waitFor();
  const { shops } = await demo.call("GET", `/intel/${demo.serverId}/shops`);
  assert.deepEqual([shops[0].expectedPrice, shops[0].direction], [37, "atMost"]);
  await page.getByRole("button", { name: /^Change the watch of/ }).click();
  await page.getByRole("button", { name: "Stop watching" }).click();
  await page.getByRole("button", { name: "Sure?" }).click();
  await page.getByRole("heading", { name: "Watched prices" }).waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
  await close();
});

test("watched prices are loaded again at news of a shop, and a form that is open stays", async () => {
  const watches = `/intel/${demo.serverId}/shops`;
  const { id } = await demo.call("POST", watches, { itemId: "-1581843485", expectedPrice: 5 });
  let relay;
  const prepare = (page) =>
    page.routeWebSocket(/\/v1$/, (socket) => {
      const server = socket.connectToServer();
      server.onMessage((data) => socket.send(data));
      relay = socket;
    });
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  await live(page);
  await page.getByRole("tab", { name: "Shops" }).click();
  await page.getByText("news when it changes from 5").waitFor();
  await page.getByText(/^Watches and suspicious offers were checked (now|.* ago)\.$/).waitFor();
  await page.getByRole("button", { name: /^Change the watch of/ }).click();
  await page.getByLabel(/^Expected price/).fill("39");
  await demo.call("PATCH", `${watches}/${id}`, { expectedPrice: 41 });
  const event = { id: "news", kind: "shop", title: "The price changed", ts: new Date().toISOString(), data: {} };
  relay.send(JSON.stringify({ type: "event", serverId: demo.serverId, event }));
  await page.getByText("news when it changes from 41").waitFor();
  assert.equal(await page.getByLabel(/^Expected price/).inputValue(), "39");
  await demo.call("DELETE", `${watches}/${id}`);
  assert.deepEqual(faults, []);
  await close();
});

test("older entries of the feed are shown, each once, to the first", async () => {
  const timeline = `/intel/${demo.serverId}/timeline?limit=500`;
  const gate = (await demo.call("GET", `/paired-servers/${demo.serverId}/devices`)).devices.find(
    ({ name }) => name === "Gate",
  );
  let entries = [];
  for (let on = !gate.value; entries.length < 7; on = !on) {
    await demo.call("POST", `/paired-servers/${demo.serverId}/devices/${gate.deviceId}/toggle`, { value: on });
    ({ entries } = await demo.call("GET", timeline));
  }
  const { page, faults, close } = await openPage(browser, demo);
  // Pages of two entries, so that a few events are many pages.
  await page.route(/\/timeline\?limit=/, (route) =>
    route.continue({
      url: route
        .request()
        .url()
        .replace(/limit=\d+/, "limit=2"),
    }),
  );
  await page.reload();
  await live(page);
  await page.getByRole("button", { name: "Devices", exact: true }).click();
  const older = page.getByRole("button", { name: "Show older ones" });
  const rows = page.locator(".feed > li");
  while (await older.isVisible()) {
    await older.click();
    await page.waitForFunction(() => !document.querySelector(".feed-block .form button")?.disabled);
  }
  const wanted = (await demo.call("GET", timeline)).entries.filter(({ kind }) => kind === "device");
  assert.ok(wanted.length >= 2);
  assert.equal(await rows.count(), wanted.length);
  assert.deepEqual(faults, []);
  await close();
});

test("the example of relay-client.md works as it is written", async () => {
  const files = new URL("../../src/web/files/", import.meta.url);
  const directory = mkdtempSync(join(tmpdir(), "companion-relay-"));
  for (const name of ["relay-client.js", "relay-parts.js", "relay-patch.js"]) {
    cpSync(new URL(name, files), join(directory, name));
  }
  const { token } = await demo.call("POST", "/me/tokens", { label: "Example", scopes: ["read", "devices"] });
  const [, code] = readFileSync(new URL("relay-client.md", files), "utf8").match(/```js\n([\s\S]*?)```/);
  writeFileSync(join(directory, "package.json"), '{ "type": "module" }');
  writeFileSync(
    join(directory, "example.js"),
    code.replace("https://companion.example.org", demo.apiUrl).replace(/\$\{YOUR_API_TOKEN\}/, token),
  );
  // Node 20 has WebSocket behind a flag.
  const flags = typeof WebSocket === "undefined" ? ["--experimental-websocket"] : [];
  const child = spawn(process.execPath, [...flags, "example.js"], {
    cwd: directory,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const said = new Promise((resolve, reject) => {
    const read = (bytes) => {
      output += bytes;
      if (/^live/m.test(output) && /Juniper [A-Z]+[0-9]+/.test(output)) resolve(undefined);
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    child.on("exit", () => reject(new Error(output)));
  });
  await said.finally(() => child.kill());
  rmSync(directory, { recursive: true, force: true });
});

test("the service registers for the game's pushes, with a login in another tab", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "More" }).click();
  await page.getByText("The game's pushes", { exact: true }).click();
  await page.getByRole("button", { name: "Sign in with the game again" }).click();
  const renew = page.getByRole("checkbox", { name: /^Let the service renew it/ });
  assert.equal(await renew.isChecked(), false, "a token is kept only if the player says so");
  await renew.check();
  await page.getByRole("button", { name: "Sign in with the game", exact: true }).click();
  const link = page.getByRole("link", { name: "Open the game's sign-in in a new tab" });
  const [tab] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
  await tab.getByRole("button", { name: "Sign in through Steam" }).click();
  // Nothing listens there, as on the machine of a player.
  const ended = tab.waitForEvent("request", (request) => request.url().startsWith("http://localhost:"));
  await tab.getByRole("button", { name: /^N ?Nox/ }).click();
  await page.getByRole("textbox", { name: "Address at which the tab ended" }).fill((await ended).url());
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText('Now press "Pair with Server" in the game').waitFor();
  const credential = await demo.call("GET", "/credentials/push");
  assert.equal(credential.registration.renew, true);
  assert.deepEqual(faults, []);
  await close();
});

test("what a button could not do is said beside it, and it can be pressed again", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  let isUp = false;
  await page.route(/\/paired-servers\/[^/]+(\/drill)?$/, (route) => {
    if (route.request().method() === "GET") return route.continue();
    if (isUp) return route.fulfill({ status: 204 });
    return route.fulfill({
      status: 503,
      contentType: "application/problem+json",
      headers: { "retry-after": "7" },
      body: JSON.stringify({ code: "unavailable", detail: "Not now." }),
    });
  });
  await page.getByRole("tab", { name: "More" }).click();
  await page.getByText("This server", { exact: true }).click();
  const part = page.locator(".fold").filter({ hasText: "This server" });
  const drill = part.getByRole("button", { name: "Start a drill" });
  await drill.click();
  const alert = part.getByRole("alert");
  await alert.getByText("Not now. Try again in 7 s.").waitFor();
  isUp = true;
  await drill.click();
  await alert.waitFor({ state: "detached" });
  isUp = false;
  await part.getByRole("button", { name: "Unpair" }).click();
  await part.getByRole("button", { name: "Sure?" }).click();
  await alert.waitFor();
  assert.equal(await part.getByRole("button", { name: "Unpair" }).isEnabled(), true);
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("503")),
    [],
  );
  await close();
});

test("a camera is named, placed and removed", async () => {
  const devices = `/paired-servers/${demo.serverId}/devices`;
  const cameraId = "CAM1";
  await demo.call("POST", devices, { cameraId });
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "Devices" }).click();
  const row = page.locator("#panel li").filter({ hasText: "Look through it" }).filter({ hasText: cameraId });
  await row.getByRole("button", { name: "Name and place" }).click();
  await row.getByRole("textbox", { name: "Name" }).fill("Back door");
  await row.getByRole("button", { name: "Save" }).click();
  const named = page.locator("#panel li").filter({ hasText: "Look through it" }).filter({ hasText: "Back door" });
  await named.getByRole("button", { name: "Name and place" }).click();
  await named.getByRole("button", { name: "Set its place on the map" }).click();
  await page.locator("canvas").click({ position: { x: 300, y: 300 } });
  await named.getByText(/^[A-Z]+[0-9]+/).waitFor();
  await named.getByRole("button", { name: "Remove" }).click();
  await named.getByRole("button", { name: "Sure?" }).click();
  await named.waitFor({ state: "detached" });
  assert.deepEqual(faults, []);
  await close();
});

test("a tracked player shows when they were here, once one looks", async () => {
  const player = { id: "p", trackerName: "Nightowl", tag: null, online: true, onlineSince: null, lastSeenAt: null };
  const ago = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();
  const sessions = [
    { from: ago(30), to: null },
    { from: ago(3000), to: ago(2940) },
  ];
  let isUp = false;
  const prepare = async (page) => {
    await page.route(
      (url) => url.pathname === "/",
      async (route) => {
        const response = await route.fetch();
        const body = (await response.text()).replace('"playerStats":false', '"playerStats":true');
        await route.fulfill({ response, body });
      },
    );
    await page.route(/\/tracking[/?]/, (route) => {
      if (!route.request().url().includes("/sessions"))
        return route.fulfill({ json: { players: [player], next: null } });
      return isUp ? route.fulfill({ json: { sessions, stale: false } }) : route.fulfill({ status: 503, body: "" });
    });
  };
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  await live(page);
  await page.getByRole("tab", { name: "More" }).click();
  await page.getByText("Tracked players", { exact: true }).click();
  const opener = page.getByRole("button", { name: "When Nightowl was here" });
  await opener.click();
  await page.getByText("The service answered 503.").waitFor();
  isUp = true;
  await opener.click();
  await opener.click();
  await page.getByRole("img", { name: /^When Nightowl was on this server in the last 7 days: 1 h 30 min/ }).waitFor();
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("503")),
    [],
  );
  await close();
});

test("an invitation is copied or scanned, and it is said if it cannot be copied", async () => {
  const permissions = ["clipboard-read", "clipboard-write"];
  const { page, faults, close } = await openPage(browser, demo, { permissions });
  await live(page);
  await page.getByRole("tab", { name: "More" }).click();
  await page.getByText("Guests of this server", { exact: true }).click();
  await page.getByRole("button", { name: "Make an invitation link" }).click();
  await page.getByRole("img", { name: "QR code of this link" }).waitFor();
  const link = await page.locator("pre").textContent();
  const copy = page.getByRole("button", { name: "Copy", exact: true });
  await copy.click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), link);
  await page.evaluate(() => {
    navigator.clipboard.writeText = () => Promise.reject(new Error("no"));
  });
  await page.getByRole("button", { name: "Copied" }).click();
  await page.getByText("Select the text instead.").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("what is in a box and what a shop sells has an icon of its category, beside its name", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await page.getByRole("tab", { name: "Devices" }).click();
  // The catalogue comes once, after the first icons.
  await page.waitForFunction(
    (shapes) => {
      const paths = [...document.querySelectorAll(".slots .item-icon path")].map((path) => path.getAttribute("d"));
      return paths.length > 0 && paths.every((path) => shapes.includes(path)) && new Set(paths).size > 1;
    },
    Object.values({ ...ITEM_SHAPES, ...RESOURCE_SHAPES }),
  );
  const names = await page.$$eval(".slots li", (rows) => rows.map(({ textContent }) => textContent));
  assert.ok(
    names.every((name) => /[0-9][A-Za-z]/.test(name ?? "")),
    names.join(),
  );
  await page.getByRole("tab", { name: "Shops" }).click();
  await page.locator("#panel .row > .item-icon path").first().waitFor();
  await page.getByRole("application", { name: "Map" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("the operator's picture of an item is shown in place of the drawing, unless it does not come", async () => {
  const prepare = (page) =>
    page.route(/\/items$/, async (route) => {
      const answer = await route.fetch();
      const { items, next } = await answer.json();
      const iconUrl = (at) => `${demo.apiUrl}/${["none.png", "client-config"][at % 2]}`;
      await route.fulfill({ json: { items: items.map((item, at) => ({ ...item, iconUrl: iconUrl(at) })), next } });
    });
  const { page, close } = await openPage(browser, demo, { prepare });
  const asked = page.waitForRequest(/none\.png$/);
  await page.getByRole("tab", { name: "Devices" }).click();
  await asked;
  await page.waitForFunction(
    () => document.querySelectorAll(".slots .item-icon").length > 0 && !document.querySelector(".slots .item-icon img"),
  );
  assert.ok((await page.locator(".slots .item-icon path").count()) > 0);
  await close();
});

test("times are in the zone and the form of the viewer", async () => {
  const at = new Date();
  for (const [locale, timeZone] of [
    ["en-US", "America/New_York"],
    ["de-DE", "Asia/Tokyo"],
  ]) {
    const { page, faults, close } = await openPage(browser, demo, { locale, timezoneId: timeZone });
    await live(page);
    const chat = page.getByRole("textbox", { name: "Say something" });
    await chat.fill(`in ${timeZone}`);
    await chat.press("Enter");
    const line = page.getByRole("log", { name: "Team chat" }).locator(".chat-line", { hasText: `in ${timeZone}` });
    const shown = line.locator("time");
    const { datetime, words } = await shown.evaluate((one) => ({
      datetime: one.getAttribute("datetime"),
      words: one.textContent,
    }));
    const expected = (options) => new Intl.DateTimeFormat(locale, { timeZone, ...options }).format(new Date(datetime));
    assert.ok(words.endsWith(expected({ timeStyle: "short" })), `${words} in ${timeZone}`);
    assert.ok(Date.parse(datetime) > at.getTime() - 60_000);
    assert.deepEqual(faults, []);
    await close();
  }
});
