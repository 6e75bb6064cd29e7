// The service worker: shows an alarm while no page is open, acknowledges it from its notification, and keeps the
// browser's subscription. It answers no request of a page and keeps no answer of the service.

/** Types of workers and those of pages exclude each other, so what a worker is given is `any`. */
const worker = /** @type {any} */ (self);
/** Where the files of this version are; the service puts it in. */
const ROOT = "{root}";
/** Milliseconds for a call: a phone that has slept may have no network for some seconds. */
const DEADLINE = 15_000;
const BUZZ = [600, 200, 600, 200, 1200];
/** For a message that cannot be read: a push that shows nothing costs the browser's permission. */
const UNREADABLE = { title: "An alarm of your base", body: "Open the dashboard to see it.", tag: "alarm" };
const NOT_DONE = "Not acknowledged: ";
const LOST = "Alarms no longer reach this device";

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("push", (/** @type {any} */ event) => event.waitUntil(alarm(event.data)));
worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  const { notification, action } = event;
  notification.close();
  event.waitUntil(action === "acknowledge" ? acknowledge(notification) : open(notification.data.navigate));
});
worker.addEventListener("message", (/** @type {any} */ event) => event.waitUntil(remember(event.data)));
worker.addEventListener("pushsubscriptionchange", (/** @type {any} */ event) =>
  event.waitUntil(renew(event.newSubscription)),
);

/** Shows the message of a push. @param {any} data of the event */
async function alarm(data) {
  const message = read(data);
  const { title, body, tag, navigate, silent } = message.notification ?? {};
  const isAside = message.event === "raid.acknowledged" || message.event === "raid.updated";
  // Alarms that rang under ids of their own, before they were known to be parts of this raid.
  const parts = Array.isArray(message.parts) ? (await Promise.all(message.parts.map(shown))).flat() : [];
  const isOver = isAside && !parts.length && !(await shown(tag)).length;
  await show(title ?? UNREADABLE.title, {
    body: body ?? UNREADABLE.body,
    tag,
    silent: silent === true,
    stays: message.event === "raid.updated",
    ackUrl: own(message.ackUrl),
    navigate: own(navigate),
  });
  for (const part of parts) part.close();
  // Here no notification waits for that any longer: a push must show one, but it need not stay.
  if (isOver) for (const notification of await shown(tag)) notification.close();
}

/** The notifications with this tag. @param {string | undefined} tag @returns {Promise<any[]>} */
const shown = (tag) => worker.registration.getNotifications({ tag });

/** The URL if it is of this service, otherwise undefined: no message leads elsewhere. @param {string} url */
function own(url) {
  try {
    return new URL(url).origin === new URL(worker.registration.scope).origin ? url : undefined;
  } catch {
    return undefined;
  }
}

/** @param {any} data */
function read(data) {
  try {
    return data.json() ?? {};
  } catch {
    return {};
  }
}

/** Shows a notification in place of the one with its tag: one that stays and buzzes, unless it is silent; with `stays` it stays all the same. @param {string} title */
function show(
  title,
  /** @type {any} */ { body, tag, silent = false, stays = false, ackUrl = "", navigate = worker.registration.scope },
) {
  return worker.registration.showNotification(title, {
    body,
    tag: tag || UNREADABLE.tag,
    ...(silent
      ? { silent, ...(stays && { requireInteraction: true }) }
      : { renotify: true, requireInteraction: true, vibrate: BUZZ }),
    icon: `${ROOT}/icons/raid-192.png`,
    badge: `${ROOT}/icons/badge-96.png`,
    actions: ackUrl ? [{ action: "acknowledge", title: "Acknowledge" }] : [],
    data: { ackUrl, navigate, silent, stays },
  });
}

/** Acknowledges by the link of the message, or says why it did not work. */
async function acknowledge(/** @type {Notification} */ { title, tag, data }) {
  const fault = await post(data.ackUrl);
  if (fault) await show(`${NOT_DONE}${title.replace(NOT_DONE, "")}`, { body: fault, tag, ...data });
}

/** @param {string} url @returns {Promise<string>} the fault; empty: there is none*/
async function post(url) {
  try {
    const answer = await fetch(url, { method: "POST", credentials: "omit", signal: AbortSignal.timeout(DEADLINE) });
    if (answer.ok) return "";
    if (answer.status === 404) return "The link is too old. Open the dashboard to see the alarm.";
    return `The service answered ${answer.status}. Press Acknowledge again.`;
  } catch {
    return "The service cannot be reached. Is this device online? Press Acknowledge again.";
  }
}

/** The open pages of the dashboard. */
async function pages() {
  const all = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const dashboard = new URL(worker.registration.scope).pathname;
  return all.filter((/** @type {{ url: string }} */ { url }) => new URL(url).pathname === dashboard);
}

/** Brings the dashboard to the front, at the place of the alarm. @param {string} navigate */
async function open(navigate) {
  const [page] = await pages();
  if (!page) return worker.clients.openWindow(navigate);
  page.postMessage({ type: "show", place: new URL(navigate).hash });
  return page.focus();
}

/** Makes a new subscription known to the service, or says that alarms do not come any longer. @param {any} given */
async function renew(given) {
  const kept = await remembered();
  if (!kept) return;
  try {
    const { pushManager } = worker.registration;
    const options = { userVisibleOnly: true, applicationServerKey: kept.key };
    const { endpoint, keys } = (given ?? (await pushManager.subscribe(options))).toJSON();
    const answer = await fetch(`${kept.api}/channels/${kept.channel}/subscription`, {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ endpoint, keys }),
      signal: AbortSignal.timeout(DEADLINE),
    });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    for (const page of await pages()) page.postMessage({ type: "renewed", endpoint });
  } catch {
    await show(LOST, { body: "Open the dashboard: it sets that up again.", tag: "subscription" });
  }
}

/**
 * The channel of this browser with the key of its subscription and the URL of the API, as a page said them; null: this
 * browser has no channel. A worker ends between two events, so they are in a database.
 * @param {any} kept
 */
const remember = (kept) => inStore("readwrite", (/** @type {IDBObjectStore} */ store) => store.put(kept, "channel"));
const remembered = () => inStore("readonly", (/** @type {IDBObjectStore} */ store) => store.get("channel"));

/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} does @returns {Promise<any>} the result of a request to the store */
function inStore(mode, does) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("companion-push", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const transaction = opening.result.transaction("kept", mode);
      const request = does(transaction.objectStore("kept"));
      request.onerror = () => reject(request.error);
      request.onsuccess = () => resolve(request.result);
      transaction.oncomplete = () => opening.result.close();
    };
  });
}
