// The settings of an overlay, as they are in its address. Plain functions.

/** @typedef {{ server: string, show: string[], pos: string, scale: number, theme: string, token: string }} OverlayOptions */

export const PARTS = ["raid", "events", "team"];
export const POSITIONS = ["tl", "tr", "bl", "br"];
export const THEMES = ["outline", "plate"];

/** Keys of the state that each part needs. @type {Record<string, Relay["StateKey"][]>} */
const SECTIONS = {
  raid: ["raids", "server"],
  events: ["server", "mapMarkers", "devices", "team"],
  team: ["team", "server"],
};

/** @param {string} search `?…` @param {string} hash `#token` @returns {OverlayOptions} */
export function readOptions(search, hash) {
  const given = new URLSearchParams(search);
  /** @param {string} name @param {readonly string[]} known */
  const oneOf = (name, known) => {
    const value = given.get(name) ?? "";
    return known.includes(value) ? value : known[0];
  };
  const show = (given.get("show") ?? "raid,events").split(",").filter((part) => PARTS.includes(part));
  const scale = Number(given.get("scale") ?? 1);
  return {
    server: given.get("server") ?? "",
    show: show.length > 0 ? show : ["raid"],
    pos: oneOf("pos", POSITIONS),
    scale: scale >= 0.5 && scale <= 4 ? scale : 1,
    theme: oneOf("theme", THEMES),
    token: hash.replace(/^#/, ""),
  };
}

/** The address of an overlay. @param {string} page @param {OverlayOptions} options */
export function addressOf(page, { server, show, pos, scale, theme, token }) {
  const given = new URLSearchParams({ server, show: show.join(","), pos, scale: String(scale), theme });
  return `${page}?${given.toString().replace(/%2C/g, ",")}#${token}`;
}

/** Keys of the state that an overlay needs. @param {string[]} show */
export function sectionsOf(show) {
  return [...new Set(show.flatMap((part) => SECTIONS[part] ?? []))];
}
