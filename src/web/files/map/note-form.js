// The form of a new note: where it is was chosen on the map.

import { button, fill, h, icon } from "../ui/dom.js";
import { MAP } from "../words/map.js";
import { NOTES } from "./looks.js";

/** @param {{ save: (note: Api["CreateMapNote"]) => Promise<any>, close: () => void }} does */
export function noteForm({ save, close }) {
  const element = h("form", { class: "card", hidden: true });

  /** @param {number} x @param {number} y @param {string} grid */
  function open(x, y, grid) {
    const category = h(
      "select",
      { "aria-label": MAP.noteCategory },
      Object.keys(NOTES)
        .filter((name) => name !== "death")
        .map((name) => h("option", { value: name }, MAP.categories[name])),
    );
    const label = h("input", { maxlength: "60", "aria-label": MAP.noteLabel, placeholder: MAP.noteLabel });
    const fault = h("p", { class: "fault", role: "alert" });
    /** @param {Event} event */
    const send = async (event) => {
      event.preventDefault();
      try {
        await save({ x, y, category: category.value, ...(label.value.trim() ? { label: label.value.trim() } : {}) });
        close();
      } catch (problem) {
        fill(fault, icon("warning"), problem.message);
      }
    };
    element.onsubmit = send;
    fill(
      element,
      h("div", { class: "head" }, icon("pin"), h("h3", {}, grid ? `${MAP.note} · ${grid}` : MAP.note)),
      h("div", { class: "field" }, category),
      h("div", { class: "field" }, label),
      fault,
      h(
        "div",
        { class: "actions" },
        button(MAP.noteSave, null, { kind: "primary", type: "submit" }),
        button(MAP.cancel, close),
      ),
    );
    element.hidden = false;
    label.focus();
  }

  return { element, open, hide: () => (element.hidden = true) };
}
