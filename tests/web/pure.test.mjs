// Rules of the pages, without a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ITEM_SHAPES } from "../../src/web/files/icons/item-shapes.js";
import { cellOf, labelOf, letters } from "../../src/web/files/map/grid.js";
import { HitGrid } from "../../src/web/files/map/hit.js";
import { Motion } from "../../src/web/files/map/motion.js";
import { View } from "../../src/web/files/map/view.js";
import * as alarmSteps from "../../src/web/files/more/alarm-steps.js";
import { barsOf, totalOf } from "../../src/web/files/more/sessions.js";
import { credentialNote, lostChannels, stepsOf } from "../../src/web/files/more/steps.js";
import { headersOf } from "../../src/web/files/more/template-headers.js";
import { addressOf, readOptions, sectionsOf } from "../../src/web/files/overlay/options.js";
import { acknowledgedBy, sentence, shown, toRaise } from "../../src/web/files/raid.js";
import { found, offersOf, pointsOf } from "../../src/web/files/shops/offers.js";
import { duration } from "../../src/web/files/ui/time.js";
import { RAID } from "../../src/web/files/words/raid.js";

const NOW = Date.parse("2026-11-26T03:00:00Z");
const at = (seconds) => new Date(NOW + seconds * 1000).toISOString();
const incident = (id, raid) => ({
  serverId: "s",
  serverName: "S",
  id,
  raid: { alarmName: "Wall", grid: "K14", lastAt: at(-10), endedAt: null, count: 1, acks: {}, ...raid },
});

test("an incident is raised once, whichever way it came, unless it is old or was acknowledged", () => {
  const raised = new Set();
  const all = [
    incident("new"),
    incident("mine", { acks: { me: at(-5) } }),
    incident("theirs", { acks: { you: at(-5) } }),
    incident("old", { lastAt: at(-301) }),
  ];
  assert.deepEqual(
    toRaise(all, "me", NOW, raised).map(({ id }) => id),
    ["new", "theirs"],
  );
  assert.deepEqual(toRaise(all, "me", NOW, raised), []);
});

test("what is not acknowledged is shown, the newest first; what is, for five minutes", () => {
  const all = [
    incident("a", { lastAt: at(-50) }),
    incident("b", { lastAt: at(-7200), endedAt: at(-7000) }),
    incident("c", { acks: { me: at(-299) } }),
    incident("d", { acks: { me: at(-301) } }),
    incident("e", { lastAt: at(-1) }),
  ];
  const { open, known } = shown(all, "me", NOW);
  assert.deepEqual(
    [open, known].map((list) => list.map(({ id }) => id)),
    [["e", "a", "b"], ["c"]],
  );
});

test("those who took note of a raid are named in their order, as far as their names are known", () => {
  const names = { me: "you", friend: "Marlow" };
  const { raid } = incident("a", { acks: { me: at(-5), gone: at(-8), friend: at(-9) } });
  const by = acknowledgedBy(raid, (user) => names[user] ?? "");
  assert.deepEqual(by, ["Marlow", "you"]);
  assert.equal(RAID.known(by, "5 s ago"), "Acknowledged by Marlow and you 5 s ago.");
  assert.equal(RAID.known([], "5 s ago"), "Acknowledged 5 s ago.");
  assert.equal(RAID.knownToOthers(["Ada", "Bo", "Cy"]), "acknowledged by Ada, Bo and Cy");
  assert.equal(RAID.knownToOthers([]), "acknowledged");
});

test("a raid is one sentence that begins with RAID", () => {
  assert.equal(sentence(incident("a", { count: 3 }).raid, "12 s ago"), "RAID K14: Wall went off 12 s ago, 3 hits.");
  assert.equal(
    sentence(incident("a", { grid: "", drill: true, late: true }).raid, "now"),
    "RAID: Wall went off now. Drill. Reported late.",
  );
});

test("the grid is that of the service", () => {
  // As the tests of `src/domain/grid.rs`: 4000 m are 27 cells of 148 m.
  assert.equal(cellOf(4000), 148);
  assert.deepEqual([0, 25, 26, 51, 52].map(letters), ["A", "Z", "AA", "AZ", "BA"]);
  assert.equal(labelOf(4000, 0, 4000), "A0");
  assert.equal(labelOf(4000, 1170.07, 3188.4), "H5");
  assert.equal(labelOf(4000, 2947.53, 1864.11), "T14");
  assert.equal(labelOf(4000, -1, 0), "");
  assert.equal(labelOf(0, 1, 1), "");
});

test("a place keeps its pixel while one zooms around it, and the world stays in sight", () => {
  const view = new View(4000);
  view.resize(800, 600);
  view.fit();
  assert.equal(view.scale, view.fitting);
  const before = view.toWorld(500, 200);
  view.zoomAt(3, 500, 200);
  const after = view.toWorld(500, 200);
  assert.ok(Math.hypot(before[0] - after[0], before[1] - after[1]) < 1e-6);
  const [left, top] = view.toScreen(...view.toWorld(123, 45));
  assert.ok(Math.abs(left - 123) < 1e-6 && Math.abs(top - 45) < 1e-6);
  for (let times = 0; times < 100; times++) view.pan(500, -500);
  const [x, y] = view.toWorld(400, 300);
  assert.ok(x >= -400 && y >= -400, `${x} ${y}`);
  view.zoomAt(1e-9, 0, 0);
  assert.equal(view.scale, view.fitting);
});

test("the nearest thing within reach is hit, of equal ones the one on top", () => {
  const hits = new HitGrid();
  hits.add(63, 63, "far");
  hits.add(70, 70, "below");
  hits.add(70, 70, "above");
  assert.equal(hits.at(68, 68), "above");
  assert.equal(hits.at(62, 62), "far");
  assert.equal(hits.at(200, 200), null);
  assert.equal(new HitGrid().at(0, 0), null);
});

test("a thing goes to its new place in the time that passed, never beyond, and a respawn is no walk", () => {
  const motion = new Motion();
  const thing = (x) => ({ id: "m", x, y: 0 });
  motion.update([thing(0)], 0);
  motion.update([thing(10)], 1000);
  assert.deepEqual(motion.placeOf(thing(10), 1500), [5, 0]);
  assert.deepEqual(motion.placeOf(thing(10), 9000), [10, 0]);
  assert.equal(motion.headingOf("m"), Math.PI / 2);
  motion.update([thing(2000)], 2000);
  assert.deepEqual(motion.placeOf(thing(2000), 2000), [2000, 0]);
  motion.update([], 3000);
  assert.equal(motion.moves.size, 0);
});

test("shops are found by every word of item, shop and grid, what is in stock first", () => {
  const shop = (vendorId, name, orders) => ({
    kind: "vendingMachine",
    vendorId,
    name,
    grid: "A1",
    x: 1,
    y: 2,
    sellOrders: orders,
  });
  const order = (itemId, name, cost, inStock, quantity = 1) => ({
    itemId,
    name,
    shortname: name.toLowerCase(),
    cost,
    quantity,
    inStock,
    currencyId: "1",
  });
  const offers = offersOf({
    mapMarkers: {
      1: shop("v1", "Metal Mart", [order("1", "Wood", 10, 0), order("1", "Wood", 30, 5, 10)]),
      2: shop("v2", "Twigs", [order("1", "Wood", 2, 1)]),
      3: { kind: "crate" },
    },
  });
  assert.deepEqual(
    found(offers, "wood").map(({ vendorId, each }) => [vendorId, each]),
    [
      ["v2", 2],
      ["v1", 3],
      ["v1", 10],
    ],
  );
  assert.equal(found(offers, "wood MART").length, 2);
  assert.equal(found(offers, "stone").length, 0);
  assert.equal(new Set(offers.map(({ key }) => key)).size, 3);
});

test("a price holds until the next one", () => {
  const points = pointsOf(
    [
      { at: at(-10), price: 8, quantity: 2, inStock: 1 },
      { at: at(-20), price: 0, quantity: 1, inStock: 0 },
      { at: at(-30), price: 5, quantity: 1, inStock: 1 },
    ],
    NOW,
  );
  assert.deepEqual(points, [
    { at: NOW - 30_000, each: 5 },
    { at: NOW - 10_000, each: 4 },
    { at: NOW, each: 4 },
  ]);
  assert.deepEqual(pointsOf([], NOW), []);
});

test("sessions are cut at each midnight of this browser, and one that goes on ends now", () => {
  // The days of these are those of whatever zone this runs in.
  const time = (day, hour) => new Date(2026, 10, day, hour).toISOString();
  const noon = new Date(2026, 10, 26, 12).getTime();
  const bars = barsOf(
    [
      { from: time(26, 6), to: null },
      { from: time(24, 18), to: time(25, 12) },
      { from: time(1, 0), to: time(2, 0) },
    ],
    noon,
  );
  const shown = bars.map(({ row, from, to }) => [row, from, to]);
  assert.deepEqual(shown, [
    [4, 0.75, 1],
    [5, 0, 0.5],
    [6, 0.25, 0.5],
  ]);
  assert.equal(totalOf(bars), "1 d");
  // The service no longer knows who is online.
  const lost = barsOf([{ from: time(26, 6), to: null }], noon, Date.parse(time(26, 9)));
  assert.equal(totalOf(lost), "3 h");
});

test("the set-up ends when a raid would wake the player", () => {
  const ready = {
    devices: [],
    credential: { state: "proven" },
    server: { state: { devices: { 1: { kind: "alarm" } }, raids: { r: { drill: true, acks: { me: at(0) } } } } },
    readiness: {
      paths: [
        { path: "link", up: true },
        { path: "push", up: true },
      ],
      channels: [{ id: "c", proof: "accepted", inRules: true, advice: null }],
    },
    soundState: "armed",
    notifications: "granted",
    isGuest: false,
  };
  const left = (changes) =>
    stepsOf({ ...ready, ...changes })
      .filter(({ isDone }) => !isDone)
      .map(({ name }) => name);
  assert.deepEqual(left({}), []);
  assert.deepEqual(left({ credential: { state: "missing" }, server: null, readiness: null }), [
    "device",
    "credential",
    "server",
    "alarm",
    "link",
    "push",
    "channel",
    "drill",
  ]);
  const unreadable = { state: "proven", session: { state: "unreadable", lastError: "unknown_key" } };
  assert.deepEqual(left({ credential: unreadable }), ["credential"], "it is said that the operator repairs it");
  assert.deepEqual(left({ soundState: "blocked", notifications: "default" }), ["sound", "notifications"]);
  assert.deepEqual(left({ isGuest: true, credential: { state: "missing" } }), []);
  assert.deepEqual(left({ isGuest: true, readiness: null }), ["channel"], "a guest sleeps, too");
});

test("no one is woken without a channel that took a message and is in the rules", () => {
  const facts = { devices: [], credential: null, server: null, soundState: "armed", notifications: "granted" };
  const step = (channels) => {
    const all = stepsOf({ ...facts, readiness: { paths: [], channels }, isGuest: true });
    const { isDone, state } = all.find(({ name }) => name === "channel") ?? {};
    return [isDone, state];
  };
  const off = { id: "off", proof: "disabled", inRules: true, advice: "Test it to use it again." };
  const gone = { id: "gone", proof: "gone", inRules: true, advice: "Add it again." };
  const unused = { id: "unused", proof: "accepted", inRules: false, advice: "Your rules send no alarm by it." };
  const good = { id: "good", proof: "accepted", inRules: true, advice: null };
  const chat = { id: "chat", kind: "teamChat", proof: "accepted", inRules: true, advice: null };
  assert.deepEqual(step([]), [false, ""]);
  assert.deepEqual(step([unused]), [false, unused.advice]);
  assert.deepEqual(step([unused, off, gone]), [false, off.advice], "what the rules use comes first");
  assert.equal(step([off, good])[0], true);
  assert.equal(step([chat])[0], false, "a line in the game wakes no sleeper");
  assert.deepEqual(lostChannels({ channels: [unused, off, gone, good] }), [off, gone]);
  assert.deepEqual(lostChannels(null), []);
});

test("the address of an overlay is read as it was made, and nonsense is the default", () => {
  const options = { server: "01a2", show: ["raid", "team"], pos: "br", scale: 1.5, theme: "plate", token: "abc" };
  const url = new URL(addressOf("https://api.test/overlay", options));
  assert.deepEqual(readOptions(url.search, url.hash), options);
  assert.deepEqual(readOptions("?show=chat&pos=xx&scale=99&theme=", ""), {
    server: "",
    show: ["raid"],
    pos: "tl",
    scale: 1,
    theme: "outline",
    token: "",
  });
  assert.deepEqual(sectionsOf(["raid", "team"]), ["raids", "server", "team"]);
});

test("lengths of time have one or two units", () => {
  const [second, minute, hour] = [1000, 60_000, 3_600_000];
  assert.deepEqual([-5, 12 * second, 4 * minute, 2 * hour + 10 * minute, 30 * hour, 240 * hour].map(duration), [
    "0 s",
    "12 s",
    "4 min",
    "2 h 10 min",
    "1 d 6 h",
    "10 d",
  ]);
});

test("a credential says what it needs, in words, and what is the operator's to mend", () => {
  assert.equal(credentialNote({ session: { state: "connected" }, refusal: null, warning: null }), "");
  assert.match(credentialNote({ session: null, refusal: null, warning: "expires_soon" }), /within 3 days/);
  assert.match(credentialNote({ refusal: { advice: "Sign in again." }, warning: "expired" }), /^Sign in again\.$/);
  assert.match(credentialNote({ session: { state: "unreadable" }, warning: "expired" }), /nothing for you to do/);
  assert.equal(credentialNote(null), "");
});

test("channels of the same time are one step, and without times they have those of the service", () => {
  const channels = ["ntfy", "webPush", "discord", "webPush"].map((kind, id) => ({ id: `${id}`, kind }));
  // As the tests of `src/domain/channels/escalation.rs`.
  const usual = alarmSteps.planOf({ steps: [] }, channels);
  assert.deepEqual(Object.fromEntries(usual), { 0: 60, 1: 0, 2: 120, 3: 0 });
  assert.deepEqual(Object.fromEntries(alarmSteps.planOf({ steps: [] }, [channels[0], channels[2]])), { 0: 0, 2: 60 });
  const steps = alarmSteps.stepsOf([
    ["2", 120],
    ["1", 0],
    ["0", 120],
  ]);
  assert.deepEqual(steps, [
    { afterSeconds: 0, channels: ["1"] },
    { afterSeconds: 120, channels: ["2", "0"] },
  ]);
  assert.deepEqual(Object.fromEntries(alarmSteps.planOf({ steps }, channels)), { 0: 120, 1: 0, 2: 120 });
});

test("headers are lines, and a value may have colons", () => {
  assert.deepEqual(headersOf("X-Api-Key:  a:b \n\n Authorization: Basic abc=\r\nnonsense"), [
    { name: "X-Api-Key", value: "a:b" },
    { name: "Authorization", value: "Basic abc=" },
    { name: "nonsense", value: "" },
  ]);
  assert.deepEqual(headersOf(" \n"), []);
});

test("every category of the game's items has a drawing", () => {
  const table = readFileSync(new URL("../../src/domain/data/items.tsv", import.meta.url), "utf8");
  const rows = table.split("\n").slice(1).filter(Boolean);
  const categories = new Set(rows.map((row) => row.split("\t")[3].trim()).filter(Boolean));
  assert.ok(categories.size > 10);
  assert.deepEqual(
    [...categories].filter((category) => !ITEM_SHAPES[category]),
    [],
  );
});
