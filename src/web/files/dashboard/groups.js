// Groups of switches, which are switched as one: here, or by a word in the team's chat.

import { get, patch, post, remove } from "../api.js";
import { attribute, bdi, button, clean, fill, h, icon, iconButton, keyed, text } from "../ui/dom.js";
import { checkbox, chosen, field, form, sureButton } from "../ui/form.js";
import { DEVICES, GROUPS } from "../words/devices.js";
import { currentServer, live, on } from "./live.js";

/** @typedef {Api["GroupView"]} Group */

export function groupsBlock() {
  const list = h("ul", { class: "rows" });
  const head = h("h3", { class: "group-head" }, GROUPS.title);
  const maker = h("div", { hidden: true });
  const make = button(GROUPS.make, openMaker, { name: "plus" });
  const offer = h("div", { class: "form" }, h("div", { class: "actions" }, make), maker);
  const element = h("div", { hidden: true }, head, list, offer);
  /** @type {Group[]} */
  let groups = [];
  let owner = "";

  async function load() {
    const server = live.current;
    if (server?.id !== owner) groups = [];
    owner = server?.id ?? "";
    update();
    if (!server) return;
    const answer = await get(`/paired-servers/${server.id}/device-groups?limit=100`).catch(() => null);
    if (!answer || server !== live.current) return;
    groups = answer.groups;
    update();
  }

  function update() {
    const isOwner = live.current?.info.role === "owner";
    const canMake = isOwner && switches().length > 1;
    element.hidden = groups.length === 0 && !canMake;
    head.hidden = groups.length === 0;
    offer.hidden = !canMake;
    keyed(
      list,
      groups,
      ({ id }) => id,
      (group) => row(group, load),
    );
  }

  function openMaker() {
    maker.hidden = !maker.hidden;
    attribute(make, "aria-expanded", !maker.hidden);
    if (maker.hidden) return;
    const { id } = currentServer();
    /** @param {Api["CreateDeviceGroup"]} group @param {string} key */
    const send = (group, key) => post(`/paired-servers/${id}/device-groups`, group, { "idempotency-key": key });
    const done = () => {
      openMaker();
      load();
    };
    fill(maker, groupForm({ name: "", customCommand: "", devices: [] }, GROUPS.add, send, done));
    maker.querySelector("input")?.focus();
  }

  on("current", load);
  on("devices connection", update);
  load();
  return element;
}

/** The devices that a group can have. */
function switches() {
  return Object.entries(live.current?.state?.devices ?? {})
    .filter(([, { kind }]) => kind === "switch")
    .map(([id, device]) => ({ id, name: clean(device.label || device.name) }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

/**
 * @param {Pick<Group, "name" | "customCommand" | "devices">} group @param {string} submit
 * @param {(group: Api["CreateDeviceGroup"], key: string) => Promise<any>} send @param {() => void} done
 */
function groupForm(group, submit, send, done) {
  const name = h("input", { required: true, maxlength: "64", value: group.name });
  const word = h("input", { maxlength: "32", pattern: "[\\p{L}\\p{N}_\\-]{1,32}", value: group.customCommand ?? "" });
  const known = switches();
  // Members first, in the order in which they are switched.
  /** @param {{ id: string }} device */
  const place = ({ id }) => (group.devices.includes(id) ? group.devices.indexOf(id) : known.length);
  const boxes = known
    .sort((a, b) => place(a) - place(b))
    .map(({ id, name }) => checkbox(bdi(name), group.devices.includes(id), id));
  const words = () => ({ name: name.value.trim(), customCommand: word.value.trim() || null, devices: chosen(boxes) });
  return form({
    fields: [
      field(DEVICES.label, name, "name"),
      field(GROUPS.word, word, "customCommand"),
      h("fieldset", {}, h("legend", { class: "quiet" }, GROUPS.members), boxes),
    ],
    submit,
    send: (key) => send(words(), key),
    done,
  });
}

/** @param {Group} given @param {() => void} load */
function row({ id }, load) {
  const title = h("span", { class: "title" });
  const facts = h("span", {});
  const words = h("span", {});
  const control = h("button", { type: "button", class: "switch", role: "switch", onclick: toggle }, words);
  const fault = h("div", { class: "fault", role: "status", hidden: true });
  const editor = h("div", { class: "wide", hidden: true });
  const edit = iconButton(GROUPS.edit, "settings", openEditor);
  const element = h(
    "li",
    { class: "row" },
    icon("layers"),
    h("div", { class: "main" }, title, h("div", { class: "quiet" }, facts)),
    h("div", { class: "actions" }, control, edit),
    fault,
    editor,
  );
  /** @type {Group} */
  let group;
  /** @type {boolean | null} */
  let wish = null;

  /** @param {Group} latest */
  element.update = (latest) => {
    group = latest;
    const devices = live.current?.state?.devices ?? {};
    const on = group.devices.filter((member) => devices[member]?.value === true).length;
    const isOn = on > 0 && on === group.devices.length;
    if (title.dataset.name !== group.name) {
      title.dataset.name = group.name;
      fill(title, bdi(group.name));
      attribute(control, "aria-label", clean(group.name));
    }
    text(facts, GROUPS.facts(on, group.devices.length, group.customCommand ?? ""));
    attribute(control, "aria-checked", wish ?? isOn);
    attribute(control, "aria-busy", wish === null ? null : "true");
    text(words, (wish ?? isOn) ? DEVICES.on : DEVICES.off);
    const isOwner = live.current?.info.role === "owner";
    const reason = !isOwner ? DEVICES.guest : live.connection.state !== "live" ? DEVICES.offline : "";
    control.disabled = reason !== "" || wish !== null;
    attribute(control, "title", reason || null);
    edit.hidden = !isOwner;
  };

  async function toggle() {
    wish = control.getAttribute("aria-checked") !== "true";
    fault.hidden = true;
    element.update(group);
    let faults;
    try {
      const { outcomes } = await post(`/paired-servers/${currentServer().id}/device-groups/${id}/toggle`, {
        value: wish,
      });
      const devices = live.current?.state?.devices ?? {};
      /** @param {string} device */
      const nameOf = (device) => clean(devices[device]?.label || devices[device]?.name || device);
      faults = outcomes
        .filter(({ error }) => error)
        .map(({ deviceId, error }) => `${nameOf(deviceId)}: ${GROUPS.errors[error ?? ""] ?? error}`);
    } catch (problem) {
      faults = [problem.message];
    }
    wish = null;
    fault.hidden = faults.length === 0;
    fill(fault, icon("warning"), faults.join(" · "));
    element.update(group);
  }

  function openEditor() {
    editor.hidden = !editor.hidden;
    attribute(edit, "aria-expanded", !editor.hidden);
    if (editor.hidden) return;
    const path = /** @type {const} */ (`/paired-servers/${currentServer().id}/device-groups/${id}`);
    const done = () => {
      editor.hidden = true;
      load();
    };
    fill(
      editor,
      groupForm(group, DEVICES.save, (changed) => patch(path, changed), done),
      h(
        "div",
        { class: "form" },
        h(
          "div",
          { class: "actions" },
          sureButton(GROUPS.remove, DEVICES.sure, () => remove(path).then(load)),
          button(DEVICES.close, openEditor),
        ),
      ),
    );
    editor.querySelector("input")?.focus();
  }
  return element;
}
