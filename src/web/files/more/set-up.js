// The set-up list, with one thing to do for each step that is left.

import { post } from "../api.js";
import { currentServer, live, on } from "../dashboard/live.js";
import { loadReadiness, setUpFacts, steps } from "../dashboard/readiness.js";
import { button, clean, fill, h, icon, text } from "../ui/dom.js";
import { copyButton } from "../ui/form.js";
import { qrPicture } from "../ui/qr.js";
import { everySecond, until } from "../ui/time.js";
import { COMMON } from "../words/common.js";
import { PAST } from "../words/feed.js";
import { SET_UP } from "../words/set-up.js";
import { registrationBlock } from "./registration.js";

/** @param {{ siren: import("../attention.js").Siren, raids: any }} parts */
export function setUpList({ siren }) {
  const list = h("ul", { class: "steps", role: "list", "aria-label": SET_UP.title });
  const summary = h("p", { class: "quiet" });
  const done = h("details", { class: "fold", hidden: true });
  // A place of its own: the list is drawn again and again.
  const registration = h("div", {});
  const element = h(
    "section",
    { "aria-label": SET_UP.title },
    h("div", { class: "block-head" }, h("h2", {}, SET_UP.title), summary),
    list,
    registration,
    done,
  );
  /** @type {Api["IssuedCode"] | null} */
  let code = null;
  let drawn = "";
  let why = PAST.loading;

  function draw() {
    // A fact that is not known is no step that is left.
    if (!setUpFacts.isKnown) return text(summary, why);
    if (code && setUpFacts.devices.length > 0) code = null;
    const all = steps(siren.state);
    const left = all.filter(({ isDone }) => !isDone);
    const now = JSON.stringify([all, code, code && until(code.expiresAt), setUpFacts.requests]);
    if (now === drawn) return;
    drawn = now;
    fill(summary, left.length === 0 ? SET_UP.done : SET_UP.left(left.length));
    fill(list, setUpFacts.requests.filter(({ confirmed }) => !confirmed).map(request), left.map(step));
    const ready = all.filter(({ isDone }) => isDone);
    const wasOpen = done.open;
    done.hidden = ready.length === 0;
    fill(
      done,
      h("summary", {}, icon("check"), SET_UP.showDone(ready.length)),
      h("ul", { class: "steps" }, ready.map(step)),
    );
    done.open = wasOpen;
  }

  /** @param {{ name: string, isDone: boolean, state?: string }} one */
  function step({ name, isDone, state }) {
    const [title, why] = SET_UP.steps[name];
    const dot = h("span", { class: `dot${isDone ? "" : " is-stale"}` });
    const detail = isDone ? "" : name === "notifications" ? (state === "denied" ? SET_UP.denied : why) : state || why;
    return h(
      "li",
      {},
      dot,
      h(
        "div",
        { class: "words" },
        title,
        h("span", { class: "hidden-text" }, isDone ? SET_UP.isDone : SET_UP.isLeft),
        detail && h("p", { class: "quiet" }, detail),
      ),
      isDone ? h("span", {}) : action(name),
      name === "device" && code && !isDone && codeBox(),
    );
  }

  /** @param {string} name */
  function action(name) {
    /** @type {Record<string, () => any>} */
    const actions = {
      device: () =>
        h(
          "div",
          { class: "actions" },
          live.config.features.registrations && button(SET_UP.game, register, { kind: "primary" }),
          !code && button(SET_UP.getCode, getCode),
        ),
      sound: () => button(SET_UP.turnOn, () => siren.mute(false)),
      notifications: () =>
        "Notification" in window &&
        Notification.permission === "default" &&
        button(SET_UP.allow, () => Notification.requestPermission().then(draw)),
      drill: () =>
        live.current?.info.role === "owner" &&
        button(SET_UP.drill, () => post(`/paired-servers/${currentServer().id}/drill`)),
    };
    return actions[name]?.() || h("span", {});
  }

  function codeBox() {
    const left = until(code?.expiresAt ?? "");
    return h(
      "div",
      { class: "wide" },
      left
        ? [
            h("p", { class: "code" }, code?.code),
            h("p", { class: "quiet" }, SET_UP.code(left)),
            h("div", { class: "actions" }, copyButton(code?.code ?? "", SET_UP.copyCode)),
            qrPicture(code?.code ?? "", SET_UP.codePicture),
          ]
        : [h("p", { class: "quiet" }, SET_UP.codeOver), button(SET_UP.newCode, getCode)],
    );
  }

  function register() {
    fill(registration, registrationBlock());
    registration.querySelector("button")?.focus();
  }

  async function getCode() {
    code = await post("/pairing/device/code", { label: COMMON.helper }).catch(() => post("/pairing/device/code", {}));
    draw();
  }

  /** @param {Api["ConfirmationRequest"]} asked */
  function request({ id, label, network }) {
    return h(
      "li",
      {},
      h("span", { class: "dot is-stale" }),
      h("div", { class: "words" }, SET_UP.confirm(clean(label), network)),
      button(SET_UP.yes, () => post(`/pairing/device/requests/${id}`).then(loadReadiness)),
    );
  }

  on("current raids server devices readiness", draw);
  everySecond(() => element.isConnected && draw());
  draw();
  loadReadiness().catch(() => {
    why = PAST.failed;
    draw();
  });
  return element;
}
