// A section that opens, loads what is in it, and can be loaded again.

import { COMMON } from "../words/common.js";
import { button, fill, h, icon } from "./dom.js";

/**
 * @param {string} title @param {string} shape of its icon
 * @param {(reload: () => void) => Promise<any>} load its content
 */
export function fold(title, shape, load) {
  const body = h("div", { class: "fold-body" });
  const element = h(
    "details",
    { class: "fold", ontoggle: () => element.open && !isEdited() && reload() },
    h("summary", {}, icon(shape), title),
    body,
  );

  /** Input that is not sent yet stays while the section is closed. */
  const isEdited = () => [...body.querySelectorAll("form")].some((form) => /** @type {any} */ (form).edited);

  async function reload() {
    if (!body.firstChild) fill(body, h("p", { class: "quiet" }, COMMON.loading));
    try {
      fill(body, await load(reload));
    } catch (problem) {
      fill(
        body,
        h("p", { class: "fault" }, icon("warning"), problem.message),
        h("div", { class: "actions" }, button(COMMON.tryAgain, reload)),
      );
    }
  }
  element.reload = () => element.open && reload();
  return element;
}
