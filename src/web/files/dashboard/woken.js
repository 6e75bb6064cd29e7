// Would the player be woken? A word in the top bar, once that is known.

import { attribute, h, text } from "../ui/dom.js";
import { everySecond } from "../ui/time.js";
import { SHELL } from "../words/shell.js";
import { emit, on } from "./live.js";
import { setUpFacts, steps } from "./readiness.js";

/** A button that leads to the set-up. @param {import("../attention.js").Siren} siren */
export function wokenPill(siren) {
  const words = h("span", {});
  const element = h(
    "button",
    { type: "button", class: "plain pill woken", hidden: true, onclick: () => emit("openTab", "more") },
    h("span", { class: "dot" }),
    words,
  );
  const update = () => {
    const left = steps(siren.state).filter(({ isDone }) => !isDone).length;
    element.hidden = !setUpFacts.isKnown;
    attribute(element, "class", `plain pill woken is-${left === 0 ? "live" : "stale"}`);
    text(words, left === 0 ? SHELL.woken : SHELL.stepsLeft(left));
  };
  on("readiness raids", update);
  everySecond(update);
  return element;
}
