// Access to this account: sign-ins, helper programs, API tokens.

import { get, post, remove } from "../api.js";
import { bdi, button, empty, h, icon } from "../ui/dom.js";
import { checkbox, chosen, copyable, field, form, sureButton } from "../ui/form.js";
import { ago, day } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";
import { COMMON } from "../words/common.js";

/** A row of a list, with what can be done with it. @param {string} shape @param {import("../ui/dom.js").Content} title @param {import("../ui/dom.js").Content[]} facts @param {import("../ui/dom.js").Content} action */
export function accessRow(shape, title, facts, action) {
  return h(
    "li",
    { class: "row" },
    icon(shape),
    h(
      "div",
      { class: "main" },
      h("span", { class: "title" }, title),
      h("div", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
    ),
    action || h("span", {}),
  );
}

/** @param {string | null | undefined} when */
const seen = (when) => (when ? ACCOUNT.seen(ago(when)) : ACCOUNT.never);

/** @param {() => void} reload */
export async function sessionsSection(reload) {
  const { sessions } = await get("/me/sessions?limit=100");
  const rows = sessions.map(({ id, createdAt, lastSeenAt, current }) => {
    const end = !current && sureButton(ACCOUNT.end, ACCOUNT.sure, () => remove(`/me/sessions/${id}`).then(reload));
    return accessRow(
      "key",
      current ? ACCOUNT.current : ACCOUNT.since(day(createdAt)),
      [current && ACCOUNT.since(day(createdAt)), seen(lastSeenAt)],
      end,
    );
  });
  const endOthers =
    sessions.length > 1 && sureButton(ACCOUNT.endOthers, ACCOUNT.sure, () => remove("/me/sessions").then(reload));
  const endAll = sureButton(ACCOUNT.endAll, ACCOUNT.sure, () => remove("/me/sessions?devices=true").then(reload));
  return [h("ul", { class: "rows" }, rows), h("div", { class: "actions" }, endOthers, endAll)];
}

/** @param {() => void} reload */
export async function helpersSection(reload) {
  const { devices } = await get("/pairing/device?limit=100");
  const helpers = devices.filter(({ scope }) => scope === "helper");
  if (helpers.length === 0) return empty(ACCOUNT.noHelper, ACCOUNT.noHelperWhy);
  return h(
    "ul",
    { class: "rows" },
    helpers.map(({ id, label, createdAt, lastUsedAt }) =>
      accessRow(
        "radio",
        bdi(label || COMMON.helper),
        [ACCOUNT.since(day(createdAt)), seen(lastUsedAt)],
        sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(`/pairing/device/${id}`).then(reload)),
      ),
    ),
  );
}

/** @param {() => void} reload */
export async function tokensSection(reload) {
  const { tokens } = await get("/me/tokens?limit=100");
  const made = h("div", {});
  const label = h("input", { required: true, maxlength: "60" });
  const boxes = Object.entries(ACCOUNT.scope).map(([scope, words]) => checkbox(words, scope === "read", scope));
  const rows = tokens.map(({ id, label, scopes, lastUsedAt }) =>
    accessRow(
      "key",
      bdi(label),
      [scopes.map((scope) => ACCOUNT.scope[scope]).join(", "), seen(lastUsedAt)],
      sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(`/me/tokens/${id}`).then(reload)),
    ),
  );
  const make = form({
    fields: [field(ACCOUNT.label, label, "label"), h("div", {}, h("span", { class: "quiet" }, ACCOUNT.scopes), boxes)],
    submit: ACCOUNT.makeToken,
    send: () =>
      post("/me/tokens", {
        label: label.value.trim(),
        scopes: /** @type {Api["CreateApiToken"]["scopes"]} */ (chosen(boxes)),
      }),
    done: ({ token }) =>
      made.replaceChildren(
        h(
          "div",
          { class: "form" },
          h("p", {}, ACCOUNT.tokenOnce),
          copyable(token, ACCOUNT.copy),
          button(COMMON.done, reload),
        ),
      ),
  });
  return [tokens.length === 0 ? empty(ACCOUNT.noTokens, "") : h("ul", { class: "rows" }, rows), made, make];
}
