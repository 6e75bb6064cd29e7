// Everything else: set-up, server, guests, tracked players, plan, sign-ins, tokens, overlay, data.

import { API, post } from "../api.js";
import { avatar } from "../dashboard/avatar.js";
import { live, on } from "../dashboard/live.js";
import { bdi, button, fill, h } from "../ui/dom.js";
import { fold } from "../ui/fold.js";
import { ACCOUNT } from "../words/account.js";
import { CHANNELS } from "../words/channels.js";
import { CHAT_SETTINGS } from "../words/chat-settings.js";
import { CREDENTIAL } from "../words/registration.js";
import { setUpList } from "./set-up.js";

/** @param {any} parts of the shell */
export function morePanel(parts) {
  const folds = h("div", {});
  const picture = avatar(live.me.platformId);
  picture.show(live.me.displayName);
  const element = h(
    "div",
    {},
    setUpList(parts),
    folds,
    h(
      "div",
      { class: "form" },
      h(
        "div",
        { class: "account" },
        picture,
        h("p", { class: "quiet" }, ACCOUNT.signedInAs(""), bdi(live.me.displayName)),
      ),
      h(
        "div",
        { class: "actions" },
        button(ACCOUNT.signOut, signOut, { name: "log" }),
        h("a", { class: "button", href: `${API}/wiki/tree` }, ACCOUNT.wiki),
        h("a", { class: "button", href: `${API}/docs` }, ACCOUNT.docs),
      ),
    ),
  );

  /** @param {string} name @param {string} make */
  const load = (name, make) => async (/** @type {() => void} */ reload) => (await import(`./${name}.js`))[make](reload);
  // Made once: another server leaves what is typed there.
  const account = {
    invites: fold(ACCOUNT.invites, "heart", load("guests", "invitesSection")),
    plan: fold(ACCOUNT.plan, "card", load("plan", "planSection")),
    sessions: fold(ACCOUNT.sessions, "key", load("access", "sessionsSection")),
    pushes: fold(CREDENTIAL.title, "bell", load("pushes", "pushesSection")),
    devices: fold(ACCOUNT.devices, "radio", load("access", "helpersSection")),
    tokens: fold(ACCOUNT.tokens, "key", load("access", "tokensSection")),
    data: fold(ACCOUNT.data, "download", load("data", "dataSection")),
  };

  function draw() {
    const isOwner = live.current?.info.role === "owner";
    fill(folds, [
      live.current && fold(ACCOUNT.server, "settings", load("server", "serverSection")),
      isOwner && fold(ACCOUNT.guests, "team", load("guests", "guestsSection")),
      account.invites,
      live.current && fold(ACCOUNT.tracking, "eye", load("tracking", "trackingSection")),
      fold(CHANNELS.title, "bell", load("channels", "channelsSection")),
      isOwner && fold(CHAT_SETTINGS.title, "chat", load("chat-settings", "chatSettings")),
      account.plan,
      isOwner && fold(ACCOUNT.overlay, "monitor", load("overlays", "overlaySection")),
      account.sessions,
      account.pushes,
      account.devices,
      account.tokens,
      account.data,
    ]);
  }

  on("current", draw);
  draw();
  return element;
}

async function signOut() {
  live.relay?.stop();
  // On a computer of others, no alarm is to show after this.
  if (localStorage.getItem("push")) await (await import("../push.js")).unsubscribe(live.me.id).catch(() => {});
  await post("/auth/signout").catch(() => {});
  location.reload();
}
