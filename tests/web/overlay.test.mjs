// The overlay without a browser: what it shows while the relay answers and the game server does not.

import assert from "node:assert/strict";
import { test } from "node:test";

const element = (name) => ({ tagName: name.toUpperCase(), hidden: false, textContent: "", append() {} });
globalThis.document = { createElement: element };
const { OverlayView } = await import("../../src/web/files/overlay/view.js");
const { now, setAhead } = await import("../../src/web/files/ui/time.js");

const SECOND = 1000;
const MEMBERS = { 1: { name: "Ada", online: true, alive: true, grid: "K14" } };

function overlay() {
  const root = { style: { setProperty() {} }, append() {} };
  const view = new OverlayView(root, { show: ["raid", "events", "team"], pos: "tl", scale: 1, theme: "outline" });
  const state = (server, raids = {}) => ({ server, raids, team: { members: MEMBERS } });
  let passed = 0;
  /** The page does this each second, while its socket is open. */
  const pass = (seconds) => {
    for (let second = 0; second < seconds; second++) {
      setAhead(++passed * SECOND);
      view.heard();
      view.draw();
    }
  };
  setAhead(0);
  const shown = () => ({
    member: !view.members[0].hidden,
    event: !view.events[0].hidden,
    raid: !view.raid.hidden,
  });
  return { view, state, pass, shown };
}

test("what it shows is of now while the game server answers", () => {
  const { view, state, pass, shown } = overlay();
  view.take(state({ connection: "connected", stale: {} }));
  pass(600);
  assert.equal(shown().member, true);
});

test("a minute after the game server has gone it shows nothing old, whatever the relay says", () => {
  const { view, state, pass, shown } = overlay();
  view.take(state({ connection: "connected" }));
  pass(10);
  view.take(state({ connection: "unreachable" }));
  view.add({ title: "The Cargo Ship has come", ts: new Date(now()).toISOString() });
  pass(59);
  assert.deepEqual(shown(), { member: true, event: true, raid: false });
  view.take(state({ connection: "connecting" }));
  pass(2);
  assert.deepEqual(shown(), { member: false, event: false, raid: false });
  view.take(state({ connection: "connected" }));
  assert.equal(shown().member, true);
});

test("a team that is stale is not shown, and a raid is for as long as it is new", () => {
  const { view, state, pass, shown } = overlay();
  view.take(state({ connection: "connected" }));
  const stale = { team: { asOf: new Date(now()).toISOString() } };
  view.take(state({ connection: "connected", stale }));
  pass(61);
  view.take(state({ connection: "unreachable" }));
  pass(61);
  assert.deepEqual(shown(), { member: false, event: false, raid: false });
  const raid = { grid: "H5", alarmName: "Wall", count: 1, lastAt: new Date(now()).toISOString() };
  view.take(state({ connection: "unreachable" }, { raid }));
  pass(59);
  assert.deepEqual(shown(), { member: false, event: false, raid: true });
  pass(2);
  assert.equal(shown().raid, false);
});
