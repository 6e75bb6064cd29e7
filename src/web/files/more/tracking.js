// Players whose coming and going is watched.

import { get, post, remove } from "../api.js";
import { live } from "../dashboard/live.js";
import { bdi, empty, h } from "../ui/dom.js";
import { field, form, sureButton } from "../ui/form.js";
import { ago } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";
import { accessRow } from "./access.js";

export async function trackingSection(reload) {
  if (!live.config.features.playerStats) return empty(ACCOUNT.trackingOff, "");
  const { id, info } = live.current;
  const { players } = await get(`/intel/${id}/tracking?limit=100`);
  const isOwner = info.role === "owner";
  const rows = players.map(({ id: player, trackerName, tag, online, onlineSince, lastSeenAt }) => {
    const facts = [
      online
        ? `● ${ACCOUNT.online}${onlineSince ? ` ${ACCOUNT.since(ago(onlineSince))}` : ""}`
        : `✕ ${ACCOUNT.offline}, ${lastSeenAt ? ACCOUNT.lastSeen(ago(lastSeenAt)) : ACCOUNT.notSeen}`,
      tag,
    ];
    return accessRow(
      "eye",
      bdi(trackerName),
      facts,
      isOwner && sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(`/intel/${id}/tracking/${player}`).then(reload)),
    );
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
