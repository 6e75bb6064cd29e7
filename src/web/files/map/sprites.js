// Marker pictures, drawn once for each kind, colour and density of the screen.

import { SHAPES } from "../icons/shapes.js";

/** Edge of a marker, pixels of the page. */
const SPRITE = 24;
/** Steps in which a heading is drawn. */
const HEADINGS = 24;

const cache = new Map();

/** @param {number} ratio pixels of the screen for one of the page @param {number} size */
function canvas(size, ratio) {
  const element = document.createElement("canvas");
  element.width = element.height = Math.ceil(size * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d"));
  context.scale(ratio, ratio);
  return { element, context };
}

/**
 * A round marker: a white ring within a black one, so that it is seen on light and on dark ground.
 * @param {{ icon?: string, letter?: string, fill: string, ink?: string, isAway?: boolean }} look @param {number} ratio
 */
export function disc({ icon, letter, fill, ink = "#10201a", isAway = false }, ratio) {
  return cached(`disc ${icon} ${letter} ${fill} ${ink} ${isAway} ${ratio}`, () => {
    const { element, context } = canvas(SPRITE + 4, ratio);
    const middle = SPRITE / 2 + 2;
    circle(context, middle, SPRITE / 2 + 1, "#000000cc");
    circle(context, middle, SPRITE / 2 - 0.5, "#ffffff");
    circle(context, middle, SPRITE / 2 - 2, fill);
    if (icon) shape(context, icon, middle, 15, ink, 2);
    if (letter) {
      context.fillStyle = ink;
      context.font = "600 13px system-ui, 'DejaVu Sans', sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(letter, middle, middle + 0.5);
    }
    if (isAway) circle(context, middle, SPRITE / 2 - 2, "#1f282499");
    return element;
  });
}

/** A small square marker: a shop. @param {string} fill @param {string} icon @param {number} size @param {number} ratio */
export function square(fill, icon, size, ratio) {
  return cached(`square ${fill} ${icon} ${size} ${ratio}`, () => {
    const { element, context } = canvas(size + 4, ratio);
    rounded(context, 1, size + 2, 5, "#000000cc");
    rounded(context, 2, size, 4, "#ffffff");
    rounded(context, 3.5, size - 3, 3, fill);
    if (size > 14) shape(context, icon, size / 2 + 2, 12, "#ffffff", 2.2);
    return element;
  });
}

/** A marker with a shape that turns: a ship, a helicopter. @param {number} degrees clockwise from north @param {string} icon @param {string} fill @param {number} ratio */
export function mover(icon, fill, degrees, ratio) {
  const step = ((Math.round((degrees / 360) * HEADINGS) % HEADINGS) + HEADINGS) % HEADINGS;
  return cached(`mover ${icon} ${fill} ${step} ${ratio}`, () => {
    const { element, context } = canvas(44, ratio);
    context.translate(22, 22);
    context.rotate((step / HEADINGS) * 2 * Math.PI);
    context.beginPath();
    context.moveTo(0, -20);
    context.lineTo(8, -9);
    context.lineTo(-8, -9);
    context.closePath();
    context.fillStyle = "#ffffff";
    context.strokeStyle = "#000000cc";
    context.lineWidth = 2;
    context.stroke();
    context.fill();
    context.rotate(-(step / HEADINGS) * 2 * Math.PI);
    circle(context, 0, 14, "#000000cc");
    circle(context, 0, 12.5, "#ffffff");
    circle(context, 0, 11, fill);
    shape(context, icon, 0, 15, "#10201a", 2);
    return element;
  });
}

/** A number in a pill, for markers that lie on each other. @param {number} count @param {number} ratio */
export function pill(count, ratio) {
  return cached(`pill ${count} ${ratio}`, () => {
    const { element, context } = canvas(34, ratio);
    circle(context, 17, 15, "#000000cc");
    circle(context, 17, 13.5, "#ffffff");
    circle(context, 17, 12, "#3d5a80");
    context.fillStyle = "#ffffff";
    context.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(String(count), 17, 17.5);
    return element;
  });
}

/** The warning triangle of an alarm's place. @param {string} fill @param {number} ratio */
export function triangle(fill, ratio) {
  return cached(`triangle ${fill} ${ratio}`, () => {
    const { element, context } = canvas(32, ratio);
    const path = new Path2D("M16 4L29 27H3Z");
    context.lineJoin = "round";
    for (const [width, style] of /** @type {[number, string][]} */ ([
      [5, "#000000cc"],
      [2.5, "#ffffff"],
    ])) {
      context.lineWidth = width;
      context.strokeStyle = style;
      context.stroke(path);
    }
    context.fillStyle = fill;
    context.fill(path);
    context.fillStyle = "#ffffff";
    context.font = "700 15px system-ui, 'DejaVu Sans', sans-serif";
    context.textAlign = "center";
    context.fillText("!", 16, 24);
    return element;
  });
}

/** @param {string} key @param {() => HTMLCanvasElement} draw */
function cached(key, draw) {
  let element = cache.get(key);
  if (!element) {
    // Few looks exist; a screen that changes its density often makes no endless cache.
    if (cache.size > 600) cache.clear();
    cache.set(key, (element = draw()));
  }
  return element;
}

/** @param {CanvasRenderingContext2D} context @param {number} middle @param {number} radius @param {string} fill */
function circle(context, middle, radius, fill) {
  context.beginPath();
  context.arc(middle, middle, radius, 0, 2 * Math.PI);
  context.fillStyle = fill;
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {number} at @param {number} size @param {number} radius @param {string} fill */
function rounded(context, at, size, radius, fill) {
  context.beginPath();
  context.moveTo(at + radius, at);
  context.arcTo(at + size, at, at + size, at + size, radius);
  context.arcTo(at + size, at + size, at, at + size, radius);
  context.arcTo(at, at + size, at, at, radius);
  context.arcTo(at, at, at + size, at, radius);
  context.fillStyle = fill;
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {string} name @param {number} middle @param {number} size @param {string} ink @param {number} width */
function shape(context, name, middle, size, ink, width) {
  context.save();
  context.translate(middle - size / 2, middle - size / 2);
  context.scale(size / 24, size / 24);
  context.strokeStyle = ink;
  context.lineWidth = width * (20 / size);
  context.lineCap = context.lineJoin = "round";
  context.stroke(new Path2D(SHAPES[name] ?? ""));
  context.restore();
}
