// The distance between two places.

import { duration } from "../ui/time.js";
import { MAP } from "../words/map.js";

/** Metres in a second of a running player. */
const SPEED = 5.5;

/**
 * Adds a place to those that are measured: after two, it is the first one of another distance.
 * @param {[number, number][]} places @param {number} x @param {number} y @returns {[number, number][]}
 */
export function measure(places, x, y) {
  return places.length === 1 ? [places[0], [x, y]] : [[x, y]];
}

/** @param {[number, number][]} places one or two */
export function wordsOf([first, second]) {
  if (!second) return MAP.measureSecond;
  const metres = Math.hypot(second[0] - first[0], second[1] - first[1]);
  return MAP.distance(metres, duration((metres / SPEED) * 1000));
}
