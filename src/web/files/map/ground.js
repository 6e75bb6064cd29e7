// Ground of the map: the picture, the grid and the names of monuments. Drawn when the view changes, not with each marker.

import { clean } from "../ui/dom.js";
import { cellOf, letters } from "./grid.js";

/**
 * @param {CanvasRenderingContext2D} context in pixels of the page
 * @param {import("./view.js").View} view
 * @param {{ map: Api["MapView"] | null, picture: ImageBitmap | null, isDark: boolean, show: Set<string>, unit: number }} scene
 */
export function drawGround(context, view, { map, picture, isDark, show, unit }) {
  context.fillStyle = map?.background ?? (isDark ? "#12303a" : "#7fa8b0");
  context.fillRect(0, 0, view.width, view.height);
  if (picture && map) drawPicture(context, view, map, picture);
  if (isDark) {
    context.fillStyle = "rgb(6 10 9 / 22%)";
    context.fillRect(0, 0, view.width, view.height);
  }
  const names = show.has("monuments") ? placedNames(context, view, map?.monuments ?? [], unit) : [];
  if (show.has("grid")) drawGrid(context, view, unit, names);
  drawNames(context, names, unit);
}

/**
 * The picture has a margin of ocean around the world: `margin` of its pixels on each side. A world without a size is shown
 * without it.
 * @param {CanvasRenderingContext2D} context @param {import("./view.js").View} view @param {Api["MapView"]} map
 * @param {ImageBitmap} picture
 */
function drawPicture(context, view, map, picture) {
  const { size } = map;
  if (!size) return;
  const width = map.image?.width ?? picture.width;
  const margin = (map.margin * size) / (width - 2 * map.margin);
  const [left, top] = view.toScreen(-margin, size + margin);
  const edge = (size + 2 * margin) * view.scale;
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "medium";
  context.drawImage(picture, left, top, edge, edge);
}

/** @typedef {{ label: string, left: number, top: number, half: number }} Label half of its width on both sides of `left` */

/** @param {CanvasRenderingContext2D} context @param {import("./view.js").View} view @param {number} unit @param {Label[]} names */
function drawGrid(context, view, unit, names) {
  const cell = cellOf(view.size);
  const count = Math.ceil(view.size / cell);
  const [left, top] = view.toScreen(0, view.size);
  const edge = view.size * view.scale;
  context.strokeStyle = "rgb(255 255 255 / 24%)";
  context.lineWidth = 1;
  context.beginPath();
  for (let index = 0; index <= count; index++) {
    const at = Math.round(Math.min(index * cell, view.size) * view.scale) + 0.5;
    context.moveTo(left + at, top);
    context.lineTo(left + at, top + edge);
    context.moveTo(left, top + at);
    context.lineTo(left + edge, top + at);
  }
  context.stroke();
  const step = cell * view.scale >= 44 * unit ? 1 : cell * view.scale >= 22 * unit ? 2 : 4;
  context.font = `600 ${11 * unit}px system-ui, 'DejaVu Sans', sans-serif`;
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillStyle = "rgb(255 255 255 / 82%)";
  context.shadowColor = "#000000";
  context.shadowBlur = 3;
  for (let column = 0; column < count; column += step) {
    for (let row = 0; row < count; row += step) {
      const [x, y] = [left + column * cell * view.scale, top + row * cell * view.scale];
      if (x < -40 || y < -20 || x > view.width || y > view.height) continue;
      const isHidden = names.some(
        ({ left, top, half }) =>
          x + 30 * unit > left - half && x < left + half && Math.abs(y + 10 * unit - top) < 14 * unit,
      );
      if (!isHidden) context.fillText(letters(column) + row, x + 4, y + 4);
    }
  }
  context.shadowBlur = 0;
}

/**
 * Places of the names of monuments, in pixels: below the middle, where shops and alarms are, and not beyond the edge. Those
 * that would lie on another are left out, until one zooms in.
 * @param {CanvasRenderingContext2D} context @param {import("./view.js").View} view
 * @param {Api["MapView"]["monuments"]} monuments @param {number} unit
 */
function placedNames(context, view, monuments, unit) {
  context.font = `600 ${12 * unit}px system-ui, 'DejaVu Sans', sans-serif`;
  /** @type {Label[]} */
  const placed = [];
  for (const { name, x, y } of monuments) {
    const [middle, height] = view.toScreen(x, y);
    if (middle < 0 || height < 0 || middle > view.width || height > view.height) continue;
    const label = clean(name);
    const half = context.measureText(label).width / 2 + 4;
    const left = view.within(middle, half);
    const top = height + 14 * unit;
    /** @param {Label} other */
    const lies = (other) => Math.abs(other.left - left) < other.half + half && Math.abs(other.top - top) < 16 * unit;
    if (!placed.some(lies)) placed.push({ label, left, top, half });
  }
  return placed;
}

/** @param {CanvasRenderingContext2D} context @param {Label[]} names @param {number} unit */
function drawNames(context, names, unit) {
  context.font = `600 ${12 * unit}px system-ui, 'DejaVu Sans', sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  for (const { label, left, top } of names) {
    context.lineWidth = 3;
    context.strokeStyle = "rgb(0 0 0 / 75%)";
    context.strokeText(label, left, top);
    context.fillStyle = "#f2ecd8";
    context.fillText(label, left, top);
  }
}
