// Fingers, mouse, wheel and keys that move the view: drag, pinch, wheel, double click, arrows, `+`, `-`, `0`.

/** Pixels by which a finger may slip and still tap. */
const SLIP = 6;
const KEY_STEP = 80;

/**
 * @param {HTMLElement} element @param {import("./view.js").View} view
 * @param {{ moved: () => void, tapped: (left: number, top: number) => void, pointed: (left: number, top: number) => void,
 *   held: () => void }} handlers `moved`: the view is another one; `held`: someone moves it, and following ends
 */
export function listen(element, view, handlers) {
  /** @type {Map<number, { left: number, top: number }>} */
  const fingers = new Map();
  let travelled = 0;
  let spread = 0;

  /** @param {MouseEvent} event */
  const at = (event) => {
    const box = element.getBoundingClientRect();
    return { left: event.clientX - box.left, top: event.clientY - box.top };
  };
  const distance = () => {
    const [one, two] = [...fingers.values()];
    return Math.hypot(one.left - two.left, one.top - two.top);
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    if (fingers.size === 1) travelled = 0;
    if (fingers.size === 2) spread = distance();
  });
  element.addEventListener("pointermove", (event) => {
    const place = at(event);
    const before = fingers.get(event.pointerId);
    if (!before) return handlers.pointed(place.left, place.top);
    fingers.set(event.pointerId, place);
    travelled += Math.hypot(place.left - before.left, place.top - before.top);
    if (travelled < SLIP && fingers.size === 1) return;
    element.classList.add("is-held");
    handlers.held();
    if (fingers.size === 1) view.pan(place.left - before.left, place.top - before.top);
    if (fingers.size === 2) {
      const [one, two] = [...fingers.values()];
      view.pan((place.left - before.left) / 2, (place.top - before.top) / 2);
      const now = distance();
      if (spread > 0) view.zoomAt(now / spread, (one.left + two.left) / 2, (one.top + two.top) / 2);
      spread = now;
    }
    handlers.moved();
  });
  /** @param {PointerEvent} event */
  const lift = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    element.classList.remove("is-held");
    const place = at(event);
    if (event.type === "pointerup" && fingers.size === 0 && travelled < SLIP) handlers.tapped(place.left, place.top);
  };
  element.addEventListener("pointerup", lift);
  element.addEventListener("pointercancel", lift);
  element.addEventListener("dblclick", (event) => zoom(2, at(event)));
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      zoom(Math.exp(-Math.max(-200, Math.min(200, event.deltaY * lines)) / 300), at(event));
    },
    { passive: false },
  );

  /** @param {number} factor */
  function zoom(factor, { left, top } = { left: view.width / 2, top: view.height / 2 }) {
    view.zoomAt(factor, left, top);
    handlers.moved();
  }

  /** @type {Record<string, () => void>} */
  const keys = {
    ArrowLeft: () => view.pan(KEY_STEP, 0),
    ArrowRight: () => view.pan(-KEY_STEP, 0),
    ArrowUp: () => view.pan(0, KEY_STEP),
    ArrowDown: () => view.pan(0, -KEY_STEP),
    "+": () => view.zoomAt(1.5, view.width / 2, view.height / 2),
    "=": () => view.zoomAt(1.5, view.width / 2, view.height / 2),
    "-": () => view.zoomAt(1 / 1.5, view.width / 2, view.height / 2),
    0: () => view.fit(),
  };
  element.addEventListener("keydown", (event) => {
    const move = event.altKey || event.ctrlKey || event.metaKey ? undefined : keys[event.key];
    if (!move) return;
    event.preventDefault();
    move();
    handlers.held();
    handlers.moved();
  });
  return { zoom };
}
