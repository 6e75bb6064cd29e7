// A small chart of a price over time, as steps.

import { label, node } from "../ui/svg.js";
import { clock } from "../ui/time.js";
import { SHOPS } from "../words/shops.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [300, 120, 44, 20, 10];

/** @param {{ at: number, each: number }[]} points at least two @param {string} item */
export function priceChart(points, item) {
  const prices = points.map(({ each }) => each);
  const [low, high] = [Math.min(...prices), Math.max(...prices)];
  const [from, to] = [points[0].at, points[points.length - 1].at];
  /** @param {number} at */
  const x = (at) => LEFT + ((at - from) / Math.max(1, to - from)) * (WIDTH - LEFT - 8);
  /** @param {number} each */
  const y = (each) =>
    high === low ? HEIGHT / 2 : HEIGHT - BOTTOM - ((each - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
  const path = points
    .map(({ at, each }, index) => (index === 0 ? `M${x(at)} ${y(each)}` : `H${x(at)}V${y(each)}`))
    .join("");
  const svg = node("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "chart",
    role: "img",
    "aria-label": SHOPS.chartOf(item, short(low), short(high)),
  });
  svg.append(
    node("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - 8}`, class: "axis" }),
    node("path", { d: path, class: "line" }),
  );
  svg.append(label(LEFT - 6, y(high) + 4, short(high), "end"));
  if (high !== low) svg.append(label(LEFT - 6, y(low) + 4, short(low), "end"));
  svg.append(
    label(LEFT, HEIGHT - 4, clock(new Date(from).toISOString()), "start"),
    label(WIDTH - 8, HEIGHT - 4, clock(new Date(to).toISOString()), "end"),
  );
  return svg;
}

/** A price with at most three digits behind the point. @param {number} price */
export function short(price) {
  return price >= 100 ? String(Math.round(price)) : String(Number(price.toPrecision(3)));
}
