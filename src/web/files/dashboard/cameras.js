// Cameras: a picture when one looks, and again and again only as long as one keeps looking.

import { get, post } from "../api.js";
import { attribute, bdi, button, clean, fill, h, icon, iconButton, text } from "../ui/dom.js";
import { ago, now } from "../ui/time.js";
import { DEVICES } from "../words/devices.js";
import { editDevice } from "./device-form.js";
import { currentServer, live } from "./live.js";

/** Pause between pictures while one keeps looking, and the longest time of that, milliseconds. */
const PAUSE = 2000;
const LONGEST = 2 * 60_000;

/** @param {{ id: string }} camera */
export function cameraRow({ id }) {
  const title = h("span", { class: "title" });
  const facts = h("span", {});
  const picture = h("img", { class: "frame", hidden: true });
  const words = h("p", { class: "quiet" });
  const fault = h("p", { class: "fault", role: "status" });
  const look = button(DEVICES.look, () => pull(), { name: "eye" });
  const keep = button(DEVICES.watch, () => (until > Date.now() ? stop() : start()));
  const edit = iconButton(DEVICES.edit, "settings", () => editDevice(id, element.device, editor));
  const editor = h("div", { class: "wide", hidden: true });
  const element = h(
    "li",
    { class: "row" },
    icon("camera"),
    h("div", { class: "main" }, title, h("div", { class: "quiet" }, facts)),
    edit,
    editor,
    h("div", { class: "wide" }, picture, words, fault, h("div", { class: "actions" }, look, keep)),
  );
  const server = currentServer().id;
  let until = 0;
  let url = "";
  let isGone = false;

  async function pull() {
    look.disabled = true;
    text(words, picture.hidden ? DEVICES.looking : words.textContent);
    fill(fault);
    try {
      const frame = await get(`/paired-servers/${server}/devices/${id}/camera-frame`);
      if (isGone) return;
      URL.revokeObjectURL(url);
      url = URL.createObjectURL(frame);
      picture.src = url;
      picture.hidden = false;
      element.taken = now();
      text(words, ago(element.taken));
    } catch (problem) {
      fill(fault, icon("warning"), problem.message);
      text(words, "");
      stop();
    }
    look.disabled = false;
    // A row that was removed looks no more.
    if (until > Date.now() && element.isConnected && !document.hidden) setTimeout(pull, PAUSE);
    else stop();
  }

  function start() {
    until = Date.now() + LONGEST;
    text(/** @type {any} */ (keep.lastChild), DEVICES.stopWatching);
    pull();
  }

  function stop() {
    until = 0;
    text(/** @type {any} */ (keep.lastChild), DEVICES.watch);
    text(/** @type {any} */ (look.lastChild), picture.hidden ? DEVICES.look : DEVICES.lookAgain);
  }

  element.gone = () => {
    isGone = true;
    stop();
    URL.revokeObjectURL(url);
  };
  /** @param {{ device: Relay["Device"] }} camera */
  element.update = ({ device }) => {
    element.device = device;
    const name = clean(device.label || device.name || id);
    if (title.textContent !== name) fill(title, bdi(name));
    attribute(picture, "alt", DEVICES.frameOf(name));
    edit.hidden = live.current?.info.role !== "owner";
    text(facts, [device.grid, DEVICES.reachable[device.reachable]].filter(Boolean).join(" · "));
    if (element.taken) text(words, ago(element.taken));
  };
  return element;
}

/** A form that adds a camera by its name in the game. */
export function cameraForm() {
  const list = h("datalist", { id: "camera-names" });
  const input = h("input", {
    "aria-label": DEVICES.cameraId,
    placeholder: DEVICES.camera,
    list: "camera-names",
    maxlength: "64",
    autocapitalize: "characters",
  });
  const fault = h("p", { class: "fault", role: "alert" });
  const form = h(
    "form",
    { class: "say", onsubmit: add },
    input,
    button(DEVICES.add, null, { type: "submit" }),
    list,
    fault,
  );
  let known = "";
  input.addEventListener("focus", async () => {
    const { id } = currentServer();
    if (known === id) return;
    known = id;
    const { cameras } = await get(`/paired-servers/${known}/cameras`).catch(() => ({ cameras: [] }));
    fill(
      list,
      cameras
        .filter(({ added }) => !added)
        .map(({ cameraId, monument, name }) => h("option", { value: cameraId }, `${monument}: ${name}`)),
    );
  });

  /** @param {Event} event */
  async function add(event) {
    event.preventDefault();
    fill(fault);
    try {
      await post(`/paired-servers/${currentServer().id}/devices`, { cameraId: input.value.trim() });
      input.value = "";
    } catch (problem) {
      fill(fault, icon("warning"), problem.errors?.[0]?.message ?? problem.message);
    }
  }
  return form;
}
