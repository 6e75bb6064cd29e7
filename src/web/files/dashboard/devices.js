// Devices of the server that is shown, by kind.

import { attribute, bdi, clean, empty, fill, h, icon, iconButton, keyed, text } from "../ui/dom.js";
import { ago, countdown, everySecond, now, until } from "../ui/time.js";
import { DEVICES } from "../words/devices.js";
import { PAST } from "../words/feed.js";
import { cameraForm, cameraRow } from "./cameras.js";
import { editDevice } from "./device-form.js";
import { staleNote } from "./freshness.js";
import { groupsBlock } from "./groups.js";
import { itemIcon } from "./items.js";
import { lastTrigger } from "./last-triggers.js";
import { currentServer, emit, live, on } from "./live.js";

const KINDS = ["alarm", "switch", "storageMonitor", "camera", "unknown"];
/** @type {Record<string, string>} */
const ICONS = { switch: "power", alarm: "bell", storageMonitor: "boxes", camera: "camera" };
/** Below this, upkeep is shown as a warning, milliseconds. */
const UPKEEP_LOW = 24 * 3600_000;

/** Wanted states of switches that the game has not shown yet, and faults, by server and device. */
const wanted = new Map();
const faults = new Map();
/** @param {string} id */
const keyOf = (id) => `${live.current?.id} ${id}`;

export function devicesPanel() {
  const groups = KINDS.map((kind) => ({
    kind,
    head: h("h3", { class: "group-head" }, DEVICES.groups[kind]),
    list: h("ul", { class: "rows" }),
  }));
  const none = h("div", {});
  const noAlarm = h("div", {});
  const cameras = cameraForm();
  const grouped = groupsBlock();
  const element = h(
    "div",
    {},
    h("div", { class: "block-head" }, h("h2", {}, DEVICES.title)),
    staleNote("devices"),
    none,
    groups.map(({ kind, head, list }) => [
      head,
      kind === "alarm" && noAlarm,
      list,
      kind === "switch" && grouped,
      kind === "camera" && cameras,
    ]),
  );

  function update() {
    const devices = Object.entries(live.current?.state?.devices ?? {}).map(([id, device]) => ({ id, device }));
    devices.sort((a, b) => nameOf(a.device).localeCompare(nameOf(b.device)));
    for (const { kind, head, list } of groups) {
      const members = devices.filter(({ device }) => (KINDS.includes(device.kind) ? device.kind : "unknown") === kind);
      const isShown = members.length > 0 || (devices.length > 0 && (kind === "alarm" || kind === "camera"));
      head.hidden = !isShown;
      keyed(list, members, ({ id }) => keyOf(id), kind === "camera" ? cameraRow : row);
      if (kind === "alarm")
        fill(noAlarm, isShown && members.length === 0 && empty(DEVICES.noAlarm, DEVICES.noAlarmWhy));
    }
    cameras.hidden = devices.length === 0 || live.current?.info.role !== "owner";
    fill(none, devices.length === 0 && empty(DEVICES.none, live.current?.state ? DEVICES.noneWhy : PAST.loading));
  }

  on("current devices connection", update);
  on("deviceTouched", update);
  everySecond(update);
  update();
  return element;
}

/** @param {Relay["Device"]} device */
const nameOf = (device) => clean(device.label || device.name);

/** A switch, an alarm or a storage monitor. @param {{ id: string, device: Relay["Device"] }} given */
function row({ id, device }) {
  const title = h("span", { class: "title", id: `device-${id}` });
  const facts = h("span", {});
  const fault = h("div", { class: "fault", hidden: true });
  const content = h("div", { class: "wide" });
  const control = device.kind === "switch" ? switchControl(id) : h("span", { class: "pill" });
  const map = iconButton(DEVICES.showOnMap, "pin", () => emit("flyTo", element.place));
  const edit = iconButton(DEVICES.edit, "settings", () => editDevice(id, element.place, editor));
  const editor = h("div", { class: "wide", hidden: true });
  const back = turnBack(id);
  const element = h(
    "li",
    { class: "row" },
    icon(ICONS[device.kind] ?? "power"),
    h("div", { class: "main" }, title, h("div", { class: "quiet" }, facts)),
    h("div", { class: "actions" }, control, map, edit),
    back,
    fault,
    editor,
    content,
  );
  /** @param {{ device: Relay["Device"] }} given */
  element.update = ({ device }) => {
    element.place = device;
    map.hidden = device.x === null;
    edit.hidden = live.current?.info.role !== "owner";
    if (title.dataset.name !== nameOf(device)) {
      title.dataset.name = nameOf(device);
      fill(title, bdi(nameOf(device)));
      if (device.kind === "switch") attribute(control, "aria-label", nameOf(device));
    }
    const why = DEVICES.reachable[device.reachable] ?? "";
    const last = device.kind === "alarm" && live.current ? lastTrigger(live.current, id) : null;
    text(facts, [device.grid, last && DEVICES.lastAt(ago(last)), why].filter(Boolean).join(" · "));
    element.classList.toggle("is-old", device.reachable !== "ok" && device.reachable !== "pending");
    back.update(device);
    if (device.kind === "switch") control.update(device);
    else if (device.kind === "alarm") alarmState(control, device);
    else if (device.kind === "storageMonitor") storage(control, content, device);
    const words = faults.get(keyOf(id)) ?? "";
    if (fault.dataset.words !== words) {
      fault.dataset.words = words;
      fill(fault, icon("warning"), words);
    }
    fault.hidden = !words;
  };
  return element;
}

/** A switch that shows the state of the game, and the wanted one until the game shows that. @param {string} id */
function switchControl(id) {
  const words = h("span", {});
  const element = h("button", { type: "button", class: "switch", role: "switch", onclick: toggle }, words);
  let shown = false;

  function toggle() {
    command(id, !(wanted.get(keyOf(id)) ?? shown));
  }

  /** @param {Relay["Device"]} device */
  element.update = (device) => {
    shown = device.value === true;
    const wish = wanted.get(keyOf(id));
    const isWaiting = wish !== undefined && wish !== shown;
    attribute(element, "aria-checked", wish ?? shown);
    attribute(element, "aria-busy", isWaiting ? "true" : null);
    text(words, (wish ?? shown) ? DEVICES.on : DEVICES.off);
    disableFor(element, whyNot());
  };
  return element;
}

/** When a switch turns back that was turned for a time, and a way to leave it as it is. @param {string} id */
function turnBack(id) {
  const words = h("span", {});
  let shown = false;
  const stay = h("button", { type: "button", class: "plain", onclick: () => command(id, shown) });
  const element = h("div", { class: "wide turn-back", hidden: true }, icon("clock"), words, stay);
  /** @param {Relay["Device"]} device */
  element.update = ({ turnsBack, value }) => {
    element.hidden = !turnsBack;
    if (!turnsBack) return;
    shown = value === true;
    text(words, DEVICES.turnsBack(turnsBack.value, countdown(turnsBack.at)));
    text(stay, shown ? DEVICES.stayOn : DEVICES.stayOff);
    disableFor(stay, whyNot());
  };
  return element;
}

/** Gives a switch a value; whatever it was to turn back to is forgotten. @param {string} id @param {boolean} value */
async function command(id, value) {
  const key = keyOf(id);
  wanted.set(key, value);
  faults.delete(key);
  emit("deviceTouched");
  try {
    await live.relay?.toggle(currentServer().id, id, value);
  } catch (error) {
    faults.set(key, error.message);
  }
  wanted.delete(key);
  emit("deviceTouched");
}

/** The reason why this user cannot switch now; empty: they can. */
function whyNot() {
  if (live.current?.info.role !== "owner") return DEVICES.guest;
  return live.connection.state === "live" ? "" : DEVICES.offline;
}

/** @param {HTMLButtonElement} control @param {string} reason */
function disableFor(control, reason) {
  control.disabled = reason !== "";
  attribute(control, "title", reason || null);
}

/** @param {any} element @param {Relay["Device"]} device */
function alarmState(element, device) {
  const isRinging = device.value === true;
  attribute(element, "class", `pill ${isRinging ? "is-stale" : ""}`);
  text(element, device.value === null ? "" : isRinging ? `▲ ${DEVICES.ringing}` : DEVICES.quiet);
}

/** @param {any} element @param {any} content @param {Relay["Device"]} device */
function storage(element, content, { storage }) {
  const key = JSON.stringify([storage, storage?.protectionExpiresAt && until(storage.protectionExpiresAt)]);
  if (content.dataset.key === key) return;
  content.dataset.key = key;
  if (!storage) return fill(content, h("p", { class: "quiet" }, DEVICES.unknownContent));
  const left = storage.protectionExpiresAt ? until(storage.protectionExpiresAt) : null;
  const isLow =
    storage.hasProtection && (left === null || Date.parse(storage.protectionExpiresAt ?? "") - now() < UPKEEP_LOW);
  attribute(element, "class", `pill ${isLow ? "is-stale" : ""}`);
  fill(
    element,
    storage.hasProtection && h("span", { class: `dot ${isLow ? "is-stale" : ""}` }),
    storage.hasProtection ? (left ? DEVICES.upkeep(left) : DEVICES.noUpkeep) : "",
  );
  const items = storage.items.map((item) =>
    h(
      "li",
      {},
      itemIcon(item.itemId),
      h(
        "span",
        {},
        h("b", {}, item.quantity.toLocaleString()),
        bdi(item.name ?? item.itemId),
        item.isBlueprint && ` (${DEVICES.blueprint})`,
      ),
    ),
  );
  const state = storage.capacity === 0 ? DEVICES.noPower : storage.items.length === 0 ? DEVICES.emptyBox : "";
  fill(
    content,
    state
      ? h("p", { class: "quiet" }, state)
      : [h("p", { class: "quiet" }, DEVICES.used(storage.used, storage.capacity)), h("ul", { class: "slots" }, items)],
  );
}
