// Guests of a server, and invitations of others.

import { get, post, remove } from "../api.js";
import { currentServer, loadServers } from "../dashboard/live.js";
import { bdi, button, empty, h } from "../ui/dom.js";
import { copyable, field, form, sureButton } from "../ui/form.js";
import { qrPicture } from "../ui/qr.js";
import { ago } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";
import { accessRow } from "./access.js";

/** @param {() => void} reload */
export async function guestsSection(reload) {
  const { id } = currentServer();
  const { guests } = await get(`/paired-servers/${id}/guests?limit=100`);
  const rows = guests.map((guest) => {
    const name = guest.user?.displayName ?? guest.label ?? guest.platformId ?? ACCOUNT.byLink;
    const facts = [guest.state === "guest" ? guest.since && ACCOUNT.since(ago(guest.since)) : ACCOUNT.invited];
    return accessRow(
      "user",
      bdi(name),
      facts,
      sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(`/paired-servers/${id}/guests/${guest.id}`).then(reload)),
    );
  });
  const made = h("div", {});
  const platform = h("input", { inputmode: "numeric", pattern: "[0-9]{17}", required: true });
  const byId = form({
    fields: [field(ACCOUNT.inviteId, platform, "platformId")],
    submit: ACCOUNT.invite,
    send: () => post(`/paired-servers/${id}/guests`, { platformId: platform.value.trim() }),
    done: reload,
  });
  const byLink = button(ACCOUNT.inviteLink, async () => {
    const { token, url } = await post(`/paired-servers/${id}/guests`, { link: true });
    const link = url ?? `${location.origin}${location.pathname}#invite=${token}`;
    made.replaceChildren(
      h(
        "div",
        { class: "form" },
        h("p", {}, ACCOUNT.linkOnce),
        copyable(link, ACCOUNT.copy),
        qrPicture(link, ACCOUNT.linkPicture) ?? "",
      ),
    );
  });
  return [
    guests.length === 0 ? empty(ACCOUNT.noGuests, "") : h("ul", { class: "rows" }, rows),
    h("div", { class: "actions" }, byLink),
    made,
    byId,
  ];
}

/** @param {() => void} reload */
export async function invitesSection(reload) {
  const { servers } = await get("/guest-invites?limit=100");
  if (servers.length === 0) return empty(ACCOUNT.noInvites, "");
  return h(
    "ul",
    { class: "rows" },
    servers.map(({ id, serverId, serverName, owner, state }) => {
      const isGuest = state === "guest";
      const accept = () => post("/guest-invites/accept", { id }).then(loadServers).then(reload);
      const leave = () => remove(`/guest-invites/${serverId}`).then(loadServers).then(reload);
      return accessRow(
        "heart",
        bdi(serverName),
        [ACCOUNT.from(owner.displayName), !isGuest && ACCOUNT.invited],
        h(
          "div",
          { class: "actions" },
          !isGuest && button(ACCOUNT.accept, accept),
          sureButton(ACCOUNT.leave, ACCOUNT.sure, leave),
        ),
      );
    }),
  );
}
