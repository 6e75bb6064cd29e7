// Ways on which one arrives at the dashboard: by an invitation, by an alarm's notification or link, or from the page of
// the payment provider.

import { get, post } from "../api.js";
import { lostChannels } from "../more/steps.js";
import { bdi, button, fill, h } from "../ui/dom.js";
import { day } from "../ui/time.js";
import { ARRIVALS } from "../words/arrivals.js";
import { forgetInvitation, invitation } from "./invitation.js";
import { emit, live, loadServers, on, show } from "./live.js";
import { keepReadiness, setUpFacts } from "./readiness.js";
import { wokenPill } from "./woken.js";

/** @typedef {Extract<Relay["ServerMessage"], { type: "devicePaired" }>} Pairing */

/**
 * All that a page does for those who arrive, once the servers are known.
 * @param {import("./types.js").Parts} parts @param {Pairing[]} pairings that came already
 */
export function arrive({ notices, siren, addToBar }, pairings) {
  addToBar(wokenPill(siren));
  followChannels(notices);
  followPairings(notices, pairings);
  keepReadiness();
  greet(notices);
  followAlarms();
  checkPushes(notices);
}

/** Shows the place that an alarm's link names, now, and whenever a notification is clicked while this page is open. */
function followAlarms() {
  showPlace(location.hash);
  addEventListener("hashchange", () => showPlace(location.hash));
  navigator.serviceWorker?.addEventListener("message", async ({ data }) => {
    if (data?.type === "show") showPlace(data.place);
    if (data?.type === "renewed") (await import("../push.js")).renewed(data.endpoint);
  });
}

/** @param {string} hash `#server=ID&x=METRES&y=METRES`, without a place if it is not known */
function showPlace(hash) {
  const place = new URLSearchParams(hash.slice(1));
  const server = place.get("server") ?? "";
  if (!live.servers.has(server)) return;
  // A page that is loaded again shows its own place.
  if (location.hash === hash) history.replaceState(null, "", location.pathname + location.search);
  show(server);
  const [x, y] = ["x", "y"].map((name) => (place.has(name) ? Number(place.get(name)) : Number.NaN));
  if (Number.isFinite(x) && Number.isFinite(y)) emit("flyTo", { x, y });
}

/** Says it if alarms no longer reach this browser, which was to be woken. @param {HTMLElement} notices */
async function checkPushes(notices) {
  if (!localStorage.getItem("push")) return;
  const { keepSubscribed } = await import("../push.js");
  const words = await keepSubscribed(live.me.id).catch(() => "");
  if (!words) return;
  notices.append(
    notice(
      h("span", {}, words),
      button(ARRIVALS.channels, () => emit("openTab", "more")),
    ),
  );
}

/** Says which channels no alarm is sent by, until it is again. @param {HTMLElement} notices */
function followChannels(notices) {
  /** @type {Map<string, HTMLElement>} by channel */
  const shown = new Map();
  on("readiness", () => {
    const lost = new Map(lostChannels(setUpFacts.readiness).map((channel) => [channel.id, channel]));
    for (const [id, element] of shown) {
      if (lost.has(id)) continue;
      element.remove();
      shown.delete(id);
    }
    for (const [id, { name, advice }] of lost) {
      if (shown.has(id)) continue;
      const words = h("span", {}, bdi(name), ARRIVALS.lostChannel(advice));
      const element = notice(
        words,
        button(ARRIVALS.channels, () => emit("openTab", "more")),
      );
      shown.set(id, element);
      notices.append(element);
    }
  });
}

/**
 * Names each device that is paired, now or since the last visit, until it is closed: it may be one that the user knows
 * nothing of.
 * @param {HTMLElement} notices @param {Pairing[]} pairings that came already
 */
function followPairings(notices, pairings) {
  const shown = new Set();
  /**
   * @param {{ id: string, label?: string | null, serverId?: string | null }} device
   * @param {string} words
   */
  const announce = ({ id, label, serverId }, words) => {
    if (shown.has(id)) return;
    shown.add(id);
    const name = label || (serverId ? ARRIVALS.overlay : ARRIVALS.helper);
    const element = notice(
      h("span", {}, bdi(name), words),
      button(ARRIVALS.access, () => emit("openTab", "more")),
    );
    // One that was removed meanwhile is not there.
    element.lastElementChild?.addEventListener("click", () => post(`/pairing/device/${id}/seen`).catch(() => {}));
    notices.append(element);
  };
  const say = (/** @type {Pairing} */ { device }) => announce(device, ARRIVALS.paired(device.network));
  pairings.forEach(say);
  on("message", (/** @type {Relay["ServerMessage"]} */ message) => message.type === "devicePaired" && say(message));
  on("readiness", () => {
    for (const device of setUpFacts.unseen) announce(device, ARRIVALS.pairedOn(day(device.createdAt)));
  });
}

/** Shows what there is to say to someone who has just arrived. @param {HTMLElement} notices */
async function greet(notices) {
  const billing = new URLSearchParams(location.search).get("billing");
  if (billing) {
    history.replaceState(null, "", location.pathname);
    const words = ARRIVALS.billing[billing] ?? ARRIVALS.billing.portal;
    notices.append(
      notice(
        h("span", {}, words),
        button(ARRIVALS.plan, () => emit("openTab", "more")),
      ),
    );
  }
  if (invitation() !== null) await invite(notices);
}

/** @param {HTMLElement} notices */
async function invite(notices) {
  const token = invitation() ?? "";
  const words = h("span", {});
  const accept = button(ARRIVALS.accept, accepted, { kind: "primary" });
  const element = notice(words, accept);
  notices.append(element);
  try {
    const { serverName, owner } = await get(`/guest-invites/preview?token=${encodeURIComponent(token)}`);
    fill(words, bdi(owner.displayName), ` ${ARRIVALS.invites} `, bdi(serverName), ".");
  } catch (problem) {
    forgetInvitation();
    fill(words, problem.message);
    accept.remove();
  }

  async function accepted() {
    try {
      const { serverId } = await post("/guest-invites/accept", { token });
      forgetInvitation();
      element.remove();
      await loadServers();
      show(serverId);
    } catch (problem) {
      fill(words, problem.message);
    }
  }
}

/** @param {...import("../ui/dom.js").Content} content */
function notice(...content) {
  const element = h(
    "div",
    { class: "notice", role: "status" },
    content,
    button(ARRIVALS.close, () => element.remove()),
  );
  return element;
}
