// This browser as a channel: subscribes it to pushes of the service, keeps that known, and ends it.

import { API, get, Problem, post, put, remove } from "./api.js";
import { PUSH } from "./words/push.js";

/** The worker, at the root: it is of the whole service. */
const WORKER = `${API}/sw.js`;
/** Milliseconds for its start; a worker that fails never says so. */
const STARTS_WITHIN = 20_000;
/** Key of the storage under which this browser is: `{ user, channel, endpoint }`. */
const KEPT = "push";

/** Browsers take no text for the URL of a worker here; this policy, the only one of the page, makes this one alone. */
const urls = /** @type {any} */ (window).trustedTypes?.createPolicy("service-worker", {
  createScriptURL: () => WORKER,
});

/** The reason why this browser cannot be woken: `insecure`, `install`, `old`, `unsupported`, `denied`; empty: it can. */
export function obstacle() {
  if (!isSecureContext) return "insecure";
  if (!("serviceWorker" in navigator && "PushManager" in window && "Notification" in window)) {
    if (!isApplePhone()) return "unsupported";
    return /** @type {any} */ (navigator).standalone ? "old" : "install";
  }
  return Notification.permission === "denied" ? "denied" : "";
}

/** iPads call themselves Macs; no Mac has a touch screen. */
function isApplePhone() {
  const { userAgent, platform, maxTouchPoints } = navigator;
  return /iPhone|iPad|iPod/.test(userAgent) || (platform === "MacIntel" && maxTouchPoints > 1);
}

/** A name for this browser's channel: `Chrome on Android`. */
export function browserName() {
  const { userAgent } = navigator;
  /** @param {[string, RegExp][]} names */
  const find = (names) => names.find(([, pattern]) => pattern.test(userAgent))?.[0];
  const browser = find([
    ["Edge", /Edg/],
    ["Opera", /OPR/],
    ["Firefox", /Firefox|FxiOS/],
    ["Chrome", /Chrome|CriOS/],
    ["Safari", /Safari/],
  ]);
  const system = find([
    ["iPhone", /iPhone/],
    ["iPad", /iPad/],
    ["Android", /Android/],
    ["Windows", /Windows/],
    ["Mac", /Mac OS/],
    ["Linux", /Linux/],
  ]);
  return PUSH.thisBrowser(browser, system);
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "null");
  } catch {
    return null;
  }
}

/** True if this browser was subscribed, by anyone. */
export const wasSubscribed = () => kept() !== null;

/** Registers the worker, or looks for a newer one; the registration, with a worker that runs. */
async function registered() {
  await navigator.serviceWorker.register(urls?.createScriptURL("") ?? WORKER, { updateViaCache: "none" });
  const late = new Promise((_, reject) => setTimeout(reject, STARTS_WITHIN, new Error(PUSH.noWorker)));
  return Promise.race([navigator.serviceWorker.ready, late]);
}

/** The registration and the key, to have them before a click: Safari subscribes only right after it. */
export async function prepare() {
  const [registration, { key }] = await Promise.all([registered(), get("/channels/web-push/key")]);
  return { registration, key };
}

/**
 * The channel of this browser among those of the user.
 * @param {string} user @param {Api["ChannelView"][]} channels
 * @returns {Promise<{ state: "off" | "on" | "lost", channel?: Api["ChannelView"] }>} `lost`: pushes to the channel do not arrive here
 */
export async function deviceState(user, channels) {
  const mine = kept();
  const channel = mine?.user === user && channels.find(({ id }) => id === mine.channel);
  if (!channel) return { state: "off" };
  const registration = await navigator.serviceWorker?.getRegistration();
  const subscription = await registration?.pushManager?.getSubscription();
  const isHere = subscription?.endpoint === mine.endpoint && channel.state !== "gone";
  return { state: isHere ? "on" : "lost", channel };
}

/**
 * Subscribes this browser, in the handler of a click, and makes it a channel of the user.
 * @param {{ user: string, prepared: Awaited<ReturnType<typeof prepare>>, channel?: Api["ChannelView"] | null }} given `channel`: that of this
 *   browser, if there is one
 */
export async function subscribe({ user, prepared, channel = null }) {
  const permission = await Notification.requestPermission();
  if (permission !== "granted") throw new Error(permission === "denied" ? PUSH.denied : PUSH.dismissed);
  await connect(user, prepared, channel);
}

/**
 * @param {string} user @param {Awaited<ReturnType<typeof prepare>>} prepared @param {Api["ChannelView"] | null} channel
 */
async function connect(user, { registration, key }, channel) {
  let subscription = await subscribed(registration, key);
  let id = channel && (await replace(channel.id, subscription));
  if (!id) {
    id = await add(subscription).catch(async (problem) => {
      // A channel that this browser has forgotten knows it: another one takes its place.
      if (problem.code !== "conflict") throw problem;
      await subscription.unsubscribe();
      subscription = await subscribed(registration, key);
      return add(subscription);
    });
  }
  localStorage.setItem(KEPT, JSON.stringify({ user, channel: id, endpoint: subscription.endpoint }));
  registration.active.postMessage({ api: API, channel: id, key });
}

/** The subscription that there is, if it is made with this key, or a new one. @param {ServiceWorkerRegistration} registration @param {string} key */
async function subscribed(registration, key) {
  const { pushManager } = registration;
  const known = await pushManager.getSubscription();
  if (known && text(known.options?.applicationServerKey) === key) return known;
  // A subscription belongs to its key: pushes that another one signs are refused.
  await known?.unsubscribe();
  try {
    return await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  } catch (error) {
    throw new Error(error.name === "NotAllowedError" ? PUSH.denied : PUSH.noService(error.message));
  }
}

/** Bytes as base64url. @param {ArrayBuffer | null | undefined} bytes */
function text(bytes) {
  const binary = String.fromCharCode(...new Uint8Array(bytes ?? new ArrayBuffer(0)));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {any} subscription @returns {Api["BrowserSubscription"]} */
function body(subscription) {
  const { endpoint, keys } = subscription.toJSON();
  return { endpoint, keys: { p256dh: keys.p256dh, auth: keys.auth } };
}

/** @param {PushSubscription} subscription */
async function add(subscription) {
  return (await post("/channels", { kind: "webPush", name: browserName(), subscription: body(subscription) })).id;
}

/** @param {string} id @param {any} subscription @returns {Promise<string>} the id; empty: the channel is gone from the service */
async function replace(id, subscription) {
  return put(`/channels/${id}/subscription`, body(subscription)).then(
    () => id,
    (problem) => {
      if (problem.status !== 404) throw problem;
      return "";
    },
  );
}

/** Ends the subscription of this browser, and its channel if it is the user's. @param {string} user */
export async function unsubscribe(user) {
  const mine = kept();
  localStorage.removeItem(KEPT);
  const registration = await navigator.serviceWorker?.getRegistration();
  registration?.active?.postMessage(null);
  const subscription = await registration?.pushManager?.getSubscription();
  await subscription?.unsubscribe();
  if (mine?.user !== user) return;
  await remove(`/channels/${mine.channel}`).catch((problem) => {
    if (!(problem instanceof Problem) || problem.status !== 404) throw problem;
  });
}

/**
 * Looks whether this browser is still woken, and mends what can be mended without a click. Call it when a page begins.
 * @param {string} user
 * @returns {Promise<string>} a sentence if alarms do not come any longer; empty: they come, or are not wanted
 */
export async function keepSubscribed(user) {
  if (kept()?.user !== user) return "";
  const { channels } = await get("/channels");
  const { state, channel } = await deviceState(user, channels);
  // Another device of the user has deleted the channel.
  if (state === "off" || !channel) return unsubscribe(user).then(() => "");
  const hindrance = obstacle();
  if (hindrance) return PUSH.obstacles[hindrance];
  if (Notification.permission !== "granted") return PUSH.lost;
  try {
    const prepared = await prepare();
    const { pushManager } = prepared.registration;
    const known = await pushManager.getSubscription();
    const isOfKey = text(known?.options?.applicationServerKey) === prepared.key;
    if (state !== "on" || !isOfKey) {
      // The push service says of this one that it ended.
      if (channel.state === "gone") await known?.unsubscribe();
      await connect(user, prepared, channel);
    }
    return "";
  } catch (problem) {
    return state === "on" ? "" : `${PUSH.lost} ${problem.message}`;
  }
}

/** The worker has subscribed this browser again. @param {string} endpoint */
export function renewed(endpoint) {
  if (kept()) localStorage.setItem(KEPT, JSON.stringify({ ...kept(), endpoint }));
}
