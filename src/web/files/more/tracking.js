// Players whose coming and going is watched.

import { get, post, remove } from "../api.js";
import { currentServer, live } from "../dashboard/live.js";
import { attribute, bdi, clean, empty, fill, h, icon, iconButton } from "../ui/dom.js";
import { field, form, sureButton } from "../ui/form.js";
import { ago, now } from "../ui/time.js";
import { ACCOUNT, SESSIONS } from "../words/account.js";
import { accessRow } from "./access.js";
import { barsOf, DAYS, sessionChart, totalOf } from "./sessions.js";

/** @param {() => void} reload */
export async function trackingSection(reload) {
  if (!live.config.features.playerStats) return empty(ACCOUNT.trackingOff, "");
  const { id, info } = currentServer();
  const { players } = await get(`/intel/${id}/tracking?limit=100`);
  const isOwner = info.role === "owner";
  const rows = players.map(({ id: player, trackerName, tag, online, onlineSince, lastSeenAt }) => {
    const facts = [
      online
        ? `● ${ACCOUNT.online}${onlineSince ? ` ${ACCOUNT.since(ago(onlineSince))}` : ""}`
        : `✕ ${ACCOUNT.offline}, ${lastSeenAt ? ACCOUNT.lastSeen(ago(lastSeenAt)) : ACCOUNT.notSeen}`,
      tag,
    ];
    const path = /** @type {const} */ (`/intel/${id}/tracking/${player}`);
    const gone = isOwner && sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(path).then(reload));
    const { opener, detail } = sessions(path, clean(trackerName));
    const row = accessRow("eye", bdi(trackerName), facts, h("div", { class: "actions" }, opener, gone));
    row.append(detail);
    return row;
  });
  const name = h("input", { required: true, maxlength: "64" });
  const tag = h("input", { maxlength: "32" });
  const add = form({
    fields: [field(ACCOUNT.playerName, name, "trackerName"), field(ACCOUNT.tag, tag, "tag")],
    submit: ACCOUNT.track,
    send: (key) =>
      post(
        `/intel/${id}/tracking`,
        { trackerName: name.value.trim(), ...(tag.value.trim() ? { tag: tag.value.trim() } : {}) },
        { "idempotency-key": key },
      ),
    done: reload,
  });
  return [players.length === 0 ? empty(ACCOUNT.noTracking, "") : h("ul", { class: "rows" }, rows), isOwner && add];
}

/** The sessions of a player, which are loaded when they are opened. @param {`/intel/${string}/tracking/${string}`} path of the player @param {string} name */
function sessions(path, name) {
  const detail = h("div", { class: "wide", hidden: true });
  const opener = iconButton(SESSIONS.show(name), "chevron", open, { class: "plain opener", "aria-expanded": "false" });

  async function open() {
    detail.hidden = !detail.hidden;
    attribute(opener, "aria-expanded", !detail.hidden);
    if (detail.hidden) return;
    fill(detail, h("p", { class: "quiet" }, SESSIONS.loading));
    try {
      const { sessions, stale, lastSeenAt } = await get(`${path}/sessions?limit=500`);
      const until = stale && lastSeenAt ? Date.parse(lastSeenAt) : now();
      const bars = barsOf(sessions, now(), until);
      fill(
        detail,
        bars.length === 0
          ? h("p", { class: "quiet" }, SESSIONS.none(DAYS))
          : [sessionChart(bars, now(), name), h("p", { class: "quiet" }, SESSIONS.total(totalOf(bars), DAYS))],
      );
    } catch (problem) {
      fill(detail, h("p", { class: "fault" }, icon("warning"), problem.message));
    }
  }
  return { opener, detail };
}
