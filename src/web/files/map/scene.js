// Parts of the map that are no things of the state: alarms, and the picture of the ground.

import { get } from "../api.js";
import { incidents, live } from "../dashboard/live.js";
import { isUnknown } from "../raid.js";

/** Alarms that go on, and those that this user has not taken note of. @param {import("../dashboard/types.js").Server | null} server */
export function alarmsOf(server) {
  const mine = incidents().filter(({ serverId }) => serverId === server?.id);
  return mine.flatMap(({ raid }) => {
    const look = { isOpen: raid.endedAt === null, isUnknown: isUnknown(raid, live.me.id) };
    const isWanted = look.isOpen || look.isUnknown;
    return isWanted && raid.x !== null && raid.y !== null ? [{ x: raid.x, y: raid.y, ...look }] : [];
  });
}

/** The picture of the ground, decoded. One is kept at a time: they are large. */
export class Picture {
  constructor() {
    /** @type {Api["MapView"] | null} the map of which it is to be */
    this.map = null;
    /** @type {ImageBitmap | null} */
    this.bitmap = null;
  }

  /** Loads it, large enough for a view of this edge in pixels of the screen, unless another one is wanted meanwhile. @param {Api["MapView"]} map @param {number} edge */
  async load(map, edge) {
    this.map = map;
    const bitmap = await bitmapOf(map, edge);
    if (this.map !== map) return bitmap?.close();
    if (!bitmap) return;
    this.bitmap?.close();
    this.bitmap = bitmap;
  }

  clear() {
    this.map = null;
    this.bitmap?.close();
    this.bitmap = null;
  }
}

/** Null if there is no picture now. @param {Api["MapView"]} map @param {number} edge */
async function bitmapOf(map, edge) {
  if (!map.image?.url) return null;
  const url = new URL(map.image.url);
  const path = url.pathname.slice((document.documentElement.dataset.base ?? "").length) + url.search;
  return get(/** @type {`/paired-servers/${string}/map/image`} */ (path + (edge > 1600 ? "" : "&size=2048")))
    .then((blob) => createImageBitmap(blob))
    .catch(() => null);
}

/** Numbers of things, by layer. @param {import("./looks.js").Thing[]} things @param {Api["MapView"] | null | undefined} map */
export function countsOf(things, map) {
  const counts = new Map([["monuments", map?.monuments?.length ?? 0]]);
  for (const { layer } of things) counts.set(layer, (counts.get(layer) ?? 0) + 1);
  return counts;
}

/** Sections of the state that the layers are of. @type {Record<string, string>} */
const SECTIONS = { team: "team", events: "mapMarkers", shops: "mapMarkers", devices: "devices" };

/** Layers whose section had no answer for too long. @param {Relay["StateDocument"] | null | undefined} state @returns {Set<string>} */
export function staleLayers(state) {
  const stale = state?.server?.stale ?? {};
  return new Set(Object.keys(SECTIONS).filter((layer) => stale[SECTIONS[layer]]));
}
