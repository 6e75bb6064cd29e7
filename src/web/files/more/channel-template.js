// The form of another service, in which a webhook may write: a body with placeholders, and headers.

import { h } from "../ui/dom.js";
import { field, select } from "../ui/form.js";
import { TEMPLATE } from "../words/channels.js";
import { headersOf } from "./template-headers.js";

/** The fields; `value` is the template, or undefined if the user wants none. */
export function templateFields() {
  const type = select(Object.keys(TEMPLATE.types), "", (name) => TEMPLATE.types[name]);
  /** @param {string} rows */
  const area = (rows) => h("textarea", { rows, autocomplete: "off", spellcheck: "false", maxlength: "4096" });
  const [headers, body] = [area("2"), area("5")];
  const fields = [field(TEMPLATE.headers, headers, "template.headers"), field(TEMPLATE.body, body, "template.body")];
  const rest = h("div", { class: "fields" }, fields, h("p", { class: "quiet" }, TEMPLATE.placeholders));
  const element = h("div", { class: "fields" }, field(TEMPLATE.type, type), rest);

  function draw() {
    rest.hidden = type.value === "";
    body.required = !rest.hidden && !element.hidden;
  }
  type.onchange = draw;

  return {
    element,
    fields,
    /** @param {boolean} isShown */
    show(isShown) {
      element.hidden = !isShown;
      draw();
    },
    value: () =>
      rest.hidden || element.hidden
        ? undefined
        : { contentType: type.value, headers: headersOf(headers.value), body: body.value.trim() },
  };
}
