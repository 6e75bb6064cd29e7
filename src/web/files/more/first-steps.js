// No server yet: the set-up takes the whole page, until there is one.

import { live, on } from "../dashboard/live.js";
import { h } from "../ui/dom.js";
import { SET_UP } from "../words/set-up.js";
import { pairByHand } from "./pair-by-hand.js";
import { setUpList } from "./set-up.js";

/** @param {any} parts of the shell */
export function firstSteps(parts) {
  const sheet = h(
    "div",
    { class: "sheet is-wide" },
    h("h2", {}, SET_UP.welcome),
    h("p", {}, SET_UP.welcomeWhy),
    setUpList(parts),
    h("details", {}, h("summary", {}, SET_UP.byHand), pairByHand()),
  );
  const element = h("div", { class: "center map-cover" }, sheet);
  parts.map.element.append(element);
  const shell = /** @type {Element} */ (parts.map.element.closest(".shell"));
  shell.classList.add("is-empty");
  on("servers", () => {
    if (live.servers.size === 0) return;
    element.remove();
    shell.classList.remove("is-empty");
  });
}
