// Buttons that a player presses now and then, and things that happen at times: each once. Messages of the relay are edited on their way
// where a demo would take long. The last test erases the account.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { labelOf } from "../../src/web/files/map/grid.js";
import { browser, demo, openPage, tones, useDemo } from "./lib.mjs";
import { until } from "./push-lib.mjs";

useDemo();

const CAMERA = "CAM1";
const live = (page) => page.getByRole("status", { name: "Connection" }).filter({ hasText: /^live/ }).waitFor();
const tab = (page, name) => page.getByRole("tab", { name: new RegExp(`^${name}`) }).click();
const moment = (before = 0) => new Date(Date.now() - before).toISOString();
const raidOf = (facts = {}) => ({
  alarmId: "1",
  alarmName: "North wall",
  x: 2000,
  y: 2000,
  grid: "K14",
  firstAt: moment(),
  lastAt: moment(),
  endedAt: null,
  count: 1,
  paths: ["link"],
  late: false,
  drill: false,
  acks: {},
  ...facts,
});

/**
 * The relay on its way to a page: each snapshot has no raid, is edited, and is followed by our own patches alone. Messages
 * about other servers than the demo's go nowhere.
 */
function stage(edit = (_state) => {}) {
  let socket;
  let head;
  const prepare = (page) =>
    page.routeWebSocket(/\/v1$/, (route) => {
      const relay = route.connectToServer();
      socket = route;
      relay.onMessage((data) => {
        const message = JSON.parse(String(data));
        if (message.type === "patch" || message.type === "raid") return;
        if (message.type === "snapshot") {
          message.state.raids = {};
          edit(message.state);
          head = message;
        }
        route.send(JSON.stringify(message));
      });
      route.onMessage((data) => {
        if ((JSON.parse(String(data)).serverId ?? demo.serverId) === demo.serverId) relay.send(data);
      });
    });
  const patch = (...operations) => {
    const { serverId, epoch, seq } = head;
    head.seq += 1;
    socket.send(JSON.stringify({ type: "patch", serverId, epoch, base: seq, seq: head.seq, patch: operations }));
  };
  return { prepare, patch, state: () => head.state };
}

/** Edits the answers that the dashboard comes with. */
const answersEdited = (page, edit) =>
  page.route(
    ({ pathname }) => pathname === "/",
    async (route) => {
      const response = await route.fetch();
      const body = (await response.text()).replace(/(id="answers">)(.*?)(<\/script>)/, (_, head, json, end) => {
        const answers = JSON.parse(json);
        edit(answers);
        return head + JSON.stringify(answers) + end;
      });
      await route.fulfill({ response, body });
    },
  );

/** A section of More, opened. */
async function section(page, title) {
  await tab(page, "More");
  const found = page.locator("#panel details").filter({ has: page.getByText(title, { exact: true }) });
  await found.locator("summary").first().click();
  return found;
}

test("the raid bar says who took note of a raid", async () => {
  const me = (await demo.call("GET", "/me")).id;
  const { prepare, patch } = stage((state) => (state.raids.one = raidOf()));
  const user = { id: "friend", displayName: "Marlow", avatarUrl: null };
  const guest = { id: "g", state: "guest", user, platformId: null, label: null, since: moment() };
  const { page, faults, close } = await openPage(browser, demo, {
    prepare: async (page) => {
      await prepare(page);
      await page.route(/\/guests\?/, (route) => route.fulfill({ json: { guests: [guest], next: null } }));
    },
  });
  const bar = page.locator(".raid-bar");
  await bar.getByText("North wall").waitFor();
  assert.doesNotMatch((await bar.textContent()) ?? "", /acknowledged/);
  patch({ op: "add", path: "/raids/one/acks/friend", value: moment(2000) });
  await bar.getByText("acknowledged by Marlow").waitFor();
  await bar.getByRole("button", { name: "Acknowledge" }).waitFor();
  patch({ op: "add", path: `/raids/one/acks/${me}`, value: moment() });
  await bar.getByText(/^Acknowledged by Marlow and you /).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

/** Milliseconds within which a flight over the map is over. */
const FLIGHT = 1000;
/** Another size of the world than a page takes before it knows it, metres. */
const LARGER = 4500;

for (const reducedMotion of ["no-preference", "reduce"]) {
  test(`the map flies to a raid, and is there where the page comes later (motion: ${reducedMotion})`, async () => {
    const at = { x: 700, y: 3100 };
    const { prepare, patch, state } = stage();
    const { page, faults, close } = await openPage(browser, demo, { prepare, reducedMotion });
    await live(page);
    await page.locator(".map canvas").waitFor();
    let step = 0;
    /** The label of the place in the middle of a map, under a pointer that moves a little. */
    const middle = async (page) => {
      const { x, y, width, height } = await page.locator(".map canvas").boundingBox();
      step += 1;
      await page.mouse.move(x + width / 2 + (step % 2), y + height / 2);
      return page.locator(".map-place").textContent();
    };
    const there = async (page, size) => {
      await until(
        () => middle(page),
        (label) => label === labelOf(size, at.x, at.y),
      );
    };
    assert.notEqual(await middle(page), labelOf(state().server.mapSize, at.x, at.y));
    patch({ op: "add", path: "/raids/one", value: raidOf(at) });
    await there(page, state().server.mapSize);

    // As from the notification of a phone. The size of the world and its picture come later than the raid.
    const late = stage((state) => {
      state.raids.one = raidOf(at);
      state.server.mapSize = null;
    });
    const {
      page: other,
      faults: others,
      close: closeOther,
    } = await openPage(browser, demo, {
      prepare: async (page) => {
        await late.prepare(page);
        await page.route(/\/paired-servers\/[^/]+\/map$/, async (route) => {
          await page.locator(".raid-bar.is-open").waitFor();
          await page.waitForTimeout(FLIGHT);
          const response = await route.fetch();
          await route.fulfill({ response, json: { ...(await response.json()), size: LARGER } });
        });
      },
      reducedMotion,
    });
    await other.locator(".raid-bar.is-open").waitFor();
    await there(other, LARGER);
    // A hand has the map from then on.
    await other.getByRole("button", { name: "Show the whole map" }).click();
    for (let left = 20; left > 0; left -= 1) await other.waitForTimeout(50);
    assert.notEqual(await middle(other), labelOf(LARGER, at.x, at.y));
    assert.deepEqual([...faults, ...others], []);
    await Promise.all([close(), closeOther()]);
  });
}

test("a raid rings before the map has come, and what was pressed until then is done once it has", async () => {
  const { prepare } = stage((state) => (state.raids.one = raidOf()));
  let bring;
  const brought = new Promise((resolve) => (bring = resolve));
  let isLost = true;
  const { page, close } = await openPage(browser, demo, {
    prepare: async (page) => {
      await prepare(page);
      await page.addInitScript(tones);
      await page.route("**/map/map.js", async (route) => {
        if (isLost) return route.abort();
        await brought;
        await route.continue();
      });
    },
  });
  await page.locator(".raid-bar.is-open").waitFor();
  const again = page.locator(".map").getByRole("button", { name: "Try again" });
  await again.waitFor();
  isLost = false;
  await again.click();
  await page.waitForFunction(() => globalThis.ringing === 1);
  await page.getByRole("button", { name: "Follow" }).first().click();
  assert.equal(await page.locator(".map canvas").count(), 0);
  bring();
  await page.getByText(/^Following /).waitFor();
  assert.equal(await again.count(), 0);
  await page.getByRole("button", { name: "Acknowledge", exact: true }).click();
  await page.waitForFunction(() => globalThis.ringing === 0);
  await close();
});

test("a new version is offered, and never while there is a raid", async () => {
  const { prepare, patch } = stage((state) => (state.raids.one = raidOf()));
  const { page, close } = await openPage(browser, demo, {
    prepare: async (page) => {
      await page.clock.install();
      await prepare(page);
      await page.route(/\/client-config$/, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...(await response.json()), pages: "another one" } });
      });
    },
  });
  await page.locator(".raid-bar.is-open").waitFor();
  const asked = page.waitForResponse(/\/client-config$/);
  await page.clock.fastForward("15:01");
  await (await asked).finished();
  await live(page);
  const offer = page.getByRole("button", { name: "Load it" });
  await page.locator(".raid-bar.is-open").waitFor();
  assert.equal(await offer.isVisible(), false);
  const me = (await demo.call("GET", "/me")).id;
  // By the clock of the page, which is ahead.
  patch({ op: "add", path: `/raids/one/acks/${me}`, value: moment(-16 * 60_000) });
  await page.locator(".raid-bar.is-known").waitFor();
  assert.equal(await offer.isVisible(), false, "it goes on");
  patch({ op: "replace", path: "/raids/one/endedAt", value: moment() });
  await offer.waitFor();
  await close();
});

test("a raid has a notification while the page is hidden, and the title and the icon of the page", async () => {
  const { prepare, patch } = stage();
  const { page, faults, close } = await openPage(browser, demo, { prepare });
  await live(page);
  await page.evaluate(() => {
    globalThis.notifications = [];
    window.Notification = /** @type {any} */ (
      class {
        static permission = "granted";
        constructor(title, { body, tag }) {
          globalThis.notifications.push([title, body, tag]);
        }
      }
    );
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
  });
  const icon = () => page.locator("link[rel=icon]").getAttribute("href");
  assert.match((await icon()) ?? "", /icon\.svg$/);
  patch({ op: "add", path: "/raids/one", value: raidOf() });
  await page.waitForFunction(() => globalThis.notifications.length > 0);
  const [[title, body, tag], ...others] = await page.evaluate(() => globalThis.notifications);
  assert.deepEqual([title, tag, others], ["RAID K14", "one", []]);
  assert.match(body, /^North wall · /);
  await page.waitForFunction(() => document.title === "(!) RAID K14");
  assert.match((await icon()) ?? "", /raid\.svg$/);
  const me = (await demo.call("GET", "/me")).id;
  patch({ op: "add", path: `/raids/one/acks/${me}`, value: moment() });
  await page.waitForFunction(() => !document.title.includes("RAID"));
  assert.match((await icon()) ?? "", /icon\.svg$/);
  assert.deepEqual(faults, []);
  await close();
});

test("each of two servers has the number of its raids", async () => {
  const other = (servers) => [...servers, { ...servers[0], id: "other", name: "Second", openIncidents: 2 }];
  const { prepare, patch } = stage();
  const { page, faults, close } = await openPage(browser, demo, {
    prepare: async (page) => {
      await prepare(page);
      await answersEdited(page, (answers) => (answers.servers = other(answers.servers)));
      await page.route(/\/paired-servers\?/, async (route) => {
        const response = await route.fetch();
        const { servers } = await response.json();
        await route.fulfill({ response, json: { servers: other(servers), next: null } });
      });
    },
  });
  await live(page);
  const options = () => page.$$eval("header select option", (all) => all.map(({ textContent }) => textContent));
  await page.locator("header select option").nth(1).waitFor({ state: "attached" });
  assert.match((await options()).join(), /^[^▲]*,Second \(2 ▲\)$/);
  patch({ op: "add", path: "/raids/one", value: raidOf() });
  await page.waitForFunction(() => /\(1 ▲\)$/.test(document.querySelector("header select option")?.textContent ?? ""));
  await page.locator(".raid-bar").getByText("North wall").waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a note is saved on the map, chosen and deleted; a distance is measured", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  const map = page.getByRole("application", { name: "Map" });
  await page.getByRole("button", { name: "Add a note" }).click();
  await map.click({ position: { x: 150, y: 250 } });
  await page.getByLabel("Category").selectOption("stash");
  await page.getByLabel("Label").fill("Under the rock");
  await page.getByRole("button", { name: "Add note" }).click();
  await tab(page, "Map");
  const row = page.getByRole("list", { name: "On the map" }).getByText("Under the rock");
  await row.click();
  const card = page.locator(".card").filter({ hasText: "Under the rock" });
  await card.getByText(/Stash/).waitFor();
  await card.getByRole("button", { name: "Delete" }).click();
  await row.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Measure a distance" }).click();
  await map.click({ position: { x: 150, y: 250 } });
  await page.getByText("Choose the second place.").waitFor();
  await map.click({ position: { x: 250, y: 250 } });
  await page.getByText(/^[1-9][0-9]* m, about [0-9]+ .* on foot$/).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a layer that is off is not on the map, also when the page is loaded again; a chosen member has a trail", async () => {
  const name = "Walker";
  const { prepare, patch } = stage((state) => {
    const [[id, member]] = Object.entries(state.team.members);
    state.team.members = { [id]: { ...member, name, alive: true, online: true, x: 2000, y: 2000 } };
    Object.assign(state, { mapMarkers: {}, mapNotes: {}, devices: {} });
    walker = id;
  });
  let walker = "";
  const { page, faults, close } = await openPage(browser, demo, { prepare, reducedMotion: "reduce" });
  await live(page);
  await tab(page, "Map");
  await page.getByRole("list", { name: "On the map" }).getByText(name).click();
  const card = page.locator("section.card").filter({ hasText: name });
  await card.waitFor();
  for (const x of [1950, 1900, 1850]) patch({ op: "replace", path: `/team/members/${walker}/x`, value: x });
  const map = page.getByRole("application", { name: "Map" });
  const { width, height } = (await map.boundingBox()) ?? { width: 0, height: 0 };
  // From where the member was, at the middle, halfway to where it is.
  const pixels = () =>
    map.evaluate(async (canvas) => {
      await new Promise(requestAnimationFrame);
      await new Promise(requestAnimationFrame);
      const picture = document.createElement("canvas");
      const [wide, tall] = [40, 8].map((length) => length * devicePixelRatio);
      Object.assign(picture, { width: wide, height: tall });
      const at = [canvas.width / 2 - wide, canvas.height / 2 - tall / 2];
      picture.getContext("2d")?.drawImage(canvas, ...at, wide, tall, 0, 0, wide, tall);
      return picture.toDataURL();
    });
  const withTrail = await pixels();
  await map.press("Escape");
  await card.waitFor({ state: "hidden" });
  assert.notEqual(await pixels(), withTrail);

  // Back in the middle, it is hit by a press there, unless its layer is off.
  patch({ op: "replace", path: `/team/members/${walker}/x`, value: 2000 });
  const press = () => map.click({ position: { x: width / 2, y: height / 2 } });
  await press();
  await card.waitFor();
  await map.press("Escape");
  await page.getByRole("button", { name: "Layers" }).click();
  await page.getByRole("checkbox", { name: /^Team/ }).uncheck();
  await pixels();
  await press();
  assert.equal(await card.isVisible(), false);
  await page.reload();
  await live(page);
  await page.getByRole("button", { name: "Layers" }).click();
  assert.equal(await page.getByRole("checkbox", { name: /^Team/ }).isChecked(), false);
  assert.equal(await page.getByRole("checkbox", { name: /^Grid/ }).isChecked(), true);
  assert.deepEqual(faults, []);
  await close();
});

test("shops on each other are listed at a press, until one is chosen", async () => {
  let walker = "";
  const { prepare, patch } = stage((state) => {
    const [[id, member]] = Object.entries(state.team.members);
    walker = id;
    state.team.members = { [id]: { ...member, name: "Walker", x: 2000, y: 2000 } };
    const shop = Object.values(state.mapMarkers).find(({ kind }) => kind === "vendingMachine");
    const names = ["Anvil", "Bellows", "Chisel", "Drill", "Emery", "File"];
    const shops = names.map((name) => [`shop ${name}`, { ...shop, name, x: 2000, y: 2000, vendorId: name }]);
    Object.assign(state, { mapMarkers: Object.fromEntries(shops), mapNotes: {}, devices: {} });
  });
  const { page, faults, close } = await openPage(browser, demo, {
    reducedMotion: "reduce",
    prepare: async (page) => {
      await prepare(page);
      await page.addInitScript(() => localStorage.setItem("hiddenLayers", "team"));
    },
  });
  await live(page);
  await tab(page, "Map");
  const list = page.getByRole("list", { name: "On the map" });
  await list.getByText("Walker").click();
  const map = page.getByRole("application", { name: "Map" });
  await map.press("Escape");
  const crowd = page.locator("section.card").filter({ hasText: "Bellows" }).filter({ hasText: "File" });
  // Each press in the middle comes nearer, as long as they might be seen apart.
  await until(
    async () => (await crowd.isVisible()) || map.click(),
    (isListed) => isListed === true,
  );
  patch({ op: "replace", path: `/team/members/${walker}/name`, value: "Runner" });
  await list.getByText("Runner").waitFor();
  assert.equal(await crowd.isVisible(), true);
  await crowd.getByRole("button", { name: "Chisel" }).click();
  await page.locator("section.card h3").filter({ hasText: "Chisel" }).waitFor();
  assert.equal(await crowd.isVisible(), false);
  assert.deepEqual(faults, []);
  await close();
});

test("a camera shows its picture to those who look", async () => {
  await demo.call("POST", `/paired-servers/${demo.serverId}/devices`, { cameraId: CAMERA });
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await tab(page, "Devices");
  const row = page.locator("#panel li").filter({ hasText: CAMERA });
  await row.getByRole("button", { name: "Look through it" }).click();
  const picture = row.getByRole("img", { name: /^Picture of / });
  await picture.waitFor();
  await page.waitForFunction((one) => one?.naturalWidth > 0, await picture.elementHandle());
  await row.getByRole("button", { name: "Look again" }).waitFor();
  assert.deepEqual(faults, []);
  await close();
});

test("a shop that is suspicious is marked, and says why", async () => {
  // One shop of the simulated world is too cheap to be honest.
  const [found] = await until(
    async () => (await demo.call("GET", `/intel/${demo.serverId}/shops/scan`)).results,
    (results) => results.length > 0,
  );
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  await tab(page, "Shops");
  await page.getByRole("searchbox", { name: "Find an item or a shop" }).fill(found.name);
  const row = page
    .locator("#panel .row")
    .filter({ has: page.locator(".pill:not([hidden])") })
    .first();
  const tag = row.getByText("suspicious");
  await tag.waitFor();
  const why = (await tag.getAttribute("title")) ?? "";
  assert.notEqual(why, "");
  await row.getByRole("button").first().click();
  const shown = await row.locator(".wide > p.quiet").allTextContents();
  assert.ok(shown.length > 0 && shown.every((reason) => why.includes(reason)), `${shown} of ${why}`);
  assert.deepEqual(faults, []);
  await close();
});

test("an API token is made, used and deleted", async () => {
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  const tokens = await section(page, "API tokens");
  await tokens.getByLabel("Label").fill("Lights at dusk");
  await tokens.getByRole("button", { name: "Make a token" }).click();
  const token = await tokens.locator("pre").textContent();
  const ask = async () =>
    (await fetch(`${demo.apiUrl}/paired-servers`, { headers: { authorization: `Bearer ${token}` } })).status;
  assert.equal(await ask(), 200);
  await tokens.getByRole("button", { name: "Done" }).click();
  const row = tokens.locator("li").filter({ hasText: "Lights at dusk" });
  await row.getByText(/read everything/).waitFor();
  await row.getByRole("button", { name: "Delete" }).click();
  await row.getByRole("button", { name: "Sure?" }).click();
  await row.waitFor({ state: "detached" });
  assert.equal(await ask(), 401);
  assert.deepEqual(faults, []);
  await close();
});

test("a player takes their data along, and erases the account", async () => {
  const { id, platformId } = await demo.call("GET", "/me");
  const { page, faults, close } = await openPage(browser, demo);
  await live(page);
  const data = await section(page, "My data");
  const saved = page.waitForEvent("download");
  await data.getByRole("button", { name: "Download my data" }).click();
  const file = await (await saved).path();
  assert.ok(readFileSync(file, "utf8").includes(id));
  const confirm = data.getByLabel(/^Everything of yours is deleted/);
  await confirm.fill("76561190000000000");
  await data.getByRole("button", { name: "Erase my account" }).click();
  await data.getByRole("alert").or(data.locator(".fault:not([hidden])")).first().waitFor();
  await live(page);
  await confirm.fill(platformId);
  const loaded = page.waitForEvent("load");
  await data.getByRole("button", { name: "Erase my account" }).click();
  await loaded;
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  await assert.rejects(demo.call("GET", "/me"), /401/);
  // The confirmation of another account was refused, and so is the page without a session.
  assert.deepEqual(
    faults.filter((fault) => !/Failed to load resource|WebSocket/.test(fault)),
    [],
  );
  await close();
});
