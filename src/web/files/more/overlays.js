// Makes the address of an overlay, with a preview of it.

import { API, get, post, remove } from "../api.js";
import { currentServer, live } from "../dashboard/live.js";
import { addressOf, PARTS, POSITIONS, sectionsOf, THEMES } from "../overlay/options.js";
import { OverlayView } from "../overlay/view.js";
import { bdi, empty, fill, h } from "../ui/dom.js";
import { checkbox, chosen, copyable, field, form, sureButton } from "../ui/form.js";
import { ago, day } from "../ui/time.js";
import { ACCOUNT, OVERLAY } from "../words/account.js";
import { accessRow } from "./access.js";

/** The look of the overlay, for its preview. */
function loadStyle() {
  if (document.getElementById("overlay-style")) return;
  const root = document.documentElement.dataset.root ?? "";
  document.head.append(h("link", { id: "overlay-style", rel: "stylesheet", href: `${root}/style/overlay.css` }));
}

/** @param {() => void} reload */
export async function overlaySection(reload) {
  loadStyle();
  const { id } = currentServer();
  const { devices } = await get("/pairing/device?limit=100");
  const overlays = devices.filter(({ scope, serverId }) => scope === "overlay" && serverId === id);
  const boxes = PARTS.map((part) => checkbox(OVERLAY.parts[part], part !== "team", part));
  for (const box of boxes) box.addEventListener("change", () => preview());
  /** @param {readonly string[]} values @param {Record<string, string>} words */
  const choice = (values, words) =>
    h(
      "select",
      { onchange: () => preview() },
      values.map((/** @type {string} */ value) => h("option", { value }, words[value] ?? value)),
    );
  const position = choice(POSITIONS, OVERLAY.positions);
  const scale = choice(["1", "1.25", "1.5", "2", "0.75"], {});
  const theme = choice(THEMES, OVERLAY.themes);
  const screen = h("div", { class: "overlay-preview", role: "img", "aria-label": OVERLAY.preview });
  const made = h("div", {});

  const options = () => ({
    server: id,
    show: chosen(boxes),
    pos: position.value,
    scale: Number(scale.value),
    theme: theme.value,
    token: "",
  });

  /** Shows the state of now, and a raid if there is none, as one would look. */
  function preview() {
    const root = h("div", {});
    fill(screen, root);
    const chosen = options();
    const view = new OverlayView(root, { ...chosen, scale: chosen.scale * 0.42 });
    const time = new Date().toISOString();
    view.take({
      ...live.current?.state,
      server: { connection: "connected" },
      raids: { example: { grid: "H5", alarmName: OVERLAY.example, count: 3, lastAt: time } },
    });
    for (const event of (live.current?.feed ?? []).slice(0, 2).reverse()) view.add({ ...event, ts: time });
  }

  const make = form({
    fields: [
      h("div", {}, h("span", { class: "quiet" }, OVERLAY.show), boxes),
      field(OVERLAY.position, position),
      field(OVERLAY.scale, scale),
      field(OVERLAY.theme, theme),
      screen,
    ],
    submit: OVERLAY.make,
    send: async () => {
      const chosen = options();
      const { code } = await post("/pairing/device/code", {
        scope: "overlay",
        serverId: id,
        sections: sectionsOf(chosen.show),
        label: OVERLAY.label(chosen.show),
      });
      const { token, deviceId } = await post("/pairing/device/activate", { code });
      await post(`/pairing/device/${deviceId}/seen`).catch(() => {});
      return addressOf(`${API}/overlay`, { ...chosen, token });
    },
    done: (address) =>
      fill(made, h("div", { class: "form" }, h("p", {}, OVERLAY.address), copyable(address, ACCOUNT.copy))),
  });
  preview();
  const rows = overlays.map(({ id: device, label, createdAt, lastUsedAt }) =>
    accessRow(
      "monitor",
      bdi(label || OVERLAY.title),
      [ACCOUNT.since(day(createdAt)), lastUsedAt ? ACCOUNT.seen(ago(lastUsedAt)) : ACCOUNT.never],
      sureButton(ACCOUNT.remove, ACCOUNT.sure, () => remove(`/pairing/device/${device}`).then(reload)),
    ),
  );
  return [overlays.length === 0 ? empty(OVERLAY.why, "") : h("ul", { class: "rows" }, rows), make, made];
}
