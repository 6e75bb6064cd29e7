// A browser as a channel: the dashboard subscribes it, an alarm shows a notification, its button acknowledges.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { browser, demo, end, openPage, useDemo } from "./lib.mjs";
import { notifications, pushesTo, Subscriptions, until } from "./push-lib.mjs";

const permissions = ["notifications"];

useDemo();

afterEach(async () => {
  for (const { id } of await browserChannels()) await demo.call("DELETE", `/channels/${id}`);
});

const deviceBlock = (page) => page.getByRole("region", { name: "This device" });

/** Opens the section of the channels. */
async function channelsOf(page) {
  await page.getByRole("tab", { name: "More" }).click();
  // By its key: a raid bar that appears moves it, and a click that is halfway is none then.
  await page.locator("summary", { hasText: "Alarms on your phone" }).press("Enter");
  await deviceBlock(page).waitFor();
}

async function subscribe(page) {
  await channelsOf(page);
  await page.getByRole("button", { name: "Wake this device" }).click();
  await page.getByText("An alarm wakes this device").waitFor();
}

/** A page with the stand-in for the push service of its browser. It has no relay until it `watches`. */
async function wakeable({ watches = () => true, ...options } = {}) {
  const subscriptions = new Subscriptions(demo);
  const prepare = async (page) => {
    await subscriptions.prepare(page);
    await page.routeWebSocket(/\/v1$/, (relay) => (watches() ? relay.connectToServer() : relay.close({ code: 1013 })));
  };
  const opened = await openPage(browser, demo, { permissions, prepare, ...options });
  return { ...opened, subscriptions };
}

const browserChannels = async () => {
  const { channels } = await demo.call("GET", "/channels");
  return channels.filter(({ kind }) => kind === "webPush");
};

const drill = async () => (await demo.call("POST", `/paired-servers/${demo.serverId}/drill`)).incident;

const acks = async (incident) => {
  const { alarms } = await demo.call("GET", `/paired-servers/${demo.serverId}/alarms`);
  return Object.keys(alarms.find((alarm) => alarm.incident === incident)?.acks ?? {});
};

/**
 * Presses a notification, or its button: the event of the browser, dispatched by the worker. Such an event cannot be
 * extended and gives no leave to open a window, so that both are the worker's words here.
 */
async function press(page, tag, action = "") {
  const [worker] = page.context().serviceWorkers();
  return worker.evaluate(
    async ([tag, action]) => {
      const [notification] = await self.registration.getNotifications({ tag });
      const event = new NotificationEvent("notificationclick", { notification, action });
      event.waitUntil = (work) => (self.work = work);
      self.opened = [];
      self.clients.openWindow = async (url) => self.opened.push(url);
      WindowClient.prototype.focus = async function () {
        self.opened.push(`focus ${this.url}`);
      };
      self.dispatchEvent(event);
      await self.work;
      return self.opened;
    },
    [tag, action],
  );
}

test("an alarm wakes a device that was subscribed, and is acknowledged from its notification", async () => {
  // The first raid of the demo begins ten seconds after its first watcher, and a later one may go on with the same incident:
  // the device is subscribed before.
  let isSubscribed = false;
  const { page, faults, close, subscriptions } = await wakeable({ watches: () => isSubscribed });
  await subscribe(page);
  const [channel] = await browserChannels();
  assert.deepEqual([channel.name, channel.state], ["Chrome on Linux", "active"]);
  const push = await pushesTo(page);

  await deviceBlock(page).getByRole("button", { name: "Test" }).click();
  await page.getByText("The push service took the test.").waitFor();
  const { text } = await subscriptions.message(({ event }) => event === "test");
  await push(text);
  const [shown] = await notifications(page, ([first]) => first);
  assert.deepEqual([shown.title, shown.actions], ["Test: alarms reach you here", []]);
  assert.deepEqual(await press(page, shown.tag), [`focus ${page.url()}`]);

  isSubscribed = true;
  await page.evaluate(() => dispatchEvent(new Event("online")));
  const alarm = await subscriptions.message(({ event, drill }) => event === "raid.opened" && !drill);
  const { incident } = alarm.said;
  await push(alarm.text);
  await push(alarm.text);
  const all = await notifications(page, (all) => all.some(({ actions }) => actions.length > 0));
  assert.equal(all.length, 1, "the second one takes the place of the first");
  const [{ title, tag, data, ...facts }] = all;
  assert.match(title, /^RAID /);
  assert.equal(tag, incident);
  assert.equal(facts.requireInteraction && facts.renotify && facts.vibrate > 1, true);
  assert.deepEqual(facts.actions, ["acknowledge"]);
  assert.match(new URL(data.navigate).hash, new RegExp(`^#server=${demo.serverId}&x=\\d+&y=\\d+$`));
  assert.deepEqual(await acks(incident), []);
  assert.deepEqual(await press(page, tag, "acknowledge"), [], "without a page");
  assert.equal((await acks(incident)).length, 1);
  await notifications(page, (all) => all.length === 0);

  // A click leads to its place, which a phone shows in another tab. The raid itself did that when it began, once.
  await page.setViewportSize({ width: 390, height: 844 });
  await page.getByRole("tab", { name: "More" }).click();
  await push(alarm.text);
  await notifications(page, (all) => all.length === 1);
  assert.deepEqual(await press(page, tag), [`focus ${page.url()}`]);
  await page.locator('[role=tab][aria-selected="true"]').filter({ hasText: "Map" }).waitFor();
  await page.getByRole("tab", { name: "More" }).click();

  await deviceBlock(page).getByRole("button", { name: "Stop" }).click();
  await deviceBlock(page).getByRole("button", { name: "Sure?" }).click();
  await page.getByText("This device is not woken while this page is closed.").waitFor();
  assert.deepEqual(await browserChannels(), []);
  assert.deepEqual(faults, []);
  await close();
});

test("a click opens the dashboard at the place, where only another page is open", async () => {
  const { page, faults, close, subscriptions } = await wakeable();
  await subscribe(page);
  const push = await pushesTo(page);
  const incident = await drill();
  const { text, said } = await subscriptions.message((said) => said.incident === incident);
  await page.goto(`${demo.apiUrl}/status`);
  await push(text);
  await notifications(page, (all) => all.length === 1);
  assert.deepEqual(await press(page, incident), [said.notification.navigate]);
  const { hash } = new URL(said.notification.navigate);
  assert.equal(hash, `#server=${demo.serverId}`, "a drill has no place");
  await page.goto(`${demo.apiUrl}/${hash}&x=1000&y=1500`);
  await page.waitForFunction(() => location.hash === "");

  // An alarm that is acknowledged elsewhere shows on this device no longer.
  await push(text);
  await notifications(page, (all) => all.length === 1);
  await demo.call("POST", new URL(said.ackUrl).pathname);
  await notifications(page, (all) => all.length === 0);
  assert.deepEqual(faults, []);
  await close();
});

test("an acknowledgement that does not work says so, and a message that cannot be read still wakes", async () => {
  const { page, close } = await wakeable();
  await subscribe(page);
  const push = await pushesTo(page);
  const notification = { title: "RAID Front door", body: "Demo", tag: "one", navigate: `${demo.apiUrl}/` };
  await push(JSON.stringify({ notification, ackUrl: `${demo.apiUrl}/a/old` }));
  await notifications(page, (all) => all.length === 1);
  await press(page, "one", "acknowledge");
  const [refused] = await notifications(page, ([first]) => first);
  assert.deepEqual([refused.title, refused.tag], ["Not acknowledged: RAID Front door", "one"]);
  assert.match(refused.body, /too old/);
  await push(JSON.stringify({ notification, ackUrl: `${demo.apiUrl}/a/offline` }));
  await notifications(page, ([{ title }]) => title === "RAID Front door");
  await page.context().setOffline(true);
  await press(page, "one", "acknowledge");
  const [offline] = await notifications(page, ([{ title }]) => title.startsWith("Not"));
  assert.match(offline.body, /cannot be reached/);
  assert.deepEqual(offline.actions, ["acknowledge"]);
  await page.context().setOffline(false);
  for (const text of ["no JSON", "", "null", "{}"]) {
    await push(text);
    await notifications(page, (all) => all.some(({ tag }) => tag === "alarm"));
    await press(page, "alarm");
    // Chromium closes by tag, and a little later: the next one must not be there yet.
    await notifications(page, (all) => all.every(({ tag }) => tag !== "alarm"));
  }
  await close();
});

test("a subscription that is lost is made again, for the same channel", async () => {
  const { page, faults, close, subscriptions } = await wakeable();
  await subscribe(page);
  const [channel] = await browserChannels();
  const first = subscriptions.newest;
  const reload = async () => {
    const replaced = page.waitForResponse((answer) => answer.url().endsWith("/subscription") && answer.ok());
    await page.reload();
    await replaced;
  };
  // The browser has lost it.
  await page.evaluate(() => globalThis.loseSubscription());
  await reload();
  assert.notEqual(subscriptions.newest, first);
  // The push service has ended it.
  await subscriptions.end(subscriptions.newest);
  const tested = await demo.call("POST", `/channels/${channel.id}/test`);
  assert.deepEqual([tested.accepted, tested.reason], [false, "gone"]);
  await reload();
  assert.equal((await demo.call("POST", `/channels/${channel.id}/test`)).accepted, true);
  // The browser has made another one while no page was open.
  const [worker] = page.context().serviceWorkers();
  const renew = (made) =>
    worker.evaluate(async (made) => {
      const event = new ExtendableEvent("pushsubscriptionchange");
      event.newSubscription = { toJSON: () => made };
      event.waitUntil = (work) => (self.work = work);
      self.dispatchEvent(event);
      await self.work;
    }, made);
  const { key } = await demo.call("GET", "/channels/web-push/key");
  await renew(await subscriptions.make(key));
  assert.equal((await demo.call("POST", `/channels/${channel.id}/test`)).accepted, true);
  await subscriptions.message(({ event }) => event === "test");
  assert.deepEqual(
    (await browserChannels()).map(({ id, state }) => [id, state]),
    [[channel.id, "active"]],
  );
  // The service does not take it: the user is to know.
  await renew({ endpoint: subscriptions.newest, keys: { p256dh: "none", auth: "none" } });
  const [lost] = await notifications(page, ([one]) => one?.tag === "subscription");
  assert.equal(lost.title, "Alarms no longer reach this device");
  assert.deepEqual(
    faults.filter((fault) => !fault.includes("400")),
    [],
  );
  await close();
});

test("a channel that was deleted elsewhere, and a sign-out, end the subscription", async () => {
  const { page, close } = await wakeable();
  const ended = () => page.evaluate(() => localStorage.getItem("subscription of the stand-in"));
  await subscribe(page);
  const [{ id }] = await browserChannels();
  await demo.call("DELETE", `/channels/${id}`);
  await page.reload();
  await until(ended, (kept) => kept === null);
  await subscribe(page);
  assert.equal((await browserChannels()).length, 1);
  // The session of the demo's cookie is other tests' too.
  await page.route(/\/auth\/signout$/, (route) => route.fulfill({ status: 204 }));
  await page.getByRole("button", { name: "Sign out" }).click();
  await until(ended, (kept) => kept === null);
  await until(browserChannels, (left) => left.length === 0);
  await close();
});

test("a permission that is taken away is said when the page is opened", async () => {
  const { page, close } = await wakeable();
  await subscribe(page);
  await page.context().clearPermissions();
  await page.context().grantPermissions([]);
  await page.reload();
  await page.getByRole("status").filter({ hasText: "Notifications of this page are blocked." }).waitFor();
  await page.getByRole("button", { name: "See what wakes you" }).click();
  await page.locator("summary", { hasText: "Alarms on your phone" }).press("Enter");
  await deviceBlock(page).getByText("allow notifications, and load this page again").waitFor();
  await close();
});

for (const [name, words, userAgent, without] of [
  ["a browser without pushes", "Another browser, or ntfy below, works.", "", true],
  ["an iPhone whose page is not installed", "press Share, Add to Home Screen", "Mozilla/5.0 (iPhone) Safari/605", true],
  ["a browser whose user has refused", "Notifications of this page are blocked.", "", false],
]) {
  test(`${name} says why it is not woken, and what to do`, async () => {
    const prepare = (page) => without && page.addInitScript(() => Reflect.deleteProperty(window, "PushManager"));
    const agent = userAgent ? { userAgent } : {};
    const { page, faults, close } = await openPage(browser, demo, { permissions: [], prepare, ...agent });
    await channelsOf(page);
    await deviceBlock(page).getByText(words).waitFor();
    assert.equal(await page.getByRole("button", { name: "Wake this device" }).count(), 0);
    assert.deepEqual(faults, []);
    await close();
  });
}

test("no text becomes a worker, and no other policy of Trusted Types is made", async () => {
  const { page, close } = await wakeable();
  await subscribe(page);
  const refused = await page.evaluate(() => {
    const tried = [
      () => navigator.serviceWorker.register("/sw.js"),
      () => new Worker("/sw.js"),
      () => trustedTypes.createPolicy("service-worker", { createScriptURL: (url) => url }),
      () => trustedTypes.createPolicy("default", { createScriptURL: (url) => url }),
    ];
    const outcome = async (attempt) => {
      try {
        await attempt();
        return "done";
      } catch ({ name }) {
        return name;
      }
    };
    return Promise.all(tried.map(outcome));
  });
  assert.deepEqual(refused, ["TypeError", "TypeError", "TypeError", "TypeError"]);
  await close();
});

test("the simulated browser of the demo decrypts an alarm by itself", async () => {
  const session = await browser.newContext();
  const page = await session.newPage();
  await page.goto(demo.browserPushUrl);
  await page.getByText("Subscribed.").waitFor();
  await until(browserChannels, ([channel]) => channel?.name === "Simulated browser");
  await drill();
  await page.getByRole("heading", { name: /^DRILL / }).waitFor();
  const link = await page.getByRole("link", { name: "Acknowledge" }).first().getAttribute("href");
  assert.equal(new URL(link ?? "").origin, demo.apiUrl);
  await end(session);
});
