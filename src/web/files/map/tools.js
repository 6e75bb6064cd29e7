// Buttons on the map: layers, zoom, the whole map, a note, a distance.

import { attribute, h, icon, iconButton, text } from "../ui/dom.js";
import { MAP } from "../words/map.js";
import { LAYERS } from "./looks.js";

/** The layers that are shown, as this browser remembers them. @returns {Set<string>} */
export function shownLayers() {
  const hidden = new Set((localStorage.getItem("hiddenLayers") ?? "").split(" "));
  return new Set(LAYERS.map(([layer]) => layer).filter((layer) => !hidden.has(layer)));
}

/**
 * The list of layers with their numbers.
 * @param {Set<string>} show edited in place @param {() => void} changed
 */
export function layerMenu(show, changed) {
  const counts = new Map();
  const rows = LAYERS.map(([layer, shape]) => {
    const count = h("span", { class: "quiet" });
    counts.set(layer, count);
    const box = h("input", {
      type: "checkbox",
      checked: show.has(layer),
      onchange: () => {
        if (box.checked) show.add(layer);
        else show.delete(layer);
        localStorage.setItem(
          "hiddenLayers",
          LAYERS.map(([name]) => name)
            .filter((name) => !show.has(name))
            .join(" "),
        );
        changed();
      },
    });
    return h("li", {}, h("label", {}, box, icon(shape), MAP.layers[layer], count));
  });
  const list = h("ul", { hidden: true, id: "layer-list" }, rows);
  const opener = h(
    "button",
    {
      type: "button",
      "aria-expanded": "false",
      "aria-controls": "layer-list",
      onclick: () => {
        list.hidden = !list.hidden;
        attribute(opener, "aria-expanded", !list.hidden);
      },
    },
    icon("layers"),
    MAP.layersButton,
  );
  const element = h("div", { class: "map-layers" }, opener, list);
  element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape" || list.hidden) return;
    list.hidden = true;
    attribute(opener, "aria-expanded", false);
    opener.focus();
  });
  /** @param {Map<string, number>} numbers */
  const count = (numbers) => {
    for (const [layer, element] of counts) text(element, numbers.get(layer) ?? "");
  };
  return { element, count };
}

/**
 * @param {{ zoom: (factor: number) => void, whole: () => void, measure: () => void, note: () => void }} does
 */
export function mapButtons({ zoom, whole, measure, note }) {
  const ruler = iconButton(MAP.measure, "ruler", measure, { "aria-pressed": "false" });
  const pin = iconButton(MAP.note, "pin", note, { "aria-pressed": "false" });
  const element = h(
    "div",
    { class: "map-tools" },
    pin,
    ruler,
    iconButton(MAP.whole, "home", whole),
    iconButton(MAP.zoomIn, "plus", () => zoom(1.6), { class: "plain is-zoom" }),
    iconButton(MAP.zoomOut, "minus", () => zoom(1 / 1.6), { class: "plain is-zoom" }),
  );
  /** Shows which tool is in use. @param {string | null} mode */
  const use = (mode) => {
    attribute(ruler, "aria-pressed", mode === "measure");
    attribute(pin, "aria-pressed", mode === "note");
  };
  return { element, use };
}
