// The credential with which the game's pushes are received: how it is, until when, and how it is renewed.

import { get, remove } from "../api.js";
import { live } from "../dashboard/live.js";
import { button, fill, h } from "../ui/dom.js";
import { sureButton } from "../ui/form.js";
import { day } from "../ui/time.js";
import { ACCOUNT } from "../words/account.js";
import { CREDENTIAL } from "../words/registration.js";
import { registrationBlock } from "./registration.js";
import { credentialNote } from "./steps.js";

/** @param {() => void} reload */
export async function pushesSection(reload) {
  const credential = await get("/credentials/push");
  const { state, expiresAt, registration } = credential;
  const note = credentialNote(credential);
  const place = h("div", {});
  const again = button(
    state === "missing" ? CREDENTIAL.begin : CREDENTIAL.again,
    () => fill(place, registrationBlock()),
    { name: "key" },
  );
  const isBusy = registration && registration.endsAt === null;
  if (isBusy) fill(place, registrationBlock(registration.id));
  return [
    h("p", {}, CREDENTIAL.states[state] ?? state),
    note && h("p", { class: "pill is-stale" }, h("span", { class: "dot" }), note),
    expiresAt &&
      h("p", { class: "quiet" }, (registration?.renew ? CREDENTIAL.renews : CREDENTIAL.until)(day(expiresAt))),
    !live.config.features.registrations && h("p", { class: "quiet" }, CREDENTIAL.disabled),
    h(
      "div",
      { class: "actions" },
      live.config.features.registrations && !isBusy && note !== CREDENTIAL.operator && again,
      state !== "missing" &&
        sureButton(CREDENTIAL.remove, ACCOUNT.sure, () => remove("/credentials/push").then(reload)),
    ),
    registration && !registration.renew && expiresAt && h("p", { class: "quiet" }, CREDENTIAL.removes(day(expiresAt))),
    place,
  ];
}
