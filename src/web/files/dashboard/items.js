// The icon of an item: the image that the operator gave it, or a drawing of its category.

import { get } from "../api.js";
import { ANY_ITEM, ITEM_SHAPES, RESOURCE_SHAPES } from "../icons/item-shapes.js";
import { drawing, fill, h } from "../ui/dom.js";

/** The catalogue is asked for again after this, if it did not come. Milliseconds. */
const AGAIN = 60_000;

/** The catalogue by item id, asked for once. @type {Promise<Map<string, Api["ItemView"]>> | null} */
let catalogue = null;
/** @type {Map<string, Api["ItemView"]>} what came */
let known = new Map();
let askedAt = Number.NEGATIVE_INFINITY;

function load() {
  if (catalogue === null || (known.size === 0 && Date.now() - askedAt > AGAIN)) {
    askedAt = Date.now();
    catalogue = get("/items")
      .then(({ items }) => (known = new Map(items.map((item) => [item.id, item]))))
      // Without it each item has the same drawing, and its name.
      .catch(() => known);
  }
  return catalogue;
}

/** Decoration only: the name of the item is beside it. @param {string} id of the item */
export function itemIcon(id) {
  const element = h("span", { class: "item-icon", "aria-hidden": "true" });
  draw();
  if (known.size === 0) load()?.then(draw);
  return element;

  function draw() {
    const item = known.get(id);
    const { shortname = "", category = "" } = item ?? {};
    const drawn = drawing(RESOURCE_SHAPES[shortname] ?? ITEM_SHAPES[category] ?? ANY_ITEM);
    // The policy of the page admits images of this service only.
    if (!item?.iconUrl?.startsWith(`${location.origin}/`)) return fill(element, drawn);
    fill(element, h("img", { src: item.iconUrl, alt: "", loading: "lazy", onerror: () => fill(element, drawn) }));
  }
}
