// Texts of the feed.

export const FEED = {
  title: "Feed",
  all: "All",
  /** @type {Record<string, string>} */
  groups: { raid: "Raids", world: "World", team: "Team", devices: "Devices", shops: "Shops" },
  none: "Here is what happens: raids, ships, deaths, switches, shops.",
  noneWhy: "Nothing has happened yet.",
  noneOfThese: "Nothing of this kind has happened yet.",
  /** @param {string} grid */
  place: (grid) => `Show ${grid} on the map`,
  older: "Show older ones",
};

/** The state of what was before this page was opened, while there is nothing to show. @type {Record<string, string>} */
export const PAST = {
  "": "Loading…",
  loading: "Loading…",
  failed: "It could not be loaded. It is asked for again once the connection is back.",
};
