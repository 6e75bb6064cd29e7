// Channels: how an alarm reaches a user while no dashboard is open.

import { get, post, remove } from "../api.js";
import { live } from "../dashboard/live.js";
import { bdi, button, clean, empty, fill, h } from "../ui/dom.js";
import { fold } from "../ui/fold.js";
import { copyable, field, form, sureButton } from "../ui/form.js";
import { ago } from "../ui/time.js";
import { RULES } from "../words/alarm-rules.js";
import { CHANNELS } from "../words/channels.js";
import { COMMON } from "../words/common.js";
import { accessRow } from "./access.js";
import { alarmRules } from "./alarm-rules.js";
import { templateFields } from "./channel-template.js";
import { lastAlarm } from "./deliveries.js";
import { thisDevice } from "./this-device.js";

/** The fields of each kind; `?` after those that may be empty. @type {Record<string, string[]>} */
const FIELDS = {
  ntfy: ["topic", "url?", "token?"],
  pushover: ["token", "recipient"],
  gotify: ["url", "token"],
  telegram: ["token", "recipient"],
  discord: ["url", "quietUrl?"],
  webhook: ["url"],
  teamChat: [],
};

/** @param {() => void} reload */
export async function channelsSection(reload) {
  const { channels } = await get("/channels");
  const outcome = h("p", { role: "status" });
  const rows = channels.map((channel) => channelRow(channel, outcome, reload));
  const shown = channels.length > 0 && live.current;
  return [
    await thisDevice(channels, reload),
    rows.length === 0 ? empty(CHANNELS.none, CHANNELS.noneHow) : h("ul", { class: "rows" }, rows),
    outcome,
    addForm(reload),
    shown && lastAlarm(),
    shown && fold(RULES.title(clean(shown.info.name)), "settings", () => alarmRules(channels)),
  ];
}

/** @param {Api["ChannelView"]} channel @param {any} outcome its element @param {() => void} reload */
function channelRow({ id, kind, name, host, state, advice, acceptedAt }, outcome, reload) {
  const test = button(
    CHANNELS.test,
    async () => {
      test.disabled = true;
      const words = await post(`/channels/${id}/test`).then(
        (tested) => (tested.accepted ? (kind === "teamChat" ? CHANNELS.said : CHANNELS.accepted) : tested.advice),
        (problem) => problem.message,
      );
      fill(outcome, words);
      test.disabled = false;
    },
    { name: "bell" },
  );
  const actions = h(
    "div",
    { class: "actions" },
    test,
    sureButton(CHANNELS.remove, CHANNELS.sure, () => remove(`/channels/${id}`).then(reload)),
  );
  const facts = [
    CHANNELS.kinds[kind],
    host,
    acceptedAt ? CHANNELS.lastAt(ago(acceptedAt)) : CHANNELS.never,
    CHANNELS.state[state],
    advice,
  ];
  return accessRow("bell", bdi(name), facts, actions);
}

/** @param {() => void} reload */
function addForm(reload) {
  const made = h("div", {});
  const hint = h("p", { class: "quiet" });
  const fields = h("div", { class: "fields" });
  const template = templateFields();
  const kind = h(
    "select",
    { onchange: draw },
    Object.keys(FIELDS).map((word) => h("option", { value: word }, CHANNELS.kinds[word])),
  );
  const name = h("input", { required: true, maxlength: "100" });
  /** @type {Record<string, any>} */
  let inputs = {};

  function draw() {
    inputs = {};
    fill(hint, CHANNELS.how[kind.value]);
    const shown = FIELDS[kind.value].map((/** @type {string} */ path) => {
      const key = path.replace("?", "");
      const isSecret = key === "token";
      inputs[key] = h("input", {
        required: key === path,
        type: isSecret ? "password" : "text",
        autocomplete: "off",
        maxlength: "2048",
      });
      const label =
        key === "recipient" ? CHANNELS.recipient[kind.value] : CHANNELS[/** @type {"url" | "topic" | "token"} */ (key)];
      return field(label, inputs[key], key);
    });
    fill(fields, shown);
    template.show(kind.value === "webhook");
  }
  draw();

  const add = form({
    fields: [field(CHANNELS.kind, kind, "kind"), hint, field(CHANNELS.name, name, "name"), fields, template.element],
    within: template.fields,
    submit: CHANNELS.add,
    send: (key) => {
      const given = Object.entries(inputs).map(([path, input]) => [path, input.value.trim()]);
      const body = Object.fromEntries(given.filter(([, value]) => value));
      const channel = { kind: kind.value, name: name.value.trim(), ...body, template: template.value() };
      return post("/channels", channel, { "idempotency-key": key });
    },
    done: ({ secret }) => {
      if (!secret) return reload();
      fill(made, h("p", {}, CHANNELS.secretOnce), copyable(secret, CHANNELS.copy), button(COMMON.done, reload));
    },
  });
  return [made, add];
}
