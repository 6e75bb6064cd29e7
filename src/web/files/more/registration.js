// The service registers for the game's pushes itself: the player signs in at the game, in another tab, and brings the
// address at which that ends.

import { get, post } from "../api.js";
import { loadReadiness } from "../dashboard/readiness.js";
import { button, fill, h, icon } from "../ui/dom.js";
import { field, form } from "../ui/form.js";
import { until } from "../ui/time.js";
import { REGISTRATION } from "../words/registration.js";

/** Pause between questions about the steps that the service makes, milliseconds. */
const ASK_EVERY = 3000;

/** All of it, from the first button to the last step. @param {string} [known] id of one that was begun before */
export function registrationBlock(known = "") {
  const element = h("div", { class: "registration" });
  // Counts what was shown: an answer that comes for something older changes nothing.
  let shown = 0;

  /** @param {any[]} parts */
  function show(...parts) {
    shown += 1;
    fill(element, ...parts);
  }

  function begin() {
    // A token of the player's account is kept only if they say so.
    const renew = h("input", { type: "checkbox" });
    const start = form({
      fields: [
        h("p", {}, REGISTRATION.why),
        h("label", { class: "check" }, renew, REGISTRATION.renew),
        h("p", { class: "quiet" }, REGISTRATION.renewWhy),
      ],
      submit: REGISTRATION.begin,
      kind: "primary",
      send: () => post("/credentials/push/registrations", { renew: renew.checked }),
      done: login,
    });
    show(start);
  }

  /** @param {Api["OpenedRegistration"]} opened */
  function login({ id, loginUrl, expiresAt }) {
    const address = h("input", { required: true, autocomplete: "off", maxlength: "4096", spellcheck: "false" });
    const link = { class: "button primary", href: loginUrl, target: "_blank", rel: "noopener noreferrer" };
    const bring = form({
      fields: [field(REGISTRATION.address, address, "address")],
      submit: REGISTRATION.goOn,
      send: () => post(`/credentials/push/registrations/${id}`, { address: address.value.trim() }),
      done: watch,
    });
    show(
      h(
        "ol",
        { class: "form numbered" },
        h("li", {}, h("a", link, icon("external"), REGISTRATION.open)),
        h("li", {}, REGISTRATION.copy, " ", REGISTRATION.banned),
        h("li", {}, REGISTRATION.paste),
      ),
      bring,
      h("p", { class: "quiet form" }, REGISTRATION.closes(until(expiresAt) ?? "")),
    );
  }

  /** Shows the steps of the service until there is nothing more to wait for. @param {Api["RegistrationView"]} registration */
  function watch(registration) {
    const { id, steps, next, endsAt } = registration;
    const failed = steps.some(({ state }) => state === "failed");
    const isOver = endsAt !== null && steps.every(({ state }) => state === "done");
    show(
      h("ul", { class: "steps", "aria-label": REGISTRATION.title }, steps.map(step)),
      h("p", { class: "form", role: "status" }, next),
      failed && h("div", { class: "form" }, h("div", { class: "actions" }, button(REGISTRATION.again, begin))),
    );
    if (isOver) loadReadiness().catch(() => {});
    else {
      const place = shown;
      setTimeout(() => element.isConnected && ask(id, registration, place), ASK_EVERY);
    }
  }

  /**
   * Asks again, unless something else is shown by then.
   * @param {string} id @param {Api["RegistrationView"]} last @param {number} place
   */
  async function ask(id, last, place) {
    if (place !== shown) return;
    // One that is gone was removed, or begun again on another page.
    const answer = await get(`/credentials/push/registrations/${id}`).catch(({ status }) =>
      status === 404 ? null : last,
    );
    if (place !== shown) return;
    if (answer) watch(answer);
    else begin();
  }

  if (known) {
    get(`/credentials/push/registrations/${known}`).then(
      (registration) => (registration.steps[0].state === "waiting" ? begin() : watch(registration)),
      begin,
    );
  } else begin();
  return element;
}

/** @param {Api["RegistrationView"]["steps"][number]} made */
function step({ name, state, detail, advice }) {
  const look = { done: "", running: " is-stale", waiting: " is-stale", pending: " is-off", failed: " is-gone" }[state];
  return h(
    "li",
    {},
    h("span", { class: `dot${look}` }),
    h(
      "div",
      { class: "words" },
      REGISTRATION.steps[name] ?? name,
      h("span", { class: "quiet" }, ` · ${REGISTRATION.states[state] ?? state}`),
      detail && h("p", { class: "fault" }, icon("warning"), [detail, advice].filter(Boolean).join(" ")),
    ),
  );
}
