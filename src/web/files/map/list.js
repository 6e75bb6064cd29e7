// All that is on the map as a list: the map for those who do not see it, and a search for everyone.

import { live, on } from "../dashboard/live.js";
import { bdi, empty, fill, h, icon, keyed, text } from "../ui/dom.js";
import { PAST } from "../words/feed.js";
import { MAP } from "../words/map.js";
import { LAYERS, MOVERS, NOTES, thingsOf } from "./looks.js";

const ORDER = ["team", "events", "notes", "deaths", "devices", "shops"];
/** Rows at most; a search finds the others. */
const ROWS = 60;

/** @param {{ map: { choose: (id: string) => void } }} parts */
export function listPanel({ map }) {
  const search = h("input", { type: "search", "aria-label": MAP.search, placeholder: MAP.search, oninput: update });
  const list = h("ul", { class: "rows", role: "list", "aria-label": MAP.list });
  const none = h("div", {});
  const element = h(
    "div",
    {},
    h("div", { class: "block-head" }, h("h2", {}, MAP.list)),
    h("div", { class: "say" }, search),
    list,
    none,
  );

  function update() {
    const wanted = search.value.trim().toLowerCase();
    const things = thingsOf(live.current?.state ?? {}).filter(
      ({ name, entry }) => !wanted || `${name} ${entry.grid}`.toLowerCase().includes(wanted),
    );
    things.sort((a, b) => ORDER.indexOf(a.layer) - ORDER.indexOf(b.layer) || a.name.localeCompare(b.name));
    keyed(
      list,
      things.slice(0, ROWS),
      ({ id }) => id,
      (thing) => row(thing, map),
    );
    const why = !live.current?.state ? PAST.loading : wanted ? MAP.noMatch : MAP.noneWhy;
    fill(none, things.length === 0 && empty(MAP.none, why));
  }

  on("current team mapMarkers devices mapNotes", update);
  update();
  return element;
}

/** @param {import("./looks.js").Thing} thing @param {{ choose: (id: string) => void }} map */
function row({ id, kind, layer, entry }, map) {
  const name = h("span", { class: "title" });
  const place = h("span", { class: "quiet" });
  const shape = MOVERS[kind] ?? (kind === "note" && NOTES[entry.category]?.[0]) ?? "";
  const element = h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "row plain", onclick: () => map.choose(id) },
      icon(shape || LAYERS.find(([known]) => known === layer)?.[1] || "pin"),
      name,
      place,
    ),
  );
  /** @param {import("./looks.js").Thing} thing */
  element.update = (thing) => {
    if (name.dataset.name !== thing.name) {
      name.dataset.name = thing.name;
      name.replaceChildren(bdi(thing.name));
    }
    text(place, thing.entry.grid);
  };
  return element;
}
