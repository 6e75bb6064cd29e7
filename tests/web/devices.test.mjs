// Rules of the devices, without a page: the service is ours.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

mock.timers.enable({ apis: ["Date"], now: Date.parse("2026-11-26T03:00:00Z") });
const answers = [];
Object.assign(globalThis, {
  location: { origin: "https://api.test" },
  document: { documentElement: { dataset: {} } },
  fetch: async () => {
    const alarms = answers.shift();
    if (!alarms) throw new TypeError("offline");
    return Response.json({ alarms, next: null });
  },
});
const { lastTrigger } = await import("../../src/web/files/dashboard/last-triggers.js");
const { emit, live } = await import("../../src/web/files/dashboard/live.js");
const settle = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

test("the last trigger of an alarm is the newest that its incidents say", async () => {
  const trigger = (alarmId, minute) => ({ alarmId, lastAt: `2026-11-26T02:${minute}:00Z` });
  const server = { id: "s", state: { raids: { b: trigger("7", 30), a: trigger("7", 50), c: trigger("8", 10) } } };
  const last = () => ["7", "8", "9"].map((id) => lastTrigger(server, id)?.slice(14, 16) ?? null);
  assert.deepEqual(last(), ["50", "10", null]);
  await settle();
  // The list did not come, and is not asked for at once.
  answers.push([trigger("9", 20), trigger("7", 40)]);
  assert.deepEqual(last(), ["50", "10", null]);
  await settle();
  assert.equal(answers.length, 1);
  mock.timers.tick(61_000);
  last();
  await settle();
  assert.deepEqual(last(), ["50", "10", "20"]);
  // An incident that has left the state is still known, and one of a time away is asked for.
  server.state.raids = {};
  answers.push([trigger("8", 59)]);
  live.connection = { state: "live", reason: "", retryAt: 0, since: 0 };
  emit("connection");
  mock.timers.tick(61_000);
  last();
  await settle();
  assert.deepEqual(last(), ["50", "59", "20"]);
});
