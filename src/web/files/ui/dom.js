// Builds elements, without a framework: text is always text, never HTML.

import { SHAPES } from "../icons/shapes.js";
import { COMMON } from "../words/common.js";

/**
 * Content of an element: elements, texts, lists; null, undefined and false are none.
 * @typedef {Node | string | number | boolean | null | undefined | Content[]} Content
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Properties: `class`, `on…` handlers, `aria…`/`data…`/`role` and other attributes; `true` is an attribute
 * without a value, `false` and null are none. Children: elements, texts, lists; null is none.
 * @param {string} name
 * @param {Record<string, any>} [properties]
 * @param {...Content} children
 * @returns {any}
 */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) set(element, key, value);
  append(element, children);
  return element;
}

/** @param {HTMLElement} element @param {string} key @param {any} value a text, or a handler */
function set(element, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "class") element.className = value;
  else if (key === "value" && "value" in element) element.value = value;
  else element.setAttribute(key, value === true ? "" : value);
}

/** @param {Element} element @param {Content[]} children */
function append(element, children) {
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(/** @type {Node | string} */ (child));
  }
}

/** Replaces the content of an element. @param {Element} element @param {...Content} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets a text, if it is another one: what does not change is not drawn again. @param {Element} element @param {unknown} value */
export function text(element, value) {
  const wanted = String(value ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Sets an attribute, if it is another one; null takes it away. @param {Element} element @param {string} name @param {string | number | boolean | null} value */
export function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** An icon; decoration only, its meaning is in the text beside it. @param {string} name of a shape */
export const icon = (name) => drawing(SHAPES[name] ?? "");

/** An icon of a path in a square of 24, decoration only. @param {string} path */
export function drawing(path) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" })) {
    svg.setAttribute(key, value);
  }
  const element = document.createElementNS(SVG, "path");
  element.setAttribute("d", path);
  svg.append(element);
  return svg;
}

/** Text of the game, which may write in any direction. @param {unknown} value */
export function bdi(value) {
  return h("bdi", {}, clean(value));
}

/** Text of the game without characters that are invisible or turn the direction, and not longer than 200. @param {unknown} value */
export function clean(value) {
  return String(value ?? "")
    .replace(/[\u0000-\u001f\u007f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "")
    .slice(0, 200);
}

/**
 * Keeps the children of `parent` in the order of `entries`: makes those that are new, updates the others, removes what
 * is gone. Elements stay the same, and so do focus and selection within them.
 * @template T
 * @param {HTMLElement} parent
 * @param {T[]} entries
 * @param {(entry: T) => string} keyOf
 * @param {(entry: T) => any} make the element; `element.update(entry)` is called if it has it, and
 *   `element.gone()` when it is removed
 */
export function keyed(parent, entries, keyOf, make) {
  /** @type {Map<string, any>} */
  const known = new Map();
  for (const element of parent.children) known.set(/** @type {any} */ (element).key, element);
  let at = parent.firstElementChild;
  for (const entry of entries) {
    const key = keyOf(entry);
    let element = known.get(key);
    known.delete(key);
    if (!element) {
      element = make(entry);
      element.key = key;
    }
    element.update?.(entry);
    if (element === at) at = element.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of known.values()) {
    element.remove();
    element.gone?.();
  }
}

/** The words of a fault, and when to try again. @param {{ message: string, retryAfter?: number }} problem */
export const wordsOf = ({ message, retryAfter }) => message + (retryAfter ? ` ${COMMON.retryIn(retryAfter)}` : "");

/** The handler of a press: if what it does fails, that is said beside the button, which can be pressed again. @param {() => any} does */
function pressed(does) {
  /** @type {HTMLElement | null} */
  let fault = null;
  return async (/** @type {{ currentTarget: any }} */ { currentTarget }) => {
    fault?.remove();
    try {
      await does();
    } catch (problem) {
      currentTarget.disabled = false;
      fault = h("p", { class: "fault", role: "alert" }, icon("warning"), wordsOf(problem));
      (currentTarget.closest(".actions") ?? currentTarget).after(fault);
      // All but a refusal is a flaw of this page.
      if (problem.code === undefined) throw problem;
    }
  };
}

/**
 * A button with an icon and a text.
 * @param {string} label @param {(() => any) | null} onclick what fails there is said beside the button
 * @param {any} [properties] `name` of the icon, `kind` of the button
 */
export function button(label, onclick, properties = {}) {
  const { name = "", kind = "", ...others } = properties;
  return h(
    "button",
    { type: "button", class: kind, onclick: onclick && pressed(onclick), ...others },
    name && icon(name),
    label && h("span", {}, label),
  );
}

/** A button that shows an icon only; its name is for screen readers and as a hint. @param {string} label @param {string} name @param {() => any} onclick */
export function iconButton(label, name, onclick, others = {}) {
  return h(
    "button",
    { type: "button", class: "plain", "aria-label": label, title: label, onclick: pressed(onclick), ...others },
    icon(name),
  );
}

/** One sentence of what would be here, one of how it comes, and perhaps a button. @param {string} first @param {string | null | false} [second] @param {Element} [action] */
export function empty(first, second, action) {
  return h("div", { class: "empty" }, h("p", {}, first), second && h("p", { class: "quiet" }, second), action);
}
