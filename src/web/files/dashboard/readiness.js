// Would the player be woken? What that depends on, loaded now and then for the bar and for the set-up.

import { get } from "../api.js";
import { stepsOf } from "../more/steps.js";
import { emit, live, loadServers, on } from "./live.js";

const EVERY = 20_000;
/** While there is no server: a player who pairs one looks here for it. */
const EVERY_AT_FIRST = 5000;

/** Facts of the set-up that are not in a state. */
export const setUpFacts = {
  /** @type {Api["HelperDeviceView"][]} */ devices: [],
  /** @type {Api["HelperDeviceView"][]} overlays too, that the player has not seen */ unseen: [],
  /** @type {Api["ConfirmationRequest"][]} pairings that wait for a word of the player */ requests: [],
  /** @type {Api["PushCredentialView"] | null} */ credential: null,
  /** @type {Api["AlarmReadiness"] | null} */ readiness: null,
  isKnown: false,
};

/** Loads them, and calls the listeners of `readiness`. */
export async function loadReadiness() {
  const server = live.current;
  const [devices, credential, readiness] = await Promise.all([
    get("/pairing/device?limit=100"),
    get("/credentials/push"),
    server ? get(`/paired-servers/${server.id}/readiness`) : null,
  ]);
  const helpers = devices.devices.filter(({ scope }) => scope === "helper");
  const unseen = devices.devices.filter(({ seenAt }) => seenAt === null);
  const { requests } = devices;
  Object.assign(setUpFacts, { devices: helpers, unseen, requests, credential, readiness, isKnown: true });
  if (!live.current) await loadServers();
  emit("readiness");
}

/** The steps of the set-up, and whether each is done. @param {string} soundState */
export function steps(soundState) {
  const notifications = "Notification" in window ? Notification.permission : "denied";
  const isGuest = live.current?.info.role === "guest";
  return stepsOf({ ...setUpFacts, server: live.current, soundState, notifications, isGuest });
}

/** Begins to load them, and again when something may have changed them. */
export function keepReadiness() {
  const load = () => document.hidden || live.connection.state === "waiting" || loadReadiness().catch(() => {});
  setInterval(load, EVERY);
  setInterval(() => live.current || load(), EVERY_AT_FIRST);
  on("current message", load);
  document.addEventListener("visibilitychange", load);
  load();
}
