// The service worker without a browser: what it shows for a message, and where its buttons lead.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createContext, runInContext } from "node:vm";

const SOURCE = readFileSync(new URL("../../src/web/files/sw.js", import.meta.url), "utf8");
const BASE = "https://base.example";

/** A worker that has just started. */
function started() {
  const listeners = {};
  const shown = [];
  /** Open ones, by tag. */
  const open = new Map();
  const called = [];
  const opened = [];
  const registration = {
    scope: `${BASE}/app/`,
    showNotification: async (title, options) => {
      // As browsers do it.
      if (options.silent && options.vibrate) throw new TypeError("a silent notification does not vibrate");
      const notification = { title, ...options, close: () => open.delete(options.tag) };
      shown.push(notification);
      open.set(options.tag, notification);
    },
    getNotifications: async ({ tag }) => [open.get(tag)].filter(Boolean),
  };
  const self = {
    addEventListener: (name, listener) => {
      listeners[name] = listener;
    },
    registration,
    clients: { matchAll: async () => [], openWindow: async (url) => opened.push(url) },
  };
  const fetch = async (url) => {
    called.push(url);
    return { ok: false, status: 500 };
  };
  runInContext(SOURCE, createContext({ self, fetch, URL, AbortSignal }));
  const happen = async (name, event) => {
    let work;
    listeners[name]({
      ...event,
      waitUntil: (promise) => {
        work = promise;
      },
    });
    await work;
  };
  const push = async (message) => {
    await happen("push", { data: { json: () => message } });
    return shown.at(-1);
  };
  const press = (notification, action) =>
    happen("notificationclick", { action, notification: { ...notification, close() {} } });
  return { push, press, shown, open, called, opened };
}

test("only a message that is silent neither buzzes nor stays", async () => {
  const { push } = started();
  const loudness = ({ silent, vibrate, requireInteraction, renotify }) => ({
    silent,
    buzzes: vibrate !== undefined,
    requireInteraction,
    renotify,
  });
  const cargo = await push({ notification: { title: "Cargo ship", body: "Now", tag: "event", silent: true } });
  const quiet = { silent: true, buzzes: false, requireInteraction: undefined, renotify: undefined };
  assert.deepEqual(loudness(cargo), quiet);
  const raid = await push({ notification: { title: "RAID", body: "Now", tag: "raid", silent: false } });
  assert.deepEqual(loudness(raid), { silent: undefined, buzzes: true, requireInteraction: true, renotify: true });
});

test("an acknowledgement that fails is as loud as its message was", async () => {
  const { push, press, shown, called } = started();
  for (const silent of [true, false]) {
    const notification = { title: "RAID", body: "Now", tag: "raid", silent };
    await press(await push({ notification, ackUrl: `${BASE}/a/token` }), "acknowledge");
    const again = shown.at(-1);
    assert.match(again.title, /^Not acknowledged/);
    assert.equal(again.silent === true, silent);
  }
  assert.deepEqual(called, [`${BASE}/a/token`, `${BASE}/a/token`]);
});

test("no message leads away from the service", async () => {
  const { push, press, called, opened } = started();
  for (const elsewhere of ["https://evil.example/", "//evil.example/", "javascript:alert(1)", 7, null]) {
    const notification = { title: "RAID", body: "Now", tag: "raid", navigate: elsewhere };
    const shown = await push({ notification, ackUrl: elsewhere });
    assert.equal(shown.actions.length, 0, String(elsewhere));
    await press(shown, "");
  }
  assert.deepEqual([...new Set(opened)], [`${BASE}/app/`]);
  assert.deepEqual(called, []);
});

test("a message without words still wakes", async () => {
  const { push } = started();
  for (const message of [undefined, null, 5, [], {}, { notification: null }, { notification: { title: null } }]) {
    const { title, body, tag, vibrate } = await push(message);
    assert.equal(typeof title, "string");
    assert.deepEqual([title, body, tag], ["An alarm of your base", "Open the dashboard to see it.", "alarm"]);
    assert.ok(vibrate);
  }
});

test("a count takes the place of the alarm in silence, and stays where the alarm did", async () => {
  const { push, press, shown, open } = started();
  const updated = {
    event: "raid.updated",
    ackUrl: `${BASE}/a/token`,
    notification: { title: "RAID", body: "3 times", tag: "raid", silent: true },
  };
  await push({ event: "raid.opened", notification: { title: "RAID", body: "Now", tag: "raid", silent: false } });
  await push(updated);
  const count = open.get("raid");
  assert.deepEqual(
    [count.body, count.silent, count.requireInteraction, count.renotify, count.actions.length],
    ["3 times", true, true, undefined, 1],
  );
  await press(count, "acknowledge");
  assert.deepEqual([shown.at(-1).silent, shown.at(-1).requireInteraction], [true, true]);

  // Its user has put it away: the next round wakes them, not this.
  open.clear();
  await push(updated);
  assert.deepEqual([shown.length, open.size], [4, 0], "a push that shows nothing costs the permission");
});

test("an acknowledgement elsewhere takes the place of an alarm in silence, and stays nowhere else", async () => {
  const { push, shown, open } = started();
  const acknowledged = {
    event: "raid.acknowledged",
    ackUrl: null,
    notification: { title: "Acknowledged: Front door", body: "My base", tag: "raid", silent: true },
  };
  await push({ event: "raid.opened", notification: { title: "RAID", body: "Now", tag: "raid", silent: false } });
  await push(acknowledged);
  const { title, silent, requireInteraction, actions } = open.get("raid");
  assert.deepEqual(
    [title, silent, requireInteraction, actions.length],
    [acknowledged.notification.title, true, undefined, 0],
  );

  // This device acknowledged it, and its notification is closed.
  open.clear();
  await push(acknowledged);
  assert.deepEqual([shown.length, open.size], [3, 0], "a push that shows nothing costs the permission");
});

test("news of a raid takes the place of what rang under the id of a part", async () => {
  const { push, open } = started();
  const opened = (tag) => ({ event: "raid.opened", notification: { title: "RAID", body: "Now", tag, silent: false } });
  const notification = { title: "RAID", body: "3 times", tag: "raid", silent: true };
  const news = (event) => ({ event, parts: ["part"], notification });
  await push(opened("part"));
  await push(opened("other"));
  await push(news("raid.updated"));
  assert.deepEqual([...open.keys()], ["other", "raid"], "a count stays where the part was");
  open.clear();
  await push(opened("part"));
  await push(news("raid.acknowledged"));
  assert.deepEqual([...open.keys()], ["raid"]);
  await push({ ...opened("raid"), parts: "part" });
  assert.equal(open.size, 1, "no list");
});
