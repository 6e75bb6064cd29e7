// Rules for alarms of the server that is shown: what is sent, by which channel when, how often, and when not.

import { get, put } from "../api.js";
import { currentServer, live } from "../dashboard/live.js";
import { clean, fill, h } from "../ui/dom.js";
import { checkbox, chosen, field, form, isChecked, select } from "../ui/form.js";
import { RULES } from "../words/alarm-rules.js";
import { CHANNELS } from "../words/channels.js";
import { planOf, stepsOf } from "./alarm-steps.js";

/** @typedef {Api["ChannelView"]} Channel */
/** @typedef {Api["AlarmRules"]} Rules */

/** Seconds that are offered. */
const AFTER = [0, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600];
const REPEAT = [60, 120, 180, 300, 600, 900, 1800, 3600];
const ROUNDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
/** Hours that are offered to those who have none. */
const NIGHT = { from: "23:00", to: "07:00", raidsPierce: true };

/** @param {Channel[]} known of the user */
export async function alarmRules(known) {
  // Lines in the game are the owner's.
  const isOwner = live.current?.info.role === "owner";
  const channels = known.filter(({ kind }) => isOwner || kind !== "teamChat");
  const path = /** @type {const} */ (`/paired-servers/${currentServer().id}/alarm-rules`);
  const rules = await get(path);
  const outcome = h("p", { role: "status" });
  const enabled = checkbox(RULES.enabled, rules.enabled);
  /** @type {Set<string>} */
  const others = new Set(rules.kinds);
  /** @param {string} kind */
  const isKind = (kind) => others.delete(kind);
  const kinds = Object.entries(RULES.kind).map(([kind, words]) => checkbox(words, isKind(kind), kind));
  const order = escalation(rules, channels);
  const repeat = select(REPEAT, rules.repeatSeconds, RULES.after);
  const rounds = select(ROUNDS, rules.rounds, RULES.times);
  const quiet = quietHours(rules.quiet);
  const details = h("div", { class: "fields" });
  const draw = () => {
    details.hidden = !isChecked(enabled);
    quiet.show(!details.hidden);
  };
  enabled.firstChild.addEventListener("change", draw);
  const within = [order.field, field(RULES.repeat, repeat, "repeatSeconds"), field(RULES.rounds, rounds, "rounds")];
  fill(
    details,
    h("fieldset", {}, h("legend", { class: "quiet" }, RULES.kinds), kinds),
    h("p", { class: "quiet" }, RULES.kindsWhy),
    order.field,
    order.rows,
    within.slice(1),
    quiet.fields,
  );
  draw();

  /** Kinds that this page does not know stay as they are. */
  const chosenKinds = () => /** @type {Rules["kinds"]} */ ([...others, ...chosen(kinds)]);
  return form({
    fields: [enabled, details, outcome],
    within,
    submit: RULES.save,
    send: async () => {
      fill(outcome);
      return put(path, {
        enabled: isChecked(enabled),
        steps: isChecked(enabled) ? order.steps() : rules.steps,
        repeatSeconds: Number(repeat.value),
        rounds: Number(rounds.value),
        kinds: chosenKinds(),
        quiet: quiet.chosen(),
      });
    },
    done: () => fill(outcome, RULES.saved),
  });
}

/** Fields for the times of the channels. @param {Rules} rules @param {Channel[]} channels */
function escalation(rules, channels) {
  // Steps whose channels are all gone are none: the service goes the usual way then.
  const isOwn = rules.steps.some((step) => step.channels.some((id) => channels.some((channel) => channel.id === id)));
  const plan = planOf(isOwn ? rules : { steps: [] }, channels);
  const order = select(["usual", "own"], isOwn ? "own" : "usual", (word) => RULES.orders[word]);
  const times = channels.map(({ id, name, kind }) => {
    const choice = select([...AFTER, ""], plan.get(id) ?? "", (after) =>
      after === "" ? RULES.unused : RULES.after(after),
    );
    return { id, choice, row: field(`${clean(name)} · ${CHANNELS.kinds[kind]}`, choice) };
  });
  const rows = h(
    "div",
    { class: "fields" },
    times.map(({ row }) => row),
  );
  const unused = h("p", { class: "quiet", role: "status" });
  const draw = () => {
    rows.hidden = order.value === "usual";
    const without = channels.filter((_, place) => times[place].choice.value === "");
    unused.hidden = rows.hidden || without.length === 0;
    fill(unused, RULES.notUsed(without.map(({ name }) => clean(name)).join(", ")));
  };
  for (const choice of [order, ...times.map(({ choice }) => choice)]) choice.addEventListener("change", draw);
  draw();
  return {
    field: field(RULES.order, order, "steps"),
    rows: [rows, unused],
    steps: () => {
      if (order.value === "usual") return [];
      const used = times.filter(({ choice }) => choice.value !== "");
      if (used.length === 0) throw new Error(RULES.noneUsed);
      return stepsOf(used.map(({ id, choice }) => [id, Number(choice.value)]));
    },
  };
}

/** Fields for the quiet hours. @param {Rules["quiet"]} quiet null: there are none */
function quietHours(quiet) {
  const are = checkbox(RULES.quiet, Boolean(quiet));
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const hours = quiet ?? { ...NIGHT, timeZone: live.me.timeZone || own };
  const from = h("input", { type: "time", required: true, value: hours.from });
  const to = h("input", { type: "time", required: true, value: hours.to });
  const zone = select(Intl.supportedValuesOf("timeZone"), hours.timeZone, (name) => name.replaceAll("_", " "));
  const pierce = checkbox(RULES.pierce, hours.raidsPierce);
  const details = h(
    "div",
    { class: "fields" },
    field(RULES.from, from),
    field(RULES.to, to),
    field(RULES.zone, zone),
    pierce,
    h("p", { class: "quiet" }, RULES.pierceWhy),
  );
  /** @param {boolean} isShown */
  const show = (isShown) => {
    details.hidden = !isChecked(are);
    // A hidden field must not hinder a form.
    for (const input of [from, to]) input.disabled = details.hidden || !isShown;
  };
  are.firstChild.addEventListener("change", () => show(true));
  return {
    show,
    fields: [are, details],
    chosen: () =>
      isChecked(are) ? { from: from.value, to: to.value, timeZone: zone.value, raidsPierce: isChecked(pierce) } : null,
  };
}
