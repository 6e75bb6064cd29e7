// Settings of the team's chat on the server that is shown: announcements, commands, and the players who may give them.

import { get, patch } from "../api.js";
import { currentServer } from "../dashboard/live.js";
import { button, fill, h } from "../ui/dom.js";
import { checkbox, chosen, field, form, isChecked, select } from "../ui/form.js";
import { clock, until } from "../ui/time.js";
import { CHAT_SETTINGS } from "../words/chat-settings.js";

/** Every command; `/docs` has the same list. */
const COMMANDS =
  "pop time wipe cargo heli alive afk team leader upkeep decay timer timers note notes mute unmute ack help".split(" ");
const AUDIENCES = ["everyone", "users", "owner"];

/** @param {() => void} reload */
export async function chatSettings(reload) {
  const path = /** @type {const} */ (`/paired-servers/${currentServer().id}/chat-settings`);
  let settings = await get(path);
  const outcome = h("p", { role: "status" });
  /** @type {Record<string, boolean | undefined>} */
  const announcements = settings.announcements ?? {};
  const kinds = Object.entries(CHAT_SETTINGS.kinds).map(([kind, words]) => checkbox(words, announcements[kind], kind));
  /** @param {string | undefined} who */
  const audience = (who) => select(AUDIENCES, who, (one) => CHAT_SETTINGS.audience[one]);
  const [questions, devices, leader] = [settings.questions, settings.devices, settings.leader].map(audience);
  const pass = checkbox(CHAT_SETTINGS.pass, settings.passLeadership);
  const prefix = h("input", { required: true, maxlength: "2", value: settings.prefix });
  /** @type {Set<string>} */
  const others = new Set(settings.commands);
  /** @param {string} word */
  const isTaken = (word) => others.delete(word);
  const commands = COMMANDS.map((word) => checkbox(settings.prefix + word, isTaken(word), word));
  const blocked = h("textarea", { rows: "2", inputmode: "numeric", value: (settings.blocked ?? []).join("\n") });
  /** @param {any} box as of `checkbox` */
  const announced = (box) => [box.firstChild.value, isChecked(box)];
  prefix.addEventListener("input", () => {
    for (const box of commands) box.lastChild.data = prefix.value + box.firstChild.value;
  });
  /** All of it, as the page has it. */
  const edited = () => ({
    announcements: { ...settings.announcements, ...Object.fromEntries(kinds.map(announced)) },
    questions: questions.value,
    devices: devices.value,
    leader: leader.value,
    passLeadership: isChecked(pass),
    prefix: prefix.value,
    // Commands that this page does not know stay as they are.
    commands: [...others, ...chosen(commands)],
    blocked: blocked.value.split(/[\s,;]+/).filter(Boolean),
  });
  /** @type {Record<string, unknown>} */
  let before = edited();
  /** Nothing else is sent: another page may have changed it meanwhile. @param {ReturnType<typeof edited>} all */
  const changes = (all) =>
    Object.fromEntries(Object.entries(all).filter(([name, value]) => !isSame(value, before[name])));
  /** @param {string} legend @param {HTMLElement[]} boxes */
  const group = (legend, boxes) => h("fieldset", {}, h("legend", { class: "quiet" }, legend), boxes);
  return [
    h("p", { class: "quiet" }, CHAT_SETTINGS.why),
    settings.mutedUntil && until(settings.mutedUntil) !== null && muted(path, settings.mutedUntil, reload),
    form({
      fields: [
        group(CHAT_SETTINGS.announce, kinds),
        field(CHAT_SETTINGS.questions, questions, "questions"),
        field(CHAT_SETTINGS.devices, devices, "devices"),
        field(CHAT_SETTINGS.leader, leader, "leader"),
        pass,
        field(CHAT_SETTINGS.prefix, prefix, "prefix"),
        group(CHAT_SETTINGS.commands, h("div", { class: "columns" }, commands)),
        field(CHAT_SETTINGS.blocked, blocked, "blocked"),
        outcome,
      ],
      submit: CHAT_SETTINGS.save,
      send: async () => {
        fill(outcome);
        const all = edited();
        settings = await patch(path, changes(all));
        before = all;
      },
      done: () => fill(outcome, CHAT_SETTINGS.saved),
    }),
  ];
}

/** @param {unknown} one @param {unknown} other */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/**
 * @param {`/paired-servers/${string}/chat-settings`} path @param {string} mutedUntil @param {() => void} reload
 */
function muted(path, mutedUntil, reload) {
  const fault = h("span", { class: "fault" });
  const unmute = button(CHAT_SETTINGS.unmute, () =>
    patch(path, { mutedUntil: null }).then(reload, ({ message }) => fill(fault, message)),
  );
  return h(
    "div",
    { class: "form" },
    h("p", {}, CHAT_SETTINGS.muted(clock(mutedUntil))),
    fault,
    h("div", { class: "actions" }, unmute),
  );
}
