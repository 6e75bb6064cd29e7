// Offers of the shops on a map. Plain functions.

import { SHOPS } from "../words/shops.js";

/**
 * @typedef {{ key: string, vendorId: string, shop: string, grid: string, x: number, y: number,
 *   order: Relay["NamedSellOrder"], each: number }} Offer
 */

/** Every offer of a state. @param {Relay["StateDocument"] | null | undefined} state @returns {Offer[]} */
export function offersOf(state) {
  /** @type {Offer[]} */
  const offers = [];
  for (const marker of Object.values(state?.mapMarkers ?? {})) {
    if (marker.kind !== "vendingMachine") continue;
    for (const [at, order] of (marker.sellOrders ?? []).entries()) {
      const { vendorId, name: shop, grid, x, y } = marker;
      const key = [vendorId, order.itemId, order.currencyId, order.quantity, order.itemIsBlueprint, at].join(" ");
      offers.push({
        key,
        vendorId: vendorId ?? "",
        shop: shop || SHOPS.unnamed,
        grid,
        x,
        y,
        order,
        each: order.cost / Math.max(1, order.quantity),
      });
    }
  }
  return offers;
}

/** Offers that have all words in the name of their item or shop; in stock first, then by item and price. @param {Offer[]} offers @param {string} words */
export function found(offers, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = offers.filter(({ shop, order, grid }) => {
    const text = `${order.name} ${order.shortname} ${shop} ${grid}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  /** @param {Offer} offer */
  const stock = ({ order }) => (order.inStock > 0 ? 0 : 1);
  return matches.sort(
    (a, b) => stock(a) - stock(b) || String(a.order.name).localeCompare(String(b.order.name)) || a.each - b.each,
  );
}

/**
 * Points of a chart from the entries of a history, oldest first; the price holds until the next entry.
 * @param {Pick<Api["HistoryList"]["entries"][number], "at" | "price" | "quantity">[]} entries newest first @param {number} now
 */
export function pointsOf(entries, now) {
  const points = [...entries]
    .reverse()
    .filter(({ price }) => price > 0)
    .map(({ at, price, quantity }) => ({ at: Date.parse(at), each: price / Math.max(1, quantity) }));
  const last = points.at(-1);
  return last ? [...points, { at: now, each: last.each }] : [];
}
