// Tabs that share a connection, without a browser: the lock, the channel and the relay are ours.

import assert from "node:assert/strict";
import { test } from "node:test";
import { RelayClient } from "../../src/web/files/relay-client.js";
import { SharedRelay } from "../../src/web/files/relay-shared.js";

const settle = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

/** Everything that the tabs of a browser have in common. */
class World {
  constructor() {
    this.sockets = [];
    this.channels = new Set();
    this.queue = [];
    this.isLocked = false;
    this.timers = [];
    this.now = 0;
    this.tokenStatus = 200;
    this.locks = {
      request: async (_, { ifAvailable, signal }, callback) => {
        if (this.isLocked && ifAvailable) return callback(null);
        if (this.isLocked) await new Promise((resolve) => this.queue.push(resolve));
        if (signal?.aborted) return undefined;
        this.isLocked = true;
        await callback({});
        this.isLocked = false;
        this.queue.shift()?.();
      },
    };
    const world = this;
    this.BroadcastChannel = class {
      constructor() {
        world.channels.add(this);
      }
      postMessage(data) {
        for (const other of world.channels)
          if (other !== this && !this.isDeaf) queueMicrotask(() => other.onmessage?.({ data }));
      }
      close() {
        world.channels.delete(this);
      }
    };
    this.WebSocket = class extends EventTarget {
      constructor() {
        super();
        this.readyState = 0;
        this.sent = [];
        world.sockets.push(this);
      }
      send(data) {
        this.sent.push(JSON.parse(data));
      }
      close() {
        this.readyState = 3;
        this.give("close", { code: 1006, reason: "" });
      }
      open() {
        this.readyState = 1;
        this.give("open", {});
      }
      receive(message) {
        this.give("message", { data: JSON.stringify(message) });
      }
      give(name, values) {
        this.dispatchEvent(Object.assign(new Event(name), values));
        this[`on${name}`]?.(values);
      }
    };
  }

  /** Lets time pass. */
  async pass(milliseconds) {
    const end = this.now + milliseconds;
    for (;;) {
      await settle();
      const due = this.timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.timers.splice(this.timers.indexOf(due), 1);
      this.now = due.at;
      due.call();
    }
    this.now = end;
  }

  async tab() {
    const tab = { raids: [], status: "", slow: 0 };
    const platform = {
      locks: this.locks,
      BroadcastChannel: this.BroadcastChannel,
      WebSocket: this.WebSocket,
      setTimeout: (call, after) => {
        this.timers.push({ call, at: this.now + Math.max(after, tab.slow) });
        return this.timers.at(-1);
      },
      clearTimeout: (timer) => (this.timers = this.timers.filter((known) => known !== timer)),
      now: () => this.now,
      random: Math.random,
      fetch: async () => new Response(JSON.stringify({ token: "t" }), { status: this.tokenStatus }),
    };
    const shared = new SharedRelay("user", () => {}, platform);
    const handlers = {
      raid: (_, raid) => tab.raids.push(raid.incident),
      // As the dashboard does it.
      status: ({ state }) => {
        tab.status = state;
        if (state === "signed_out") shared.leave();
      },
    };
    tab.shared = shared;
    tab.client = new RelayClient({
      api: "",
      relay: "wss://relay",
      handlers,
      history: false,
      platform: { ...platform, WebSocket: shared.WebSocket },
    });
    tab.client.watch("s");
    await shared.join(tab.client);
    tab.client.start();
    await settle();
    return tab;
  }
}

const snapshot = { type: "snapshot", serverId: "s", epoch: 1, seq: 5, state: { team: { size: 1 } } };
const patch = {
  type: "patch",
  serverId: "s",
  epoch: 1,
  base: 5,
  seq: 6,
  patch: [{ op: "replace", path: "/team/size", value: 2 }],
};

/** A tab that holds the connection, and another one. */
async function two() {
  const world = new World();
  const first = await world.tab();
  world.sockets[0].open();
  world.sockets[0].receive(snapshot);
  const second = await world.tab();
  await settle();
  return { world, first, second };
}

test("two tabs have one connection, and both have the state, raids and answers to their commands", async () => {
  const { world, first, second } = await two();
  assert.equal(world.sockets.length, 1);
  const [socket] = world.sockets;
  const states = () => [first, second].map(({ client }) => client.servers.get("s").state);
  assert.deepEqual(states(), [snapshot.state, snapshot.state]);
  socket.receive(patch);
  socket.receive({ type: "raid", serverId: "s", incident: "i" });
  await settle();
  assert.deepEqual(states(), [{ team: { size: 2 } }, { team: { size: 2 } }]);
  assert.deepEqual([first.raids, second.raids], [["i"], ["i"]]);
  const commands = [first, second].map(({ client }) => client.toggle("s", "7", true));
  await settle();
  const asked = socket.sent.filter(({ type }) => type === "deviceToggle").map(({ requestId }) => requestId);
  assert.equal(new Set(asked).size, 2, "ids of two tabs are never the same");
  socket.receive({ type: "error", code: "not_a_switch", message: "", requestId: asked[1] });
  socket.receive({ type: "ack", requestId: asked[0] });
  await commands[0];
  await assert.rejects(commands[1], { code: "not_a_switch" });
});

test("a tab that is left gives the connection to another", async () => {
  const { world, first, second } = await two();
  first.client.stop();
  first.shared.leave();
  await world.pass(2500);
  assert.equal(world.sockets.length, 2);
  world.sockets[1].open();
  assert.equal(world.sockets[1].sent[0].type, "subscribe");
  world.sockets[1].receive({ ...snapshot, seq: 9 });
  assert.equal(second.status, "live");
  const third = await world.tab();
  await settle();
  assert.deepEqual([world.sockets.length, third.status], [2, "live"]);
});

test("a tab opens a connection of its own when the tab with the shared one stops answering", async () => {
  const { world, first, second } = await two();
  // As a browser freezes it: it still has the lock.
  first.shared.channel.onmessage = null;
  first.shared.channel.isDeaf = true;
  await world.pass(15_000);
  assert.equal(world.sockets.length, 2);
  world.sockets[1].open();
  world.sockets[1].receive(snapshot);
  assert.equal(second.status, "live");
  world.sockets[1].receive({ type: "raid", serverId: "s", incident: "i" });
  assert.deepEqual(second.raids, ["i"]);
});

test("a connection that ends for good ends in every tab", async () => {
  const { world, first, second } = await two();
  world.sockets[0].give("close", { code: 4501, reason: "signed out" });
  await settle();
  assert.deepEqual([first.status, second.status], ["signed_out", "signed_out"]);
});

test("a tab whose sign-in has ended leaves the connection to one that is signed in again", async () => {
  const { world, first, second } = await two();
  world.sockets[0].give("close", { code: 4501, reason: "signed out" });
  await settle();
  // The first tab is loaded again; the second one stays as it is.
  assert.deepEqual([first.status, second.status], ["signed_out", "signed_out"]);
  const third = await world.tab();
  assert.equal(third.shared.isHolder, true);
  world.sockets[1].open();
  world.sockets[1].receive(snapshot);
  assert.equal(third.status, "live");
});

test("a tab that gets no token leaves the connection to another", async () => {
  const { world, first, second } = await two();
  world.tokenStatus = 401;
  world.sockets[0].give("close", { code: 1006, reason: "" });
  await world.pass(2500);
  assert.deepEqual([first.status, second.status], ["signed_out", "signed_out"]);
  world.tokenStatus = 200;
  assert.equal((await world.tab()).shared.isHolder, true);
});

test("a tab that is seen wakes a hidden one that holds the connection", async () => {
  const { world, first, second } = await two();
  await world.pass(10_000);
  first.slow = 60_000;
  world.sockets[0].give("close", { code: 1006, reason: "" });
  await world.pass(2500);
  assert.equal(world.sockets.length, 2);
  world.sockets[1].open();
  world.sockets[1].receive(snapshot);
  await world.pass(5000);
  assert.equal(second.status, "live");
});
