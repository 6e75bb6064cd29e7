// Pictures of players. The service fetches them, so that this page asks no other origin; a letter is there meanwhile,
// and where there is none.

import { API } from "../api.js";
import { colourOf } from "../map/looks.js";
import { clean, fill, h } from "../ui/dom.js";
import { live } from "./live.js";

/** Players without a picture, as long as the page is open: the service is not asked for them again. */
const without = new Set();

/** A round place for the picture of a player; `show(name)` fills it, with a symbol instead if there is one. */
export function avatar(id) {
  const element = h("span", { class: "avatar", "aria-hidden": "true" });
  if (id) element.style.setProperty("--member", colourOf(id));
  element.show = (name, symbol) => {
    fill(element, symbol ?? clean(name).slice(0, 1).toUpperCase());
    if (symbol || !id || !live.config.features.avatars || without.has(id)) return;
    const picture = h("img", { alt: "", width: "64", height: "64", src: `${API}/players/${id}/avatar` });
    picture.addEventListener("load", () => element.append(picture));
    picture.addEventListener("error", () => without.add(id));
  };
  return element;
}
