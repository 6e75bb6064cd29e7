// Elements of small drawings.

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} name @param {Record<string, any>} attributes @returns {any} */
export function node(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/** A text; `anchor` is the end of it that is at `x`: `start`, `middle` or `end`. @param {number} x @param {number} y @param {string} words @param {string} anchor */
export function label(x, y, words, anchor) {
  const element = node("text", { x, y, "text-anchor": anchor });
  element.textContent = words;
  return element;
}
