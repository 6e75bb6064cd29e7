// The card of what was chosen on the map.

import { bdi, button, fill, h, icon, iconButton } from "../ui/dom.js";
import { ago, until } from "../ui/time.js";
import { COMMON } from "../words/common.js";
import { MAP } from "../words/map.js";
import { MOVERS, NOTES } from "./looks.js";

/** Icons of things that do not move by themselves. @type {Record<string, string>} */
const OTHERS = { member: "user", device: "devices", crate: "crate", explosion: "flame" };

/** @typedef {import("./looks.js").Thing} Thing */

/**
 * @param {{ close: () => void, follow: (id: string | null) => void, isFollowed: (id: string) => boolean,
 *   removeNote: (id: string) => void, choose: (thing: Thing) => void }} does
 */
export function mapCard({ close, follow, isFollowed, removeNote, choose }) {
  const element = h("section", { class: "card", hidden: true, "aria-live": "off" });
  let shown = "";

  /** @param {Thing | null} thing @param {Thing[]} [crowd] things that lie on each other */
  function show(thing, crowd) {
    element.hidden = !thing && !crowd;
    if (crowd) {
      shown = "";
      const rows = crowd.map((member) =>
        h("li", {}, h("button", { type: "button", class: "plain", onclick: () => choose(member) }, bdi(member.name))),
      );
      fill(element, head(MAP.layers.shops, "store"), h("ul", {}, rows));
    } else if (thing) {
      // Drawn again only if something to read changed, so that a button under a finger stays.
      const now = JSON.stringify([thing.id, thing.entry, isFollowed(thing.id)], (key, value) =>
        key === "x" || key === "y" || key === "rotation" ? undefined : value,
      );
      if (now === shown) return;
      shown = now;
      fill(element, head(thing.name, iconOf(thing)), details(thing));
    } else shown = "";
  }

  /** @param {string} name @param {string} shape */
  function head(name, shape) {
    return h("div", { class: "head" }, icon(shape), h("h3", {}, bdi(name)), iconButton(MAP.close, "close", close));
  }

  /** @param {Thing} thing */
  function details(thing) {
    const { kind, entry, id } = thing;
    const place = h("p", { class: "quiet" }, entry.grid, extra(thing));
    const actions = [];
    if (kind === "member" || MOVERS[kind]) {
      const followed = isFollowed(id);
      actions.push(
        button(followed ? MAP.unfollow : MAP.follow, () => follow(followed ? null : id), { name: "target" }),
      );
    }
    if (kind === "note" && entry.source === "user") {
      actions.push(button(MAP.remove, () => removeNote(id.slice(5)), { name: "trash" }));
    }
    const orders = kind === "shop" ? orderList(entry.sellOrders ?? []) : null;
    return [place, orders, actions.length > 0 && h("div", { class: "actions" }, actions)];
  }

  return { element, show };
}

/** @param {Thing} thing */
function iconOf({ kind, entry }) {
  if (kind === "shop") return "store";
  if (kind === "note") return NOTES[entry.category]?.[0] ?? "pin";
  return MOVERS[kind] ?? OTHERS[kind] ?? "pin";
}

/** @param {Thing} thing */
function extra({ kind, entry }) {
  if (kind === "member")
    return entry.alive
      ? !entry.online && ` · ${MAP.asleep}`
      : ` · ${MAP.dead} ${entry.diedAt ? ago(entry.diedAt) : ""}`;
  if (kind !== "note") return "";
  const left = entry.expiresAt ? until(entry.expiresAt) : null;
  return ` · ${MAP.categories[entry.category] ?? ""} · ${ago(entry.createdAt)}${left ? ` · ${COMMON.left(left)}` : ""}`;
}

/** @param {Relay["NamedSellOrder"][]} orders */
function orderList(orders) {
  if (orders.length === 0) return h("p", { class: "quiet" }, MAP.noOrders);
  const rows = orders.map((order) =>
    h(
      "li",
      {},
      itemPlace(order.itemId),
      h(
        "span",
        { class: "main" },
        MAP.order(order.quantity, order.name ?? order.itemId, order.cost, order.currencyName ?? order.currencyId),
      ),
      h("span", { class: "quiet" }, order.inStock > 0 ? `${order.inStock}×` : MAP.out),
    ),
  );
  return h("ul", {}, rows);
}

/** The icon of an item; its module comes when the first card with one is opened. @param {string} id */
function itemPlace(id) {
  const element = h("span", {});
  import("../dashboard/items.js").then(({ itemIcon }) => fill(element, itemIcon(id))).catch(() => {});
  return element;
}
