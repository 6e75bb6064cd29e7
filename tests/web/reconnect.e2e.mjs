// The relay client in a real browser, against a real service that is killed, and over a line that is bad. Whatever happens, it
// comes back by itself with the state that a new client has, and gives what was said meanwhile once.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, openPage } from "./lib.mjs";
import { BadLine } from "./proxy.mjs";
import { pairByPush, send, signIn, startService } from "./service.mjs";

const line = new BadLine();
/** @type {any} */ let world;
/** @type {any} */ let browser;
let serverId = "";

before(async () => {
  world = await startService({ relayUrl: (port) => line.listen(port) });
  browser = await launch();
  world.cookie = await signIn(world);
  ({ id: serverId } = await pairByPush(world, world.cookie));
});
after(async () => {
  await browser?.close();
  await world?.stop();
  line.close();
});

/** A page with a client that watches the server, on a clock that is `speed` times as fast. */
async function watch({ speed = 1 } = {}) {
  // The page of an overlay without a token does nothing, and may do what the pages of the service may.
  const { page, close } = await openPage(browser, world, { path: "/overlay" });
  await page.evaluate(clientOf, { relay: world.relayUrl, serverId, speed });
  await reaches(page, "live");
  // The link to the game comes up again after the service does; only then can something be said.
  await page.waitForFunction(
    (id) => globalThis.client.servers.get(id).state.server.connection === "connected",
    serverId,
  );
  return { page, close };
}

/** In the page: a client, what it said, and the way to compare it with a new one. */
async function clientOf({ relay, serverId, speed }) {
  const { RelayClient } = await import(`${document.documentElement.dataset.root}/relay-client.js`);
  const began = Date.now();
  const platform = {
    setTimeout: (call, after) => setTimeout(call, after / speed),
    now: () => began + (Date.now() - began) * speed,
  };
  const seen = { states: [], reasons: [], chat: [], snapshots: 0, lost: [] };
  const make = (handlers) =>
    new RelayClient({
      api: location.origin,
      relay,
      handlers,
      history: speed === 1,
      platform: handlers ? platform : {},
    });
  const client = make({
    status: ({ state, reason }) => {
      seen.states.push(state);
      if (reason) seen.reasons.push(reason);
    },
    chat: (_, { text }, missed) => seen.chat.push({ text, missed }),
    lost: (_, code) => seen.lost.push(code),
  });
  client.watch(serverId);
  client.start();
  /** The text of a state, whatever the order of its keys. */
  const sorted = (value) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(
          Object.keys(value)
            .sort()
            .map((key) => [key, sorted(value[key])]),
        )
      : Array.isArray(value)
        ? value.map(sorted)
        : value;
  const textOf = (one) => JSON.stringify(sorted(one.servers.get(serverId).state));
  /** Resolves with both texts once both clients have the same position. */
  const compare = () =>
    new Promise((resolve) => {
      const fresh = new RelayClient({ api: location.origin, relay, handlers: { state: check } });
      function check() {
        const [mine, other] = [client, fresh].map((one) => one.servers.get(serverId));
        if (!mine.state || !other.state || mine.epoch !== other.epoch || mine.seq !== other.seq) return;
        const texts = [textOf(client), textOf(fresh)];
        client.handlers.state = undefined;
        fresh.stop();
        resolve(texts);
      }
      client.handlers.state = check;
      fresh.watch(serverId);
      fresh.start();
    });
  Object.assign(globalThis, { client, seen, compare });
}

/** Waits until the client said this state, from this place of its states on. */
const reaches = (page, state, from = 0) =>
  page.waitForFunction(([state, from]) => globalThis.seen.states.slice(from).includes(state), [state, from], {
    timeout: 90_000,
  });
const said = (page) => page.evaluate(() => globalThis.seen.states.length);
const isTrue = async (page, why) => {
  const [mine, fresh] = await page.evaluate(() => globalThis.compare());
  assert.equal(mine, fresh, why);
};
/** A line in the team's chat, from elsewhere. */
const say = (text) =>
  send(world.apiUrl, "POST", `/paired-servers/${serverId}/chat`, { text }, { cookie: world.cookie });

test("after the service was killed it says so, and comes back with the state of the new process", async () => {
  const { page, close } = await watch();
  for (let times = 0; times < 2; times++) {
    const from = await said(page);
    const epoch = await page.evaluate((id) => globalThis.client.servers.get(id).epoch, serverId);
    await world.kill();
    await reaches(page, "waiting", from);
    assert.notEqual(await page.evaluate((id) => globalThis.client.servers.get(id).state, serverId), null);
    await world.start();
    await reaches(page, "live", from);
    await isTrue(page, "as a new client has it");
    assert.notEqual(await page.evaluate((id) => globalThis.client.servers.get(id).epoch, serverId), epoch);
  }
  assert.deepEqual(await page.evaluate(() => globalThis.seen.lost), []);
  await close();
});

test("a connection that is cut goes on from its position, and what was said meanwhile comes once", async () => {
  const { page, close } = await watch();
  await say("before the cut");
  await page.waitForFunction(() => globalThis.seen.chat.some(({ text }) => text === "before the cut"));
  const from = await said(page);
  line.mode = "down";
  line.cut();
  await reaches(page, "waiting", from);
  await say("while it was away");
  line.mode = "good";
  await reaches(page, "live", from);
  // A list that does not come at once is asked for again after half a minute.
  await page.waitForFunction(() => globalThis.seen.chat.some(({ text }) => text === "while it was away"), null, {
    timeout: 90_000,
  });
  await say("after it came back");
  await page.waitForFunction(() => globalThis.seen.chat.some(({ text }) => text === "after it came back"));
  await isTrue(page);
  const chat = await page.evaluate(() => globalThis.seen.chat);
  const mine = chat.filter(({ text }) => /the cut|it was away|it came back/.test(text));
  assert.deepEqual(mine, [
    { text: "before the cut", missed: false },
    { text: "while it was away", missed: true },
    { text: "after it came back", missed: false },
  ]);
  await close();
});

test("a line that lets nothing pass is found out after a wake-up", async () => {
  const { page, close } = await watch();
  const from = await said(page);
  line.mode = "deaf";
  await say("nothing passes");
  // A page that was asleep for long: more than a moment has passed since the last word.
  await page.waitForFunction(
    () => {
      globalThis.client.wake();
      return globalThis.seen.states.at(-1) !== "live";
    },
    null,
    { polling: 1000, timeout: 90_000 },
  );
  line.mode = "good";
  await reaches(page, "live", from);
  await page.waitForFunction(() => globalThis.seen.chat.some(({ text }) => text === "nothing passes"));
  await isTrue(page);
  await close();
});

test("a line that lets nothing pass is found out by its silence", async () => {
  const { page, close } = await watch({ speed: 8 });
  const from = await said(page);
  line.mode = "deaf";
  await reaches(page, "waiting", from);
  line.mode = "good";
  await reaches(page, "live", from);
  assert.ok((await page.evaluate(() => globalThis.seen.reasons)).includes("the relay fell silent"));
  await close();
});

test("a patch that is lost on the way is a gap, after which the state is true again, on the same connection", async () => {
  const { page, close } = await watch();
  await line.alone();
  const opened = line.opened;
  line.lostMessages = 0;
  line.loses = '"patch"';
  while (line.lostMessages === 0) await new Promise((resolve) => setTimeout(resolve, 50));
  line.loses = "";
  await isTrue(page);
  // The one that it is compared with.
  assert.equal(line.opened, opened + 1);
  await close();
});

test("bytes that are lost on the way end the connection, and the next one is true", async () => {
  const { page, close } = await watch();
  for (const count of [1, 3, 40]) {
    await line.alone();
    const from = await said(page);
    line.losesBytes = count;
    await reaches(page, "waiting", from);
    await reaches(page, "live", from);
    await isTrue(page, `after ${count} lost bytes`);
  }
  assert.ok(line.lostBytes > 0);
  await close();
});

test("a sign-in that has ended meanwhile is said, and not tried again", async () => {
  const cookie = await signIn(world);
  const own = { ...world, cookie };
  const { page, close } = await openPage(browser, own, { path: "/overlay" });
  await page.evaluate(clientOf, { relay: world.relayUrl, serverId, speed: 1 });
  await reaches(page, "live");
  const from = await said(page);
  line.mode = "down";
  line.cut();
  await reaches(page, "waiting", from);
  await send(world.apiUrl, "POST", "/auth/signout", undefined, { cookie });
  line.mode = "good";
  await reaches(page, "signed_out", from);
  assert.equal(await page.evaluate(() => globalThis.client.isWanted), false);
  await close();
});
