// Timers that players set in the team's chat, the next one first. Times are those of the service, so that they are right
// after a lost connection, too.

import { bdi, fill, h, icon, keyed, text } from "../ui/dom.js";
import { clock, countdown, everySecond } from "../ui/time.js";
import { TIMERS } from "../words/team.js";
import { live, on } from "./live.js";

export function timersBlock() {
  const rows = h("ul", { class: "rows", "aria-label": TIMERS.title });
  const element = h("div", { hidden: true }, h("h3", { class: "group-head" }, TIMERS.title), rows);

  function update() {
    const timers = Object.entries(live.current?.state?.timers ?? {}).map(([id, timer]) => ({ ...timer, id }));
    timers.sort((a, b) => Date.parse(a.endsAt) - Date.parse(b.endsAt));
    element.hidden = timers.length === 0;
    keyed(rows, timers, ({ id }) => id, row);
  }

  on("current timers", update);
  everySecond(update);
  update();
  return element;
}

/** @param {Relay["TeamTimer"]} timer */
function row({ number, text: words, endsAt }) {
  const left = h("span", { class: "pill" });
  const title = h("span", { class: "title" });
  fill(title, words ? bdi(words) : TIMERS.nameless(number));
  const element = h(
    "li",
    { class: "row" },
    icon("clock"),
    h("div", { class: "main" }, title, h("div", { class: "quiet" }, TIMERS.facts(number, clock(endsAt)))),
    left,
  );
  /** @param {Relay["TeamTimer"]} timer */
  element.update = ({ endsAt }) => text(left, countdown(endsAt) ?? TIMERS.over);
  return element;
}
