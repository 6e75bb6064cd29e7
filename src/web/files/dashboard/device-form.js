// Name and place of a device: the game says neither where it is nor what it is for.

import { patch, remove } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { field, form, sureButton } from "../ui/form.js";
import { DEVICES } from "../words/devices.js";
import { currentServer, emit } from "./live.js";

/** Opens or closes the form of a device. @param {string} id @param {Relay["Device"]} device @param {any} editor its element */
export function editDevice(id, device, editor) {
  editor.hidden = !editor.hidden;
  if (editor.hidden) return;
  const path = /** @type {const} */ (`/paired-servers/${currentServer().id}/devices/${id}`);
  const label = h("input", { maxlength: "60", value: device.label ?? device.name });
  const close = () => {
    editor.hidden = true;
  };
  const place = button(
    DEVICES.setPlace,
    () => emit("choosePlace", (/** @type {number} */ x, /** @type {number} */ y) => patch(path, { x, y })),
    { name: "pin" },
  );
  const rename = form({
    fields: [field(DEVICES.label, label, "label")],
    submit: DEVICES.save,
    send: () => patch(path, { label: label.value.trim() || null }),
    done: close,
  });
  const gone = sureButton(DEVICES.remove, DEVICES.sure, () => remove(path));
  fill(
    editor,
    rename,
    h("div", { class: "form" }, h("div", { class: "actions" }, place, gone, button(DEVICES.close, close))),
  );
  label.focus();
}
