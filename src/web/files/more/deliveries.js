// The messages about the newest alarm of the server that is shown: by which channel, how far each came, and how fast.

import { get, post } from "../api.js";
import { currentServer, live } from "../dashboard/live.js";
import { sentence } from "../raid.js";
import { bdi, button, clean, empty, fill, h, icon } from "../ui/dom.js";
import { ago, now, until } from "../ui/time.js";
import { DELIVERIES } from "../words/alarm-rules.js";
import { accessRow } from "./access.js";

/** Milliseconds between two looks while the alarm may still be sent. */
const LOOK_EVERY = 3000;
/** Milliseconds for which an alarm that is quiet is still sent by most rules. */
const SENT_FOR = 15 * 60_000;

export function lastAlarm() {
  const { id, info } = currentServer();
  const path = /** @type {const} */ (`/paired-servers/${id}`);
  const title = DELIVERIES.title(clean(info.name));
  const shown = h("div", {}, h("p", { class: "quiet" }, DELIVERIES.loading));
  const fault = h("p", { class: "fault", role: "alert" });
  const drill = button(DELIVERIES.drill, start, { name: "siren" });
  const element = h(
    "section",
    { class: "form", "aria-label": title },
    h("h3", {}, title),
    shown,
    fault,
    info.role === "owner" && h("div", { class: "actions" }, drill),
  );
  let timer = 0;

  /** Shows the newest alarm, and again while something may change. */
  async function look() {
    clearTimeout(timer);
    const [alarm] = (await get(`${path}/alarms?limit=1`)).alarms;
    fill(fault);
    if (!alarm) return fill(shown, empty(info.role === "owner" ? DELIVERIES.none : DELIVERIES.noneOfGuest, ""));
    const messages = await get(`${path}/alarms/${alarm.incident}/deliveries`);
    const goesOn = !alarm.acks[live.me.id] && now() - Date.parse(alarm.lastAt) < SENT_FOR;
    fill(shown, summary(alarm, messages, goesOn));
    if (goesOn) wait(LOOK_EVERY);
  }

  /** @param {number} milliseconds */
  function wait(milliseconds) {
    timer = window.setTimeout(lookAgain, milliseconds);
  }

  /** A section that was loaded again looks no longer; one that is not seen waits. */
  function lookAgain() {
    if (!element.parentElement) return;
    const isSeen = element.isConnected && !document.hidden && element.closest("details")?.open;
    if (isSeen) look().catch(failed);
    else wait(LOOK_EVERY);
  }

  /** @param {import("../api.js").Problem} problem */
  function failed(problem) {
    fill(fault, icon("warning"), problem.message);
    // An answer of the service that it is not allowed will not change.
    if (problem.status === 0 || problem.status === 429 || problem.status >= 500)
      wait(Math.max(LOOK_EVERY, (problem.retryAfter ?? 0) * 1000));
  }

  async function start() {
    drill.disabled = true;
    fill(fault);
    await post(`${path}/drill`).then(look).catch(failed);
    drill.disabled = false;
  }

  look().catch(failed);
  return element;
}

/** @param {Api["IncidentView"]} alarm @param {Api["DeliveryList"]} messages @param {boolean} goesOn */
function summary(alarm, { deliveries, teamChat }, goesOn) {
  const acknowledged = alarm.acks[live.me.id];
  // Oldest first: of each channel, the newest is left.
  const newest = new Map(deliveries.map((message) => [message.channel, message]));
  const rows = [...newest.values()].map((message) => row(message.name, message));
  if (teamChat) rows.push(row(DELIVERIES.teamChat, teamChat));
  return [
    h("p", {}, bdi(sentence(alarm, ago(alarm.lastAt)))),
    h("p", { class: "quiet" }, acknowledged ? DELIVERIES.acknowledged(ago(acknowledged)) : DELIVERIES.open),
    rows.length === 0
      ? empty(goesOn ? DELIVERIES.noMessagesYet : DELIVERIES.noMessages, "")
      : h("ul", { class: "rows" }, rows),
  ];
}

/**
 * A message; its times are from when it was due.
 * @param {string} name
 * @param {Pick<Api["DeliveryView"], "state" | "dueAt" | "endedAt"> & Partial<Pick<Api["DeliveryView"], "round" | "nextAt">>
 *   & { reason?: Api["DeliveryView"]["reason"] | Api["SpokenView"]["reason"] }} message
 */
function row(name, { state, reason, round = 0, dueAt, endedAt, nextAt = null }) {
  const took = state === "accepted" && endedAt ? DELIVERIES.after(Date.parse(endedAt) - Date.parse(dueAt)) : "";
  const left = nextAt && state === "queued" ? until(nextAt) : null;
  const facts = [
    round > 0 && DELIVERIES.round(round),
    `${DELIVERIES.state[state]} ${took}`.trim(),
    state !== "accepted" && reason && DELIVERIES.reason[reason],
    left && DELIVERIES.next(left),
  ];
  return accessRow(state === "accepted" ? "check" : state === "failed" ? "warning" : "clock", bdi(name), facts, null);
}
