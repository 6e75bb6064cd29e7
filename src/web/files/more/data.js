// Data of the player: to take along, and to erase.

import { get, remove } from "../api.js";
import { live } from "../dashboard/live.js";
import { button, h } from "../ui/dom.js";
import { field, form } from "../ui/form.js";
import { ACCOUNT } from "../words/account.js";

export async function dataSection() {
  const confirm = h("input", { autocomplete: "off", required: true });
  const erase = form({
    fields: [field(ACCOUNT.eraseWhy, confirm, "confirm")],
    submit: ACCOUNT.erase,
    kind: "danger",
    send: () => remove("/me", { confirm: confirm.value.trim() }),
    done: () => {
      live.relay?.stop();
      location.reload();
    },
  });
  return [h("div", { class: "actions" }, button(ACCOUNT.export, download, { name: "download" })), erase];
}

async function download() {
  const data = await get("/me/export");
  const url = URL.createObjectURL(new Blob([JSON.stringify(data, null, 2)], { type: "application/json" }));
  const link = h("a", { href: url, download: "companion-export.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
