// Looks and names of the things on the map.

import { clean } from "../ui/dom.js";
import { MAP } from "../words/map.js";

/** Colours of members, as long as the page is open. */
const COLOURS = ["#7fc8f8", "#f7b267", "#c6a6ff", "#9ee493", "#ffd6e0", "#f4f1bb", "#80ded9", "#ffb3a7"];
/** @type {Map<string, string>} */
const chosen = new Map();

/** The colour of a member. @param {string} id */
export function colourOf(id) {
  let colour = chosen.get(id);
  if (!colour) chosen.set(id, (colour = COLOURS[chosen.size % COLOURS.length]));
  return colour;
}

/** Icons of world markers that move, by kind. @type {Record<string, string>} */
export const MOVERS = { cargoShip: "ship", patrolHelicopter: "plane", chinook: "fan", travellingVendor: "bus" };
/** @type {Record<string, string>} */
export const FILLS = {
  cargoShip: "#8ec5ff",
  patrolHelicopter: "#ffb38a",
  chinook: "#d9c8ff",
  travellingVendor: "#a8e6a1",
};

/** Icons and colours of notes, by category. @type {Record<string, string[]>} */
export const NOTES = {
  raid: ["swords", "#ffb3a7"],
  friendly: ["heart", "#9ee493"],
  enemy: ["skull", "#f7b267"],
  farm: ["wheat", "#f4f1bb"],
  stash: ["box", "#d8c3a5"],
  sulfur: ["gem", "#f4e06d"],
  warning: ["warning", "#f2c14e"],
  sam: ["rocket", "#c6a6ff"],
  death: ["skull", "#d7dfda"],
};

/** Layers in the order of the list; each is drawn above those before it. */
export const LAYERS = [
  ["monuments", "factory"],
  ["grid", "map"],
  ["shops", "store"],
  ["notes", "pin"],
  ["deaths", "skull"],
  ["devices", "devices"],
  ["events", "ship"],
  ["team", "team"],
];

/**
 * @typedef {{ layer: string, id: string, x: number, y: number, name: string } & (
 *   { kind: "member", entry: Relay["Member"], heading?: number } | { kind: "note", entry: Relay["MapNote"] } |
 *   { kind: "device", entry: Relay["Device"] } | { kind: "shop" | Relay["MarkerKind"], entry: Relay["Marker"] })} Thing
 */

/**
 * Everything that is on the map of a state, by the layers.
 * @param {Relay["StateDocument"]} state @returns {Thing[]}
 */
export function thingsOf(state) {
  /** @type {Thing[]} */
  const things = [];
  /**
   * @param {string} layer @param {Thing["kind"]} kind @param {string} id @param {Thing["entry"]} entry
   * @param {string} name
   */
  const add = (layer, kind, id, entry, name) => {
    const { x, y } = entry;
    if (x === null || y === null) return;
    things.push(/** @type {any} */ ({ layer, kind, id: `${kind} ${id}`, x, y, name: clean(name), entry }));
  };
  for (const [id, marker] of Object.entries(state.mapMarkers ?? {})) {
    if (marker.kind === "vendingMachine") add("shops", "shop", id, marker, marker.name || MAP.shop);
    else if (marker.kind !== "player" && marker.kind !== "genericRadius")
      add("events", marker.kind, id, marker, MAP.kinds[marker.kind] ?? MAP.kinds.other);
  }
  for (const [id, note] of Object.entries(state.mapNotes ?? {})) {
    const layer = note.category === "death" ? "deaths" : "notes";
    add(layer, "note", id, note, note.label || MAP.categories[note.category]);
  }
  for (const [id, device] of Object.entries(state.devices ?? {}))
    add("devices", "device", id, device, device.label || device.name);
  for (const [id, member] of Object.entries(state.team?.members ?? {})) add("team", "member", id, member, member.name);
  return things;
}
