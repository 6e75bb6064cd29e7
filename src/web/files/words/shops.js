// Texts of shops.

export const SHOPS = {
  title: "Shops",
  unnamed: "Shop",
  /** @param {number} quantity @param {number} cost @param {string} currency */
  price: (quantity, cost, currency) => `${quantity} for ${cost} ${currency}`,
  showOnMap: "Show on map",
  search: "Find an item or a shop",
  /** @param {number} offers @param {number} shops */
  count: (offers, shops) => `${offers} offers in ${shops} shops`,
  none: "Here is all that shops on the map sell.",
  noneWhy: "There are none, or the map has not come yet.",
  noMatch: "No shop sells this now.",
  off: "This server no longer reports shops, so none can be shown.",
  /** @param {number} count */
  stock: (count) => (count > 0 ? `${count} left` : "sold out"),
  chart: "Prices",
  noChart: "The price has not changed since it is known.",
  watch: "Watch",
  watches: "Watched prices",
  unwatch: "Stop watching",
  /** @param {string} item */
  edit: (item) => `Change the watch of ${item}`,
  expected: "Expected price of one purchase (empty: the first that is seen)",
  when: "There is news when the price",
  of: "In shops that",
  /** @type {Record<string, string>} */
  direction: { changes: "changes", atMost: "is at most that", atLeast: "is at least that" },
  /** @type {Record<string, string>} */
  side: { sells: "sell the item", buys: "buy the item" },
  /** @param {string} direction @param {string} side @param {number | null | undefined} price */
  wish: (direction, side, price) =>
    `${side === "buys" ? "bought by shops" : "sold by shops"}, ${
      direction === "changes"
        ? `news when it changes${price === null ? "" : ` from ${price}`}`
        : `news at ${direction === "atMost" ? "most" : "least"} ${price ?? "the first price"}`
    }`,
  state: {
    ok: "as expected",
    changed: "the price changed",
    undercut: "another shop is cheaper",
    missing: "not sold now",
    returned: "sold again",
  },
  suspicious: "suspicious",
  /** @param {string} age */
  asOf: (age) => `Watches and suspicious offers were checked ${age}.`,
  /** @param {string} price */
  each: (price) => `${price} each`,
  blueprint: "blueprint",
  worn: "worn",
  /** @param {string} item @param {string} low @param {string} high */
  chartOf: (item, low, high) => `Price of ${item} over time, from ${low} to ${high}`,
};
