// Pictures of players. The service fetches them, so that this page asks no other origin; a letter is there meanwhile,
// and where there is none.

import { API } from "../api.js";
import { colourOf } from "../map/looks.js";
import { clean, fill, h } from "../ui/dom.js";
import { everySecond } from "../ui/time.js";
import { live } from "./live.js";

/** Pauses until a picture that did not come is asked for again, doubled each time, milliseconds. */
const PAUSES = { least: 10_000, most: 60 * 60_000 };
/** @type {Map<string | null, { at: number, pause: number }>} when pictures that did not come are asked for again, by player */
const later = new Map();

/** A round place for the picture of a player; `show(name)` fills it, with a symbol instead if there is one. @param {string | null} id */
export function avatar(id) {
  const element = h("span", { class: "avatar", "aria-hidden": "true" });
  if (id) element.style.setProperty("--member", colourOf(id));
  /** @param {string} name @param {Node} [symbol] */
  element.show = (name, symbol) => {
    fill(element, symbol ?? clean(name).slice(0, 1).toUpperCase());
    element.isWanted = Boolean(!symbol && id && live.config.features.avatars);
    element.load();
  };
  element.load = () => {
    const isDue = Date.now() >= (later.get(id)?.at ?? 0);
    element.classList.toggle("is-late", element.isWanted && !isDue);
    if (!element.isWanted || !isDue) return;
    const picture = h("img", { alt: "", width: "64", height: "64", src: `${API}/players/${id}/avatar` });
    picture.addEventListener("load", () => {
      later.delete(id);
      if (element.isWanted && !element.querySelector("img")) element.append(picture);
    });
    picture.addEventListener("error", () => {
      postpone(id);
      element.classList.toggle("is-late", element.isWanted);
    });
  };
  return element;
}

/** A player may have no picture, or the service no connection. @param {string | null} id */
function postpone(id) {
  const { at, pause } = later.get(id) ?? { at: 0, pause: PAUSES.least / 2 };
  if (Date.now() < at) return;
  const longer = Math.min(PAUSES.most, 2 * pause);
  later.set(id, { at: Date.now() + longer, pause: longer });
}

everySecond(() => {
  for (const element of document.querySelectorAll(".avatar.is-late")) /** @type {any} */ (element).load();
});
