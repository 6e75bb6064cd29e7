// A watched price: what was expected, what is, and a form to change it.

import { patch, remove } from "../api.js";
import { currentServer } from "../dashboard/live.js";
import { attribute, bdi, button, fill, h, icon, iconButton, text } from "../ui/dom.js";
import { field, form, select, sureButton } from "../ui/form.js";
import { DEVICES } from "../words/devices.js";
import { SHOPS } from "../words/shops.js";

/** @param {Api["WatchView"]} watch and again at each `update` @param {() => Promise<void>} changed */
export function watchRow(watch, changed) {
  const { id, info } = currentServer();
  const path = /** @type {const} */ (`/intel/${id}/shops/${watch.id}`);
  const isOwner = info.role === "owner";
  const editor = h("div", { class: "wide", hidden: true });
  const edit = iconButton(SHOPS.edit(watch.itemName ?? watch.itemId), "settings", open);
  edit.hidden = !isOwner;
  const found = h("span", {});
  const wish = h("span", {});
  const element = h(
    "li",
    { class: "row" },
    icon("eye"),
    h(
      "div",
      { class: "main" },
      h("span", { class: "title" }, bdi(watch.itemName ?? watch.itemId)),
      h("div", { class: "quiet" }, found),
      h("div", { class: "quiet" }, wish),
    ),
    edit,
    editor,
  );

  /** @param {Api["WatchView"]} latest */
  element.update = (latest) => {
    watch = latest;
    const { state, price, currencyName, quantity } = watch;
    const shown = price === null ? "" : `${price} ${currencyName ?? ""} / ${quantity ?? 1}`;
    text(found, [SHOPS.state[state], shown].filter(Boolean).join(" · "));
    text(wish, SHOPS.wish(watch.direction, watch.side, watch.expectedPrice));
  };

  function open() {
    editor.hidden = !editor.hidden;
    attribute(edit, "aria-expanded", !editor.hidden);
    if (editor.hidden) return;
    const price = h("input", { inputmode: "numeric", pattern: "[0-9]{1,9}", value: watch.expectedPrice ?? "" });
    const direction = select(Object.keys(SHOPS.direction), watch.direction, (word) => SHOPS.direction[word]);
    const side = select(Object.keys(SHOPS.side), watch.side, (word) => SHOPS.side[word]);
    const change = form({
      fields: [
        field(SHOPS.expected, price, "expectedPrice"),
        field(SHOPS.when, direction, "direction"),
        field(SHOPS.of, side, "side"),
      ],
      submit: DEVICES.save,
      send: () => {
        const expectedPrice = price.value.trim() === "" ? null : Number(price.value);
        return patch(path, { expectedPrice, direction: direction.value, side: side.value });
      },
      done: () => {
        open();
        changed();
      },
    });
    const gone = sureButton(SHOPS.unwatch, DEVICES.sure, () => remove(path).then(changed));
    const close = button(DEVICES.close, open);
    fill(editor, change, h("div", { class: "form" }, h("div", { class: "actions" }, gone, close)));
    price.focus();
  }
  return element;
}
