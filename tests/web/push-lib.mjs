// A browser's side of Web Push for the tests: subscriptions at the demo's simulated push service, and their messages,
// which a third party's library decrypts (`http_ece`).

import { createECDH, randomBytes } from "node:crypto";
import ece from "http_ece";
import { PATIENCE } from "./lib.mjs";

/**
 * In place of `PushManager` in the page: `subscribe` of Chromium needs the push service of its maker, which is out of
 * reach here. Everything else is the browser's own: permission, worker, notifications. A message that the service has
 * sent is delivered to the worker by DevTools.
 */
function standIn() {
  const KEY = "subscription of the stand-in";
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const subscription = ({ endpoint, keys, key }) => ({
    endpoint,
    options: { userVisibleOnly: true, applicationServerKey: bytes(key).buffer },
    toJSON: () => ({ endpoint, expirationTime: null, keys }),
    unsubscribe: async () => {
      localStorage.removeItem(KEY);
      await globalThis.endSubscription(endpoint);
      return true;
    },
  });
  PushManager.prototype.getSubscription = async () => {
    const known = JSON.parse(localStorage.getItem(KEY) ?? "null");
    return known && subscription(known);
  };
  PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey: key }) => {
    if (!userVisibleOnly || Notification.permission !== "granted") throw new DOMException("no", "NotAllowedError");
    const made = { ...(await globalThis.makeSubscription(key)), key };
    localStorage.setItem(KEY, JSON.stringify(made));
    return subscription(made);
  };
  globalThis.loseSubscription = () => localStorage.removeItem(KEY);
}

/** Subscriptions at the push service of a demo. */
export class Subscriptions {
  constructor({ browserPushUrl }) {
    this.url = browserPushUrl;
    this.known = new Map();
  }

  /** Gives a page the stand-in. */
  async prepare(page) {
    await page.exposeFunction("makeSubscription", (key) => this.make(key));
    await page.exposeFunction("endSubscription", (endpoint) => this.end(endpoint));
    await page.addInitScript(standIn);
  }

  /** A subscription that takes pushes of this key, as a browser makes it. */
  async make(key) {
    const ecdh = createECDH("prime256v1");
    const p256dh = ecdh.generateKeys("base64url");
    const auth = randomBytes(16).toString("base64url");
    const { endpoint } = await this.#call("POST", "/subscriptions", { applicationServerKey: key });
    this.known.set(endpoint, { ecdh, auth });
    return { endpoint, keys: { p256dh, auth } };
  }

  /** Ends a subscription: pushes to it are answered 410. */
  async end(endpoint) {
    await this.#call("DELETE", `/subscriptions/${endpoint.split("/").at(-1)}`);
  }

  /** The endpoint that was made last. */
  get newest() {
    return [...this.known.keys()].at(-1);
  }

  /** The first message to the newest subscription for which `holds` is true; waits for it. The text and what it says. */
  async message(holds) {
    const endpoint = this.newest;
    const waiting = async () => {
      const all = await this.#call("GET", `/subscriptions/${endpoint.split("/").at(-1)}/messages`);
      const texts = all.map(({ body }) => this.decrypt(endpoint, Buffer.from(body, "base64url")));
      return texts.map((text) => ({ text, said: JSON.parse(text) })).find(({ said }) => holds(said));
    };
    return until(waiting, Boolean);
  }

  decrypt(endpoint, body) {
    const { ecdh, auth } = this.known.get(endpoint);
    return ece.decrypt(body, { version: "aes128gcm", privateKey: ecdh, authSecret: auth }).toString("utf8");
  }

  async #call(method, path, body) {
    const headers = body ? { "content-type": "application/json" } : {};
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status}`);
    return answer.headers.get("content-type")?.includes("json") ? answer.json() : null;
  }
}

/**
 * Delivers pushes to the worker of a page, as the push service of the browser would, and waits until it shows them.
 * Chromium forgets a notification whose list is asked for while it is being shown.
 */
export async function pushesTo(page) {
  const session = await page.context().newCDPSession(page);
  const origin = new URL(page.url()).origin;
  const known = new Promise((resolve) => {
    session.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
      const own = registrations.find(({ scopeURL, isDeleted }) => scopeURL.startsWith(origin) && !isDeleted);
      if (own) resolve(own.registrationId);
    });
  });
  await session.send("ServiceWorker.enable");
  const registrationId = await known;
  return async (data) => {
    const [worker] = page.context().serviceWorkers();
    await worker.evaluate(() => {
      const { registration } = self;
      self.shown = new Promise((resolve) => {
        registration.showNotification = async (...notification) => {
          delete registration.showNotification;
          await registration.showNotification(...notification);
          resolve(true);
        };
      });
    });
    await session.send("ServiceWorker.deliverPushMessage", { origin, registrationId, data });
    await worker.evaluate(() => self.shown);
  };
}

/** The notifications that show, as soon as `holds` is true for them. */
export function notifications(page, holds) {
  const shown = () =>
    page.evaluate(async () => {
      const registration = await navigator.serviceWorker.getRegistration();
      const all = (await registration?.getNotifications()) ?? [];
      return all.map(({ title, body, tag, requireInteraction, renotify, vibrate, actions, data }) => {
        const buttons = actions.map(({ action }) => action);
        return { title, body, tag, requireInteraction, renotify, vibrate: vibrate.length, actions: buttons, data };
      });
    });
  return until(shown, holds);
}

/** Asks until `holds` is true for the answer, which is returned. */
export async function until(ask, holds) {
  const asked = Date.now();
  for (;;) {
    const answer = await ask();
    if (holds(answer)) return answer;
    if (Date.now() - asked > PATIENCE) throw new Error(`never: ${holds}, but ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
