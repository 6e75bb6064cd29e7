// The relay client without a relay: patches against another program, and a connection under a clock of ours.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import jsonpatch from "fast-json-patch";
import { RelayClient } from "../../src/web/files/relay-client.js";
import { pauseBefore } from "../../src/web/files/relay-parts.js";
import { applyPatch, Gap, keysOf } from "../../src/web/files/relay-patch.js";

test("the types name every method of the client, and no other", () => {
  const types = readFileSync(new URL("../../src/web/files/relay-client.d.ts", import.meta.url), "utf8");
  const body = types.slice(types.indexOf("export class RelayClient"));
  const typed = [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, name]) => name);
  assert.deepEqual(typed.sort(), Object.getOwnPropertyNames(RelayClient.prototype).sort());
});

/** Random numbers of a seed (mulberry32). */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const KEYS = ["a", "b/c", "d~e", "~1", "", "0", "raids", "ключ"];

function randomValue(random, depth) {
  const pick = random();
  if (depth === 0 || pick < 0.3) return [null, true, false, 0, -1.5, "text", ""][Math.floor(random() * 7)];
  if (pick < 0.45) return Array.from({ length: Math.floor(random() * 4) }, () => randomValue(random, depth - 1));
  return randomObject(random, depth);
}

function randomObject(random, depth) {
  const keys = KEYS.filter(() => random() < 0.5);
  return Object.fromEntries(keys.map((key) => [key, randomValue(random, depth - 1)]));
}

test("what another program says is the difference of two states makes one of the other", () => {
  for (let seed = 0; seed < 2000; seed++) {
    const random = randomOf(seed);
    const [before, after] = [randomObject(random, 4), randomObject(random, 4)];
    const operations = jsonpatch.compare(before, after);
    const changed = applyPatch(before, structuredClone(operations));
    assert.deepEqual(before, after, `seed ${seed}`);
    assert.deepEqual(changed, new Set(operations.map(({ path }) => keysOf(path)[0])), `seed ${seed}`);
  }
});

function isNoPlace(state, keys) {
  let parent = state;
  for (const key of keys) {
    if (Array.isArray(parent) && !/^(0|[1-9][0-9]*)$/.test(key)) return true;
    parent = parent?.[key];
  }
  return false;
}

test("random operations do as another program does, or are a gap where it refuses them", () => {
  let [done, refused] = [0, 0];
  for (let seed = 0; seed < 3000; seed++) {
    const random = randomOf(seed + 10_000);
    const state = randomObject(random, 3);
    const path = Array.from(
      { length: 1 + Math.floor(random() * 3) },
      () => `/${KEYS[Math.floor(random() * KEYS.length)].replaceAll("~", "~0").replaceAll("/", "~1")}`,
    ).join("");
    const operation = {
      op: ["add", "remove", "replace"][Math.floor(random() * 3)],
      path,
      value: randomValue(random, 1),
    };
    const expected = structuredClone(state);
    // The other program takes any key for a place in a list; RFC 6901 does not.
    let isRefused = isNoPlace(state, keysOf(path));
    try {
      jsonpatch.applyPatch(expected, [structuredClone(operation)], true);
    } catch {
      isRefused = true;
    }
    if (isRefused) {
      assert.throws(() => applyPatch(state, [operation]), Gap, JSON.stringify([seed, operation, state]));
      refused += 1;
    } else {
      applyPatch(state, [operation]);
      assert.deepEqual(state, expected, JSON.stringify([seed, operation]));
      done += 1;
    }
  }
  assert.ok(done > 300 && refused > 300, `${done} done, ${refused} refused`);
});

test("no patch reaches the prototype of objects, and unknown operations are gaps", () => {
  for (const operation of [
    { op: "add", path: "/__proto__/polluted", value: 1 },
    { op: "add", path: "/__proto__", value: { polluted: 1 } },
    { op: "add", path: "/constructor/prototype/polluted", value: 1 },
    { op: "move", path: "/a", from: "/b" },
    { op: "replace", path: "", value: {} },
    { op: "add", path: "a", value: 1 },
  ]) {
    assert.throws(() => applyPatch({ a: 1, b: 2 }, [operation]), Gap, JSON.stringify(operation));
  }
  assert.equal({}.polluted, undefined);
});

test("pauses grow from one second to thirty, with half of each by chance", () => {
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 60].map((attempt) => pauseBefore(attempt, () => 1)),
    [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000],
  );
  assert.equal(
    pauseBefore(3, () => 0),
    4000,
  );
});

/** A service, its relay and a clock, all of ours. */
function world() {
  const timers = new Map();
  const sockets = [];
  const fetched = [];
  const given = [];
  let [now, id, token] = [1_000_000, 0, { status: 200 }];
  class FakeSocket {
    constructor(url, protocols) {
      Object.assign(this, { url, protocols, sent: [], isClosed: false });
      sockets.push(this);
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close() {
      this.isClosed = true;
    }
    say(message) {
      this.onmessage?.({ data: JSON.stringify(message) });
    }
  }
  const answer = (status, body, headers = {}) => ({
    ok: status < 300,
    status,
    headers: new Headers({ date: new Date(now).toUTCString(), ...headers }),
    json: async () => body,
  });
  const missed = { entries: [], lines: [] };
  let lists = () => answer(200, missed);
  const client = new RelayClient({
    api: "https://api.test",
    relay: "wss://relay.test",
    handlers: Object.fromEntries(
      ["status", "state", "event", "chat", "raid", "lost", "message"].map((name) => [
        name,
        (...values) => given.push([name, ...values]),
      ]),
    ),
    platform: {
      WebSocket: FakeSocket,
      now: () => now,
      random: () => 1,
      setTimeout: (call, after) => {
        timers.set(++id, { call, at: now + after });
        return id;
      },
      clearTimeout: (timer) => timers.delete(timer),
      fetch: async (url) => {
        fetched.push(url);
        if (token === null) throw new TypeError("offline");
        if (!url.endsWith("/relay/token")) return lists(url);
        return answer(token.status, token.body ?? { token: "t" }, token.headers);
      },
    },
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const pass = async (milliseconds) => {
    const end = now + milliseconds;
    for (;;) {
      await settle();
      const due = [...timers].filter(([, { at }]) => at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      timers.delete(due[0]);
      now = Math.max(now, due[1].at);
      due[1].call();
    }
    now = end;
    await settle();
  };
  return {
    client,
    sockets,
    fetched,
    given,
    missed,
    pass,
    settle,
    answer,
    answerToken: (value) => (token = value),
    answerLists: (value) => (lists = value),
    /** No timer runs meanwhile, as on a page that is not seen. */
    jump: (milliseconds) => (now += milliseconds),
    names: () => given.map(([name]) => name),
  };
}

async function live() {
  const all = world();
  all.client.watch("s");
  all.client.start();
  await all.settle();
  const [socket] = all.sockets;
  socket.onopen();
  socket.say({ type: "snapshot", serverId: "s", epoch: 1, seq: 5, state: { raids: {}, team: { members: {} } } });
  return { ...all, socket };
}

test("the token comes first and goes as a subprotocol, then each server is subscribed", async () => {
  const { socket, fetched, given } = await live();
  assert.deepEqual(fetched, ["https://api.test/relay/token"]);
  assert.deepEqual([socket.url, socket.protocols], ["wss://relay.test/v1", ["bearer.t"]]);
  assert.deepEqual(socket.sent, [{ type: "subscribe", serverId: "s" }]);
  assert.deepEqual(given.at(-1).slice(0, 2), ["state", "s"]);
});

test("patches apply to the state, and one that does not fit asks for a snapshot once in five seconds", async () => {
  const { socket, given, pass, client } = await live();
  const patch = (base, seq, operations) =>
    socket.say({ type: "patch", serverId: "s", epoch: 1, base, seq, patch: operations });
  patch(5, 6, [{ op: "add", path: "/raids/r", value: { count: 1 } }]);
  assert.deepEqual(given.at(-1).slice(2), [{ raids: { r: { count: 1 } }, team: { members: {} } }, new Set(["raids"])]);
  socket.sent.length = 0;
  patch(7, 8, []);
  patch(8, 9, []);
  assert.deepEqual(socket.sent, [
    { type: "unsubscribe", serverId: "s" },
    { type: "subscribe", serverId: "s" },
  ]);
  assert.deepEqual(client.servers.get("s").state.raids, { r: { count: 1 } }, "what is known stays");
  await pass(5000);
  socket.sent.length = 0;
  patch(9, 10, []);
  assert.equal(socket.sent.length, 2);
});

test("after a time away it resumes from its position, and gives what was missed once", async () => {
  const { socket, sockets, given, pass, missed, fetched } = await live();
  socket.say({ type: "event", serverId: "s", event: { id: "e1", ts: "1" } });
  socket.onclose({ code: 1006, reason: "" });
  assert.equal(given.at(-1)[1].state, "waiting");
  missed.entries = [
    { id: "e2", ts: "2" },
    { id: "e1", ts: "1" },
  ];
  missed.lines = [{ id: "c1", ts: "1" }];
  await pass(1000);
  const next = sockets[1];
  next.onopen();
  assert.deepEqual(next.sent, [{ type: "subscribe", serverId: "s", epoch: 1, seq: 5 }]);
  next.say({ type: "patch", serverId: "s", epoch: 1, base: 5, seq: 9, patch: [] });
  await pass(10);
  assert.ok(fetched.some((url) => url.startsWith("https://api.test/intel/s/timeline?limit=200&since=")));
  const events = given.filter(([name]) => name === "event" || name === "chat");
  assert.deepEqual(
    events.map(([name, , { id }, isMissed]) => [name, id, isMissed]),
    [
      ["event", "e1", false],
      ["event", "e2", true],
      ["chat", "c1", true],
    ],
  );
});

/** A connection that was lost and is there again, when something was missed. */
async function back(answerLists) {
  const all = await live();
  all.answerLists(answerLists(all));
  all.socket.onclose({ code: 1006, reason: "" });
  await all.pass(1000);
  const next = all.sockets[1];
  next.onopen();
  next.say({ type: "patch", serverId: "s", epoch: 1, base: 5, seq: 9, patch: [] });
  await all.pass(10);
  const given = () =>
    all.given.filter(([name]) => name === "event" || name === "chat").map(([, , { id }, missed]) => [id, missed]);
  const lists = () => all.fetched.filter((url) => url.includes("since="));
  return { ...all, next, givenMissed: given, lists };
}

test("all pages of what was missed are given, oldest first", async () => {
  const page = (from, next) => ({
    entries: Array.from({ length: 200 }, (_, at) => ({ id: `e${from - at}`, ts: String(10_000 + from - at) })),
    lines: [],
    next,
  });
  const { givenMissed, lists } = await back(({ answer }) => (url) => {
    if (url.includes("/chat")) return answer(200, { lines: [], next: null });
    return answer(200, url.includes("before=a%2Fb") ? page(399, null) : page(599, "a/b"));
  });
  assert.equal(lists().length, 3);
  assert.deepEqual(
    givenMissed().map(([id]) => id),
    Array.from({ length: 400 }, (_, at) => `e${200 + at}`),
  );
});

test("what was missed is asked for until both lists came, and given once", async () => {
  let [isUp, calls] = [false, 0];
  const { givenMissed, next, pass, lists } = await back(({ answer }) => (url) => {
    calls += 1;
    if (url.includes("/timeline")) return answer(200, { entries: [{ id: "e2", ts: "2" }], next: null });
    if (isUp) return answer(200, { lines: [{ id: "c1", ts: "1" }], next: null });
    // A status that may pass, a body that is cut off, and no answer at all.
    if (calls < 3) return answer(503, {});
    if (calls < 5) return { ...answer(200, {}), json: () => Promise.reject(new SyntaxError("cut off")) };
    throw new TypeError("offline");
  });
  for (let times = 0; times < 3; times++) {
    next.say({ type: "patch", serverId: "s", epoch: 1, base: 9 + times, seq: 10 + times, patch: [] });
    await pass(25_000);
    next.say({ type: "pong" });
    await pass(5000);
  }
  assert.equal(lists().length, 8, "each half minute, whatever comes meanwhile");
  assert.deepEqual(givenMissed(), []);
  isUp = true;
  await pass(30_000);
  assert.deepEqual(givenMissed(), [
    ["e2", true],
    ["c1", true],
  ]);
  await pass(20_000);
  next.say({ type: "pong" });
  await pass(20_000);
  assert.equal(lists().length, 10);
});

test("a second time away does not end the first one before its events came", async () => {
  const { givenMissed, next, pass, sockets, lists, answerLists, answer } = await back(
    ({ answer }) =>
      () =>
        answer(503, {}),
  );
  await pass(10_000);
  next.onclose({ code: 1006, reason: "" });
  answerLists((url) => answer(200, url.includes("/chat") ? { lines: [] } : { entries: [{ id: "e2", ts: "2" }] }));
  await pass(1000);
  sockets[2].onopen();
  sockets[2].say({ type: "patch", serverId: "s", epoch: 1, base: 9, seq: 10, patch: [] });
  await pass(10);
  const since = lists().map((url) => new URL(url).searchParams.get("since"));
  assert.equal(since.length, 3);
  assert.equal(new Set(since).size, 1);
  assert.deepEqual(givenMissed(), [["e2", true]]);
});

test("lists that the service refuses are not asked for again", async () => {
  const { pass, next, lists } = await back(
    ({ answer }) =>
      () =>
        answer(403, { code: "insufficient_scope" }),
  );
  await pass(20_000);
  next.say({ type: "pong" });
  await pass(15_000);
  assert.equal(lists().length, 2);
});

test("a refusal of something before the service is no end of the sign-in", async () => {
  const { sockets, given, pass, answerToken } = await live();
  answerToken({ status: 403, body: { message: "blocked" } });
  sockets[0].onclose({ code: 1006 });
  await pass(1000);
  assert.equal(given.at(-1)[1].state, "waiting");
  answerToken({ status: 200 });
  await pass(2000);
  assert.equal(sockets.length, 2);
  answerToken({ status: 403, body: { code: "cross_site" } });
  sockets[1].onclose({ code: 1006 });
  await pass(4000);
  assert.equal(given.at(-1)[1].state, "signed_out");
});

test("a late timer asks before it ends a connection", async () => {
  const { socket, sockets, pass, jump, settle } = await live();
  for (let minutes = 0; minutes < 5; minutes++) {
    jump(60_000);
    await pass(0);
    assert.deepEqual(socket.sent.at(-1), { type: "ping" });
    socket.say({ type: "pong" });
    await pass(3000);
    assert.ok(!socket.isClosed);
  }
  jump(60_000);
  await pass(0);
  await pass(3000);
  assert.ok(socket.isClosed, "no answer to that");
  await pass(1000);
  await settle();
  assert.equal(sockets.length, 2);
});

test("a client that was stopped stays so, whatever it asked before", async () => {
  const { client, sockets, pass, given } = await live();
  await pass(5000);
  client.wake();
  client.stop();
  await pass(60_000);
  assert.equal(sockets.length, 1);
  assert.equal(given.at(-1)[1].state, "stopped");
});

test("it comes back after growing pauses, sooner if it is woken, and never after the sign-in has ended", async () => {
  const { client, sockets, fetched, given, pass, answerToken } = await live();
  answerToken(null);
  sockets[0].onclose({ code: 1006 });
  for (const pause of [1000, 2000, 4000]) {
    const asked = fetched.length;
    await pass(pause - 1);
    assert.equal(fetched.length, asked, `not before ${pause}`);
    await pass(1);
    assert.equal(fetched.length, asked + 1, `after ${pause}`);
  }
  answerToken({ status: 429, headers: { "retry-after": "20" } });
  await pass(1500);
  client.wake();
  await pass(0);
  const asked = fetched.length;
  await pass(19_000);
  assert.equal(fetched.length, asked, "as long as the service asks");
  answerToken({ status: 401 });
  await pass(2000);
  assert.equal(given.at(-1)[1].state, "signed_out");
  await pass(600_000);
  assert.equal(fetched.length, asked + 1);
  const other = await live();
  other.socket.onclose({ code: 4501, reason: "signed out" });
  await other.pass(600_000);
  assert.equal(other.sockets.length, 1);
});

test("silence ends a connection, soon if the page was asleep", async () => {
  const { sockets, pass, socket, client } = await live();
  await pass(41_000);
  assert.ok(socket.isClosed);
  await pass(1000);
  sockets[1].onopen();
  sockets[1].say({ type: "snapshot", serverId: "s", epoch: 1, seq: 9, state: { raids: {} } });
  await pass(5000);
  client.wake();
  assert.deepEqual(sockets[1].sent.at(-1), { type: "ping" });
  await pass(3000);
  assert.ok(sockets[1].isClosed);
});

test("commands end with their answer, a refusal, or none", async () => {
  const { client, socket, pass } = await live();
  const done = client.toggle("s", "7", true);
  const { requestId, ...toggle } = socket.sent.at(-1);
  assert.deepEqual(toggle, { type: "deviceToggle", serverId: "s", deviceId: "7", value: true });
  socket.say({ type: "ack", requestId });
  await done;
  const refused = client.acknowledge("s", "r");
  const { requestId: asked } = socket.sent.at(-1);
  socket.say({ type: "error", code: "unknown_incident", message: "no", requestId: asked });
  await assert.rejects(refused, { code: "unknown_incident" });
  const late = client.toggle("s", "7", false);
  const caught = assert.rejects(late, { code: "no_answer" });
  socket.say({ type: "pong" });
  await pass(8000);
  await caught;
  const lost = client.toggle("s", "7", false);
  const offline = assert.rejects(lost, { code: "offline" });
  socket.onclose({ code: 1006 });
  await offline;
  await assert.rejects(client.toggle("s", "7", false), { code: "offline" });
});
