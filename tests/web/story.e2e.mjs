// One night, from the first sign-in to the last sign-out: a player with a laptop and a phone, and a friend who watches. The
// service is a process of its own, and so are the game and the other neighbours; each ends and comes back within the story.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, openPage, tones } from "./lib.mjs";
import { send, startService } from "./service.mjs";

/** For what needs a program to start, a raid to begin, or a client to try again. */
const LONG = 60_000;

/** @type {any} */ let world;
/** @type {any} */ let browser;
/** @type {any} */ let laptop;
/** @type {any} */ let phone;
/** @type {any} */ let friend;
/** @type {any} */ let overlay;
/** Everything that went wrong in all browsers. */
const opened = [];
let serverId = "";

before(async () => {
  world = await startService();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await world?.stop();
});

let isOver = false;

/** A step of the story. Nothing comes after one that went wrong. */
const step = (name, does) =>
  test(name, async (t) => {
    if (isOver) return t.skip("the story ended before");
    isOver = true;
    await does();
    isOver = false;
  });

/** A browser that is not signed in. */
async function arrive(options) {
  const one = await openPage(browser, world, { signedIn: false, ...options });
  opened.push(one);
  one.page.setDefaultTimeout(LONG);
  return one.page;
}

async function signInAs(page, name) {
  await page.getByRole("link", { name: "Sign in" }).click();
  await page.getByRole("button", { name: new RegExp(`${name}.?[0-9]{17}`) }).click();
}

const status = (page, word) =>
  page
    .getByRole("status", { name: "Connection" })
    .filter({ hasText: new RegExp(`^${word}`) })
    .waitFor();
const alertOf = (page) => page.getByRole("alert").filter({ hasText: /^RAID/ });

/** Opens a part; on a phone the map is beneath all of them. */
async function open(page, name) {
  const tab = page.getByRole("tab", { name: new RegExp(`^${name}`) });
  if ((await tab.getAttribute("aria-selected")) === "false") await tab.click();
}

/** Opens a section of More, and closes what it would be added to. */
async function openSection(page, title) {
  await open(page, "More");
  const section = page.locator("#panel details").filter({ has: page.getByText(title, { exact: true }) });
  await section.locator("summary").first().click();
  return section;
}

/** The service's answer about this player's things. */
async function ask(path) {
  const cookies = await laptop.context().cookies();
  const { value } = cookies.find(({ name }) => name === "rp_sess");
  return send(world.apiUrl, "GET", path, undefined, { cookie: `rp_sess=${value}` });
}

/** In the dashboard: its state and that of a new client, at the same position of the same run of the service. */
async function compared({ relay, serverId }) {
  const { root } = document.documentElement.dataset;
  const [{ live }, { RelayClient }] = await Promise.all(
    ["dashboard/live.js", "relay-client.js"].map((path) => import(`${root}/${path}`)),
  );
  return new Promise((resolve) => {
    const fresh = new RelayClient({ api: location.origin, relay, handlers: { state: () => setTimeout(check) } });
    function check() {
      const [mine, other] = [live.relay, fresh].map((one) => one.servers.get(serverId));
      if (!mine.state || !other.state || mine.epoch !== other.epoch || mine.seq !== other.seq) return;
      resolve(structuredClone([live.current.state, other.state]));
      fresh.stop();
    }
    fresh.watch(serverId);
    fresh.start();
  });
}

step("a player signs in, and the game is paired by push, with its alarms", async () => {
  laptop = await arrive({ prepare: (page) => page.addInitScript(tones) });
  await signInAs(laptop, "Nox");
  await laptop.getByRole("heading", { name: "Let us set this up" }).waitFor();
  await laptop.getByRole("button", { name: "Use a helper program" }).first().click();
  await world.help(await laptop.locator(".code").first().textContent());
  await laptop.getByRole("heading", { name: "Let us set this up" }).waitFor({ state: "detached" });
  await status(laptop, "live");
  await open(laptop, "Devices");
  await laptop.locator("#panel li").filter({ hasText: "Base alarm" }).waitFor();
  await laptop.getByRole("switch", { name: "Gate" }).waitFor();
  [{ id: serverId }] = (await ask("/paired-servers?limit=10")).servers;
});

step("the phone of the same player shows the same", async () => {
  phone = await arrive({ width: 390, height: 844 });
  await signInAs(phone, "Nox");
  await status(phone, "live");
  // A raid turns a phone to the map.
  const gate = phone.locator("[role=switch][aria-label=Gate]");
  while ((await gate.count()) === 0) {
    await open(phone, "Devices");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const was = await gate.getAttribute("aria-checked");
  await laptop.getByRole("switch", { name: "Gate" }).click();
  const now = String(was === "false");
  await phone
    .locator(`[role=switch][aria-label="Gate"][aria-checked="${now}"]:not([aria-busy])`)
    .waitFor({ state: "attached" });
});

step("the map moves with a member, and a command in the chat is answered in it", async () => {
  await open(laptop, "Team");
  const walker = laptop.locator("#panel li").filter({ hasText: /online/ });
  await walker
    .getByRole("button", { name: / on the map$/ })
    .first()
    .click();
  await laptop.getByText(/^Following /).waitFor();
  // The picture may come meanwhile, and is seen as a change, too.
  const seen = new Set();
  const map = laptop.getByRole("application", { name: "Map" });
  while (seen.size < 4) {
    seen.add(await map.evaluate((canvas) => canvas.toDataURL()));
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const log = laptop.getByRole("log", { name: "Team chat" });
  const say = laptop.getByRole("textbox", { name: "Say something" });
  await say.fill("!pop");
  await say.press("Enter");
  await log.getByText("!pop", { exact: true }).waitFor();
  await log.getByText(/[0-9]+\/[0-9]+ players/).waitFor();
});

step("a raid rings on both, and ends on both when one of them takes note of it", async () => {
  // The world begins again, and with it a raid: what was before, if there was one, is taken note of as well.
  await world.killNeighbours();
  await world.startNeighbours();
  await alertOf(laptop).first().waitFor({ state: "attached" });
  await alertOf(phone).first().waitFor({ state: "attached" });
  await laptop.waitForFunction(() => globalThis.rang > 0);
  // An alarm that goes on may open another incident meanwhile.
  const rest = phone.locator(".raid-bar .primary");
  do {
    await phone.keyboard.press("Alt+a");
    await rest
      .first()
      .waitFor({ state: "detached", timeout: 3000 })
      .catch(() => {});
  } while ((await rest.count()) > 0);
  await laptop.getByText("Acknowledged").first().waitFor();
  await laptop.waitForFunction(() => globalThis.ringing === 0);
  const { alarms } = await ask(`/paired-servers/${serverId}/alarms`);
  assert.ok(alarms.length > 0 && Object.keys(alarms[0].acks).length > 0, "the service knows of it");
});

step("a friend is invited, and watches without a say", async () => {
  const guests = await openSection(laptop, "Guests of this server");
  await guests.getByRole("button", { name: "Make an invitation link" }).click();
  const link = new URL((await guests.locator("pre").textContent()) ?? "");
  assert.equal(link.origin, world.apiUrl);
  friend = await arrive({ path: link.pathname + link.search + link.hash });
  await friend.getByText("You are invited to watch a game server.").waitFor();
  await signInAs(friend, "Marlow");
  await friend.getByText("invites you to watch").waitFor();
  await friend.getByRole("button", { name: "Accept" }).click();
  await status(friend, "live");
  await open(friend, "Devices");
  const gate = friend.getByRole("switch", { name: "Gate" });
  await gate.waitFor();
  assert.equal(await gate.isDisabled(), true);
  const server = await openSection(friend, "This server");
  await server.getByText(/^paired/).waitFor();
  assert.doesNotMatch((await server.textContent()) ?? "", /127\.0\.0\.1/, "the address is the owner's");
  await open(friend, "Devices");
});

step("a drill rings, and its bar says who took note of it", async () => {
  const server = await openSection(laptop, "This server");
  await server.getByRole("button", { name: "Start a drill" }).click();
  const drill = (page) => page.locator(".raid-bar:not(.is-known)").filter({ hasText: "drill" });
  for (const page of [laptop, phone, friend]) await drill(page).waitFor();
  await drill(friend).getByRole("button", { name: "Acknowledge", exact: true }).click();
  await drill(laptop).getByText("acknowledged by Marlow").waitFor();
  await phone.keyboard.press("Alt+a");
  for (const page of [laptop, phone]) await drill(page).waitFor({ state: "detached" });
});

step("an overlay is made, and shows the team to a browser that has no session", async () => {
  const part = await openSection(laptop, "Overlay for streams");
  await part.getByLabel("team", { exact: true }).check();
  await part.getByRole("button", { name: "Make the address" }).click();
  const address = new URL((await part.locator("pre").textContent()) ?? "");
  overlay = await arrive({ path: address.pathname + address.search + address.hash });
  await overlay.locator(".member:not([hidden])").first().waitFor();
});

step("the service dies and comes back, and every page with it, with what is true now", async () => {
  await open(laptop, "Devices");
  const connected = overlay.waitForEvent("websocket");
  await world.kill();
  for (const page of [laptop, phone, friend]) await status(page, "(offline|reconnecting)");
  for (const page of [laptop, phone]) {
    await page.waitForFunction(() => document.querySelector("[role=switch][aria-label=Gate]")?.matches(":disabled"));
  }
  await world.start();
  for (const page of [laptop, phone, friend]) await status(page, "live");
  // Switches of the simulated base are used now and then.
  for (const page of [laptop, phone, friend]) {
    for (;;) {
      const shown = await page.$$eval("[role=switch]:not([aria-busy])", (all) =>
        all.map((one) => [one.getAttribute("aria-label"), one.getAttribute("aria-checked")].join(" ")),
      );
      const { devices } = await ask(`/paired-servers/${serverId}/devices`);
      const known = devices.filter(({ kind }) => kind === "switch").map(({ name, value }) => `${name} ${value}`);
      if (known.length > 0 && shown.sort().join() === known.sort().join()) break;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  const [mine, fresh] = await laptop.evaluate(compared, { relay: world.relayUrl, serverId });
  assert.deepEqual(mine, fresh, "the dashboard has what a new client gets");
  await connected;
  const gate = laptop.getByRole("switch", { name: "Gate" });
  const now = String((await gate.getAttribute("aria-checked")) === "false");
  await gate.click();
  await overlay.locator(".event:not([hidden])").filter({ hasText: "Gate" }).first().waitFor();
  for (const page of [laptop, phone, friend]) {
    await page.locator(`[role=switch][aria-label="Gate"][aria-checked="${now}"]:not([aria-busy])`).waitFor({
      // A raid turns a phone to the map.
      state: "attached",
    });
  }
});

step("signed out everywhere else, the phone says so, and the others go on", async () => {
  const sessions = await openSection(laptop, "Sign-ins");
  await sessions.getByRole("button", { name: "End all others" }).click();
  await sessions.getByRole("button", { name: "Sure?" }).click();
  await phone.getByText("Your sign-in has ended.").waitFor();
  await status(phone, "offline");
  await phone.getByRole("link", { name: "Sign in" }).waitFor();
  for (const page of [laptop, friend]) await status(page, "live");
  assert.equal(await overlay.locator(".note:not([hidden])").count(), 0, "its token is no sign-in");
  await sessions.getByRole("button", { name: "End all, with helper programs and overlays" }).click();
  await sessions.getByRole("button", { name: "Sure?" }).click();
  await overlay.getByText("The token of this overlay was deleted.").waitFor();
  await status(laptop, "live");
  await laptop.getByRole("button", { name: "Sign out" }).click();
  await laptop.getByRole("link", { name: "Sign in" }).waitFor();
  // Requests fail while there is no service or no sign-in, which browsers call errors.
  const faults = opened.flatMap(({ faults }) => faults);
  assert.deepEqual(
    faults.filter((fault) => !/^console: (Failed to load resource|WebSocket connection)/.test(fault)),
    [],
  );
});
