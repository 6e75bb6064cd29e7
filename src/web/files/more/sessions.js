// When a tracked player was on the server, as bars: a line for each of the last days, from midnight to midnight.

import { label, node } from "../ui/svg.js";
import { duration } from "../ui/time.js";
import { SESSIONS } from "../words/account.js";

/** Days that are shown. */
export const DAYS = 7;
const [WIDTH, LINE, LEFT, RIGHT, BOTTOM] = [300, 15, 34, 8, 18];

/** @typedef {{ row: number, from: number, to: number, length: number }} Bar places are parts of its day, 0..1 */

/** Begin and end of a day of this browser, milliseconds. @param {number} now @param {number} back days before today */
function dayOf(now, back) {
  const [from, to] = [new Date(now), new Date(now)];
  from.setHours(0, 0, 0, 0);
  to.setHours(0, 0, 0, 0);
  from.setDate(from.getDate() - back);
  to.setDate(to.getDate() - back + 1);
  return [from.getTime(), to.getTime()];
}

/**
 * The sessions of the last days, cut at each midnight; today is the last row.
 * @param {Pick<Api["SessionView"], "from" | "to">[]} sessions one that goes on has no end
 * @param {number} now @param {number} [until] when one that goes on was last seen
 * @returns {Bar[]}
 */
export function barsOf(sessions, now, until = now) {
  const bars = [];
  for (let row = 0; row < DAYS; row++) {
    const [from, to] = dayOf(now, DAYS - 1 - row);
    for (const session of sessions) {
      const begin = Math.max(from, Date.parse(session.from));
      const end = Math.min(to, session.to ? Date.parse(session.to) : until);
      /** @param {number} at */
      const part = (at) => (at - from) / (to - from);
      if (begin < end) bars.push({ row, from: part(begin), to: part(end), length: end - begin });
    }
  }
  return bars;
}

/** The length of all together, in words. @param {Bar[]} bars */
export const totalOf = (bars) => duration(bars.reduce((sum, { length }) => sum + length, 0));

/** @param {Bar[]} bars @param {number} now @param {string} player */
export function sessionChart(bars, now, player) {
  const height = DAYS * LINE + BOTTOM;
  /** @param {number} part */
  const x = (part) => LEFT + part * (WIDTH - LEFT - RIGHT);
  const svg = node("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`,
    class: "chart",
    role: "img",
    "aria-label": SESSIONS.chartOf(player, totalOf(bars), DAYS),
  });
  for (let row = 0; row < DAYS; row++) {
    const [from] = dayOf(now, DAYS - 1 - row);
    const day = new Date(from).toLocaleDateString(undefined, { weekday: "short" });
    svg.append(
      label(LEFT - 6, row * LINE + 11, day, "end"),
      node("path", { d: `M${x(0)} ${row * LINE + 7.5}H${x(1)}`, class: "axis" }),
    );
  }
  for (const { row, from, to } of bars) {
    const width = Math.max(1, x(to) - x(from));
    svg.append(node("rect", { x: x(from), y: row * LINE + 2.5, width, height: LINE - 5, rx: 1, class: "bar" }));
  }
  for (const hour of [0, 6, 12, 18, 24]) svg.append(label(x(hour / 24), height - 4, String(hour), "middle"));
  return svg;
}
