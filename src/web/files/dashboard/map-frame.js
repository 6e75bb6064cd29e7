// The place of the map in the frame. The map comes after it, so that a raid rings before there is a map; what is asked of it
// until then is done once it is there.

import { button, empty, h } from "../ui/dom.js";
import { SHELL } from "../words/shell.js";
import { on } from "./live.js";

/** @typedef {import("../map/map.js").LiveMap} LiveMap */

/** Modules of the map: two at once, because the second one leads to files that the first one does not name. */
const load = () => Promise.all([import("../map/map.js"), import("../map/painter.js")]);

/** The element of the map, and what other parts of the page ask of the map. */
export function mapFrame() {
  const element = h("main", { class: "map" }, h("h1", { class: "hidden-text" }, SHELL.product));
  const missing = h("div", { class: "center", hidden: true });
  element.append(missing);
  /** @type {Promise<LiveMap> | null} */
  let loaded = null;

  /** Does it once the map is there; without one, it says so. @param {(map: LiveMap) => void} does */
  function ask(does) {
    loaded ??= load().then(([{ LiveMap }]) => {
      missing.remove();
      return new LiveMap(element);
    });
    loaded.then(does, (error) => {
      loaded = null;
      console.warn(error);
      missing.hidden = false;
      missing.replaceChildren(
        empty(
          SHELL.failed,
          SHELL.offline,
          button(SHELL.tryAgain, () => ask(() => {})),
        ),
      );
    });
  }

  on("choosePlace", (done) => ask((map) => map.choosePlace(done)));
  on("followMember", (id) => ask((map) => map.follow(`member ${id}`)));
  ask(() => {});
  return {
    element,
    /** @param {number} x @param {number} y */
    flyTo: (x, y) => ask((map) => map.flyTo(x, y)),
    /** Chooses a thing by its id. @param {string} id */
    choose: (id) => ask((map) => map.choose(id)),
  };
}
