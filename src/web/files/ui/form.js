// Forms: fields with their faults beneath, and one request at a time that can be sent again.

import { newKey, Problem } from "../api.js";
import { SHELL } from "../words/shell.js";
import { attribute, button, fill, h, icon, text, wordsOf } from "./dom.js";

/**
 * A labelled field.
 * @param {string} label @param {any} control @param {string} [path] of the value in the API, for its faults
 */
export function field(label, control, path = "") {
  const fault = h("span", { class: "fault", hidden: true });
  const element = h("label", { class: "field" }, h("span", {}, label), control, fault);
  element.path = path;
  /** @param {string} words */
  element.show = (words) => {
    fault.hidden = !words;
    if (words) fill(fault, icon("warning"), words);
    attribute(control, "aria-invalid", words ? "true" : null);
  };
  element.input = control;
  return element;
}

/** A choice among these values, and the one of now if it is another one. @param {(value: any) => string} words @param {readonly any[]} values @param {any} chosen */
export function select(values, chosen, words) {
  const all = values.includes(chosen) ? values : [chosen, ...values];
  const options = all.map((/** @type {any} */ value) =>
    h("option", { value: String(value), selected: value === chosen }, words(value)),
  );
  return h("select", {}, options);
}

/** A box to check, with its words. @param {string} words @param {boolean | null | undefined} checked */
export function checkbox(words, checked, value = "") {
  return h("label", { class: "check" }, h("input", { type: "checkbox", checked, value }), words);
}

/** @param {any} box made by `checkbox` */
export const isChecked = (box) => box.firstChild.checked;

/** The values of the boxes that are checked. @param {any[]} boxes @returns {string[]} */
export const chosen = (boxes) => boxes.filter(isChecked).map((box) => box.firstChild.value);

/**
 * A form. While it is sent, its button waits; faults of the API are shown at their fields, and the first one is focused.
 * @template Answer
 * @param {{ fields: any[], within?: any[], submit: string, send: (key: string) => Promise<Answer>,
 *   done?: (answer: Answer) => void, kind?: string }} options
 *   `within`: fields that are in those; `key` is for `Idempotency-Key`: the same one until it succeeded
 */
export function form({ fields, within = [], submit, send, done = () => {}, kind = "" }) {
  const words = h("p", { class: "fault", role: "alert" });
  const press = button(submit, null, { kind, type: "submit" });
  const element = h(
    "form",
    { class: "form", onsubmit: submitted, oninput: () => (element.edited = true) },
    fields,
    words,
    h("div", { class: "actions" }, press),
  );
  const known = [...fields, ...within].filter((one) => one.path);
  let key = newKey();

  /** @param {Event} event */
  async function submitted(event) {
    event.preventDefault();
    if (press.disabled) return;
    press.disabled = true;
    fill(words);
    for (const one of known) one.show("");
    try {
      const answer = await send(key);
      key = newKey();
      element.edited = false;
      done(answer);
    } catch (problem) {
      show(problem);
    }
    press.disabled = false;
    // A button that waits has lost it.
    if (document.activeElement === document.body) press.focus();
  }

  /** @param {import("../api.js").Problem} problem */
  function show(problem) {
    const faults = problem instanceof Problem ? problem.errors : [];
    const shown = faults.filter(({ path, message }) => {
      const owner = known.find((one) => one.path === path.replace(/\[.*/, ""));
      owner?.show(message);
      return owner;
    });
    if (shown.length > 0) known.find((one) => one.path === shown[0].path)?.input.focus();
    const others = faults.filter((fault) => !shown.includes(fault)).map(({ path, message }) => `${path}: ${message}`);
    const { message, retryAfter } = problem;
    if (shown.length === 0 || others.length > 0)
      fill(words, icon("warning"), wordsOf({ message: others.join(" ") || message, retryAfter }));
  }
  return element;
}

/** A button that asks once more before it does something that cannot be taken back. @param {string} label @param {string} question @param {() => Promise<any>} does */
export function sureButton(label, question, does) {
  const element = button(label, press, { kind: "danger" });
  let isAsked = false;
  let timer = 0;
  async function press() {
    if (!isAsked) {
      isAsked = true;
      text(/** @type {any} */ (element.lastChild), question);
      timer = window.setTimeout(reset, 5000);
      return;
    }
    clearTimeout(timer);
    element.disabled = true;
    try {
      await does();
    } finally {
      element.disabled = false;
      reset();
    }
  }
  function reset() {
    isAsked = false;
    text(/** @type {any} */ (element.lastChild), label);
  }
  return element;
}

/** A text with a button that copies it. @param {string} value @param {string} label */
export function copyable(value, label) {
  return h("div", {}, h("pre", {}, value), h("div", { class: "actions" }, copyButton(value, label)));
}

/** A button that copies a text, where the browser lets it: not on pages of http. @param {string} value @param {string} label */
export function copyButton(value, label) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      throw Object.assign(new Error(SHELL.notCopied), { code: "not_copied" });
    }
    text(/** @type {any} */ (press.lastChild), SHELL.copied);
  };
  const press = button(label, copy, { name: "copy" });
  return press;
}
