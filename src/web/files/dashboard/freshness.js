// A line that says how old a section is, if it is.

import { h, text } from "../ui/dom.js";
import { duration, everySecond, now } from "../ui/time.js";
import { SHELL } from "../words/shell.js";
import { live, on } from "./live.js";

/** @param {string} section `team`, `mapMarkers`, `devices` or `server` */
export function staleNote(section) {
  const words = h("span", {});
  const element = h("p", { class: "pill is-stale notice", hidden: true }, h("span", { class: "dot" }), words);
  const update = () => {
    const stale = live.current?.state?.server?.stale?.[section];
    element.hidden = !stale;
    if (stale) text(words, stale.asOf ? SHELL.stale(duration(now() - Date.parse(stale.asOf))) : SHELL.staleUnknown);
  };
  on("current server", update);
  everySecond(update);
  return element;
}
