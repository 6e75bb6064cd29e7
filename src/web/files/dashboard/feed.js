// The feed: what happened, newest first, with filters.

import { button, clean, empty, fill, h, icon, keyed } from "../ui/dom.js";
import { clock } from "../ui/time.js";
import { FEED, PAST } from "../words/feed.js";
import { currentServer, live, loadOlder, on } from "./live.js";

/** Kinds of each filter. @type {Record<string, string[]>} */
const GROUPS = {
  raid: ["raid", "explosion"],
  world: ["cargo", "heli", "chinook", "crate", "oilrig", "vendor", "wipe", "gap"],
  team: ["death", "login", "logout", "team"],
  devices: ["device"],
  shops: ["shop"],
};
/** @type {Record<string, string>} */
const ICONS = {
  raid: "siren",
  explosion: "flame",
  cargo: "ship",
  heli: "plane",
  chinook: "fan",
  crate: "crate",
  oilrig: "factory",
  vendor: "bus",
  death: "skull",
  login: "user",
  logout: "log",
  team: "team",
  device: "devices",
  shop: "store",
  wipe: "refresh",
  gap: "link-off",
};
/** Entries that are shown at first, and more with each press. */
const PAGE = 80;
/** Pages of the service that one press loads at most. */
const PAGES = 5;

/** @typedef {import("./types.js").Entry} Entry */

/** @param {{ flyTo: (x: number, y: number) => void }} does */
export function feedBlock({ flyTo }) {
  let group = localStorage.getItem("feed") ?? "";
  let room = PAGE;
  const list = h("ol", { class: "feed" });
  const none = h("div", {});
  const press = button(FEED.older, more);
  const fault = h("p", { class: "fault", role: "status" });
  const older = h("div", { class: "form" }, press, fault);
  const chips = ["", ...Object.keys(GROUPS)].map((name) =>
    h(
      "button",
      { type: "button", class: "chip", "data-group": name, onclick: () => choose(name) },
      FEED.groups[name] ?? FEED.all,
    ),
  );
  const element = h(
    "section",
    { class: "block feed-block" },
    h("div", { class: "block-head" }, h("h2", {}, FEED.title)),
    h("div", { class: "filters" }, chips),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": FEED.title }, list, none, older),
  );

  /** @param {string} name */
  function choose(name) {
    group = name;
    room = PAGE;
    localStorage.setItem("feed", name);
    update();
  }

  /** @param {Entry} entry */
  const wanted = (entry) => (group === "" ? !isRoutine(entry) : GROUPS[group]?.includes(entry.kind));

  function update() {
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.group === group));
    const all = (live.current?.feed ?? []).filter(wanted);
    keyed(
      list,
      all.slice(0, room),
      ({ id, ts, title }) => id ?? ts + title,
      (entry) => row(entry, flyTo),
    );
    const why = PAST[live.current?.past ?? ""] ?? FEED.noneWhy;
    fill(none, all.length === 0 && empty(group ? FEED.noneOfThese : FEED.none, group ? "" : why));
    older.hidden = all.length <= room && (live.current?.olderFeed ?? null) === null;
  }

  /** Shows more of what is known, and loads what is not, until there is more of the chosen kinds. */
  async function more() {
    const server = currentServer();
    const shown = server.feed.filter(wanted).length;
    room += PAGE;
    press.disabled = true;
    fill(fault);
    try {
      for (let page = 0; page < PAGES; page += 1) {
        const count = server.feed.filter(wanted).length;
        if (server.olderFeed === null || count >= room || (page > 0 && count > shown)) break;
        await loadOlder(server);
      }
    } catch (problem) {
      fill(fault, icon("warning"), problem.message);
    }
    press.disabled = false;
    update();
  }

  on("current", () => (room = PAGE));
  on("current feed", update);
  update();
  return element;
}

/** True for what only fills the list: each stop of the vendor, and an alarm's contact, which its raid says already. @param {Entry} entry */
function isRoutine(entry) {
  if (entry.kind === "vendor") return entry.action === "halted" || entry.action === "resumed";
  return entry.kind === "device" && entry.data.deviceKind === "alarm" && /^turned/.test(entry.action);
}

/** @param {Entry} entry @param {(x: number, y: number) => void} flyTo */
function row(entry, flyTo) {
  const { kind, ts, title, grid, x, y, isNew } = entry;
  const place =
    grid &&
    (x !== null && y !== null
      ? h(
          "button",
          { type: "button", class: "place", "aria-label": FEED.place(clean(grid)), onclick: () => flyTo(x, y) },
          clean(grid),
        )
      : h("span", { class: "quiet" }, clean(grid)));
  return h(
    "li",
    { class: `${kind === "raid" ? "is-raid" : ""}${isNew ? " is-new" : ""}` },
    h("time", { datetime: ts }, clock(ts)),
    icon(ICONS[kind] ?? "clock"),
    h("span", {}, clean(grid ? title.replace(new RegExp(` in ${grid}$`), "") : title)),
    place,
  );
}
