// The frame of the dashboard: top bar, raid bar, tabs, map, panels.

import { API, get, PAGES } from "../api.js";
import { isUnknown } from "../raid.js";
import { attribute, button, empty, fill, h, icon, text } from "../ui/dom.js";
import { everySecond, until } from "../ui/time.js";
import { LINKS, SHELL } from "../words/shell.js";
import { topBar } from "./bar.js";
import { incidents, live, on } from "./live.js";
import { mapFrame } from "./map-frame.js";
import { raidBars } from "./raids.js";

const TABS = ["map", "team", "devices", "feed", "shops", "more"];
/** @type {Record<string, string>} */
const ICONS = { map: "map", team: "team", devices: "devices", feed: "feed", shops: "store", more: "more" };
/** Modules of the panels and of what opens on the map, loaded at the first press, or a little later, so that they are there without a network. */
const MODULES = {
  map: () => import("../map/list.js"),
  team: () => import("./team.js"),
  devices: () => import("./devices.js"),
  shops: () => import("../shops/shops.js"),
  more: () => import("../more/more.js"),
  opened: () => import("../map/opened.js"),
  feed: () => import("./feed.js"),
  chat: () => import("./chat.js"),
  people: () => import("./people.js"),
};
/** @type {Record<string, (parts: import("./types.js").Parts) => Promise<HTMLElement>>} */
const PANELS = {
  map: async (parts) => (await MODULES.map()).listPanel(parts),
  team: async () => (await MODULES.team()).teamPanel(),
  devices: async () => (await MODULES.devices()).devicesPanel(),
  shops: async (parts) => (await MODULES.shops()).shopsPanel(parts),
  more: async (parts) => (await MODULES.more()).morePanel(parts),
};
/** Tabs to go by a key. @type {Record<string, number>} */
const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
const AHEAD_AFTER = 3000;
const VERSION_EVERY = 15 * 60_000;

/** Draws it all into `root`. @param {HTMLElement} root */
export function drawShell(root) {
  const map = mapFrame();
  const narrow = matchMedia("(max-width: 719px)");
  const wide = matchMedia("(min-width: 1100px)");
  const raids = raidBars({
    flyTo: (x, y) => {
      map.flyTo(x, y);
      if (narrow.matches) open("map");
    },
  });
  const notices = h("div", { class: "notices" });
  const bar = topBar({ siren: raids.siren });
  const parts = { map, raids, siren: raids.siren, notices, addToBar: bar.add };
  const side = h("aside", { class: "side", "aria-label": `${SHELL.tabs.feed}` });
  const body = h("div", { class: "panel-body", id: "panel", role: "tabpanel", tabindex: "0" });
  const grip = h("button", {
    type: "button",
    class: "grip",
    "aria-label": SHELL.expand,
    onclick: () => panel.classList.toggle("is-tall"),
  });
  const panel = h("section", { class: "panel", "aria-label": SHELL.panel }, grip, body);
  const tabs = TABS.map((name) => tab(name));
  const rail = h(
    "nav",
    { class: "rail", "aria-label": SHELL.parts },
    h("div", { role: "tablist", "aria-label": SHELL.parts }, tabs),
  );
  const top = h("section", { class: "raids-area", "aria-label": SHELL.notices }, raids.element, notices);
  top.style.gridArea = "raid";
  fill(root, h("div", { class: "shell" }, bar.element, top, rail, panel, map.element, side));
  let opened = "";
  /** Panels, and the blocks that are beside the map where there is room, else in a panel. @type {Map<string, Promise<any>>} */
  const made = new Map();
  const blocks = {
    feed: async () => (await MODULES.feed()).feedBlock({ flyTo: map.flyTo }),
    chat: async () => (await MODULES.chat()).chatBlock(),
  };
  /** @param {"feed" | "chat"} name */
  const block = (name) => once(`block ${name}`, blocks[name]);
  let drawn = "";
  /** Pixels by which each tab was scrolled when it was left. @type {Map<string, number>} */
  const scrolled = new Map();

  /** @param {string} name */
  function tab(name) {
    const badge = h("span", { class: "badge", hidden: true });
    const element = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": "panel",
        "aria-selected": "false",
        tabindex: "-1",
        onclick: () => open(name === opened && !(name === "map" && narrow.matches) ? "" : name),
      },
      icon(ICONS[name]),
      h("span", {}, SHELL.tabs[name]),
      badge,
    );
    element.badge = badge;
    return element;
  }

  /** Opens a panel; an empty name closes it. On a phone, the map is the panel that is none. @param {string} name */
  async function open(name) {
    if (!panel.hidden) scrolled.set(drawn, body.scrollTop);
    opened = name === "" && narrow.matches ? "map" : name;
    const isClosed = opened === "" || (opened === "map" && narrow.matches) || (opened === "feed" && wide.matches);
    for (const element of tabs) {
      const isChosen = element.id === `tab-${opened}`;
      attribute(element, "aria-selected", isChosen);
      attribute(element, "tabindex", isChosen || (opened === "" && element === tabs[0]) ? "0" : "-1");
    }
    panel.hidden = isClosed;
    if (name) localStorage.setItem("tab", name);
    arrange().then(() => opened === "feed" && wide.matches && side.querySelector(".feed-block .scroll")?.focus());
    if (isClosed) return;
    attribute(body, "aria-labelledby", `tab-${opened}`);
    const wanted = opened;
    const panels = PANELS[wanted] ? [once(wanted, () => PANELS[wanted](parts))] : [];
    if (!wide.matches && wanted === "team") panels.push(block("chat"));
    if (wanted === "feed") panels.push(block("feed"));
    const content = await Promise.all(panels);
    if (wanted !== opened) return;
    fill(body, content);
    drawn = wanted;
    body.scrollTop = scrolled.get(wanted) ?? 0;
  }

  /** Result of `make`, once, if it does not fail. @param {string} name @param {() => Promise<HTMLElement>} make */
  function once(name, make) {
    const known = made.get(name) ?? make().catch(failed(name));
    made.set(name, known);
    return known;
  }

  /** Shows that one part does not work; the others go on. @param {string} name */
  function failed(name) {
    return (/** @type {Error} */ error) => {
      made.delete(name);
      console.warn(error);
      return empty(
        SHELL.failed,
        error instanceof TypeError ? SHELL.offline : String(error.message ?? ""),
        button(SHELL.tryAgain, () => open(opened)),
      );
    };
  }

  /** Feed and chat are beside the map where there is room, else in their tabs. */
  async function arrange() {
    if (!wide.matches) return fill(side);
    // One that did not come is asked for again.
    if (side.children.length > 0 && made.has("block feed") && made.has("block chat")) return;
    const both = await Promise.all([block("feed"), block("chat")]);
    if (wide.matches) fill(side, both);
  }

  rail.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.indexOf(document.activeElement);
    tabs[(at + step + tabs.length) % tabs.length].focus();
  });
  for (const query of [narrow, wide]) query.addEventListener("change", () => open(opened));
  on("flyTo", ({ x, y }) => {
    map.flyTo(x, y);
    if (narrow.matches) open("map");
  });
  on("followMember", () => narrow.matches && open("map"));
  on("openTab", open);
  on("raids", badges);
  on("servers", badges);
  notes(notices);
  badges();
  setTimeout(() => {
    for (const load of Object.values(MODULES)) load().catch(() => {});
  }, AHEAD_AFTER);
  const kept = localStorage.getItem("tab") ?? "";
  open(narrow.matches ? "map" : TABS.includes(kept) ? kept : "team");

  function badges() {
    const count = incidents().filter(({ raid }) => raid.endedAt === null && isUnknown(raid, live.me.id)).length;
    const { badge } = tabs[0];
    badge.hidden = count === 0;
    badge.className = "badge is-raid";
    text(badge, count);
  }
  return parts;
}

/** The thin bars below the raids: no connection, an ended sign-in, a new version. @param {HTMLElement} element */
function notes(element) {
  const offline = h("div", { class: "offline-bar", hidden: true });
  const words = h("span", {});
  const now = button(SHELL.now, () => live.relay?.wake());
  fill(offline, icon("link-off"), words, now);
  const signedOut = h(
    "div",
    { class: "notice", hidden: true },
    SHELL.signedOut,
    h("a", { class: "button", href: signInUrl() }, SHELL.signIn),
  );
  const version = h(
    "div",
    { class: "notice", hidden: true },
    SHELL.newVersion,
    button(SHELL.reload, () => location.reload()),
  );
  const linkWords = h("span", {});
  const link = h("div", { class: "offline-bar", hidden: true }, icon("link-off"), linkWords);
  fill(
    element,
    offline,
    link,
    signedOut,
    version,
    !live.config.urls.relay && h("div", { class: "notice" }, SHELL.noRelay),
  );
  const update = () => {
    const { state, since, retryAt, reason } = live.connection;
    const isOff = (state === "waiting" || state === "connecting") && since > 0 && Date.now() - since > 3000;
    offline.hidden = !isOff;
    if (isOff)
      text(
        words,
        `${reason ? `${reason[0].toUpperCase()}${reason.slice(1)}. ` : ""}${SHELL.retry(Math.ceil((retryAt - Date.now()) / 1000))}`,
      );
  };
  /** The link between the service and the game server. */
  const updateLink = () => {
    const head = live.current?.state?.server;
    const why = (live.connection.state === "live" && head && LINKS[head.connection]) || "";
    link.hidden = !why;
    const left = head?.nextAttemptAt ? until(head.nextAttemptAt) : null;
    if (why) text(linkWords, left ? `${why} ${SHELL.nextTry(left)}` : why);
  };
  on("connection", update);
  on("current server connection", updateLink);
  everySecond(updateLink);
  on("signedOut", () => (signedOut.hidden = false));
  everySecond(update);
  let isOld = false;
  /** A page that is loaded again has no sound until a click: never while there is a raid. */
  const offer = () => {
    const isRaided = incidents().some(({ raid }) => raid.endedAt === null || isUnknown(raid, live.me.id));
    version.hidden = !isOld || isRaided;
  };
  on("raids", offer);
  setInterval(async () => {
    const config = await get("/client-config").catch(() => null);
    isOld = Boolean(config?.pages && config.pages !== PAGES);
    offer();
  }, VERSION_EVERY);
}

/** Where a sign-in begins that returns to this page. */
export function signInUrl() {
  return `${API}/auth/platform?return=${encodeURIComponent(location.origin + location.pathname)}`;
}
