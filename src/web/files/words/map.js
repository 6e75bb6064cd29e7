// Texts of the map.

export const MAP = {
  name: "Map",
  list: "On the map",
  search: "Find on the map",
  none: "Here is all that is on the map: the team, ships, notes, devices, shops.",
  noneWhy: "There is nothing now, or the game server has not answered yet.",
  noMatch: "Nothing there has this name.",
  shop: "Shop",
  /** @type {Record<string, string>} */
  kinds: {
    cargoShip: "Cargo ship",
    patrolHelicopter: "Patrol helicopter",
    chinook: "Chinook",
    travellingVendor: "Travelling vendor",
    crate: "Crate",
    explosion: "Explosion",
    other: "Unknown",
  },
  /** @type {Record<string, string>} */
  categories: {
    raid: "Raid",
    friendly: "Friendly",
    enemy: "Enemy",
    farm: "Farm",
    stash: "Stash",
    sulfur: "Sulfur",
    warning: "Warning",
    sam: "SAM site",
    death: "Death",
  },
  /** @type {Record<string, string>} */
  layers: {
    monuments: "Monuments",
    grid: "Grid",
    shops: "Shops",
    notes: "Notes",
    deaths: "Deaths",
    devices: "Devices",
    events: "Events",
    team: "Team",
  },
  layersButton: "Layers",
  zoomIn: "Zoom in",
  zoomOut: "Zoom out",
  whole: "Show the whole map",
  measure: "Measure a distance",
  /** @type {Record<string, string>} */
  modes: {
    measure: "Choose the first place.",
    note: "Choose the place of the note.",
    place: "Choose where it stands.",
  },
  measureSecond: "Choose the second place.",
  /** @param {number} metres @param {string} seconds */
  distance: (metres, seconds) => `${Math.round(metres)} m, about ${seconds} on foot`,
  note: "Add a note",
  noteLabel: "Label",
  noteCategory: "Category",
  noteSave: "Add note",
  follow: "Follow",
  unfollow: "Stop following",
  /** @param {string} name */
  following: (name) => `Following ${name}`,
  remove: "Delete",
  cancel: "Cancel",
  close: "Close",
  /** @param {string} age */
  offline: (age) => `Offline. This is ${age} old.`,
  noOrders: "It sells nothing right now.",
  out: "sold out",
  dead: "dead",
  asleep: "offline, asleep",
  /** @param {number} quantity @param {string | number} item @param {number} cost @param {string | number} currency */
  order: (quantity, item, cost, currency) => `${quantity} ${item} for ${cost} ${currency}`,
};
