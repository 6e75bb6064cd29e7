// The frame of the dashboard: top bar, raid bar, tabs, map, panels.

import { API, get, PAGES } from "../api.js";
import { LiveMap } from "../map/map.js";
import { isUnknown } from "../raid.js";
import { attribute, button, empty, fill, h, icon, text } from "../ui/dom.js";
import { everySecond, until } from "../ui/time.js";
import { LINKS, SHELL } from "../words/shell.js";
import { topBar } from "./bar.js";
import { chatBlock } from "./chat.js";
import { feedBlock } from "./feed.js";
import { incidents, live, on } from "./live.js";
import { raidBars } from "./raids.js";

const TABS = ["map", "team", "devices", "feed", "shops", "more"];
/** @type {Record<string, string>} */
const ICONS = { map: "map", team: "team", devices: "devices", feed: "feed", shops: "store", more: "more" };
/** Modules of the panels, loaded when one is first opened, or a little later, so that they are there without a network. */
const MODULES = {
  map: () => import("../map/list.js"),
  team: () => import("./team.js"),
  devices: () => import("./devices.js"),
  shops: () => import("../shops/shops.js"),
  more: () => import("../more/more.js"),
};
/** @type {Record<string, (parts: import("./types.js").Parts) => Promise<HTMLElement>>} */
const PANELS = {
  map: async (parts) => (await MODULES.map()).listPanel(parts),
  team: async () => (await MODULES.team()).teamPanel(),
  devices: async () => (await MODULES.devices()).devicesPanel(),
  feed: async () => h("div", {}),
  shops: async (parts) => (await MODULES.shops()).shopsPanel(parts),
  more: async (parts) => (await MODULES.more()).morePanel(parts),
};
/** Tabs to go by a key. @type {Record<string, number>} */
const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
const AHEAD_AFTER = 3000;
const VERSION_EVERY = 15 * 60_000;

/** Draws it all into `root`. @param {HTMLElement} root */
export function drawShell(root) {
  const map = new LiveMap();
  const narrow = matchMedia("(max-width: 719px)");
  const wide = matchMedia("(min-width: 1100px)");
  const raids = raidBars({
    flyTo: (x, y) => {
      map.flyTo(x, y);
      if (narrow.matches) open("map");
    },
  });
  const chat = chatBlock();
  const feed = feedBlock({ flyTo: (x, y) => map.flyTo(x, y) });
  const notices = h("div", { class: "notices" });
  const parts = { map, raids, siren: raids.siren, notices };
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
  fill(root, h("div", { class: "shell" }, topBar({ siren: raids.siren }), top, rail, panel, map.element, side));
  let opened = "";
  /** @type {Map<string, Promise<any>>} */
  const made = new Map();
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
    if (opened === "feed" && wide.matches) feed.querySelector(".scroll")?.focus();
    arrange();
    if (isClosed) return;
    attribute(body, "aria-labelledby", `tab-${opened}`);
    const wanted = opened;
    if (!made.has(wanted)) made.set(wanted, PANELS[wanted](parts).catch(failed(wanted)));
    const content = await made.get(wanted);
    if (wanted !== opened) return;
    fill(body, content, wanted === "team" && !wide.matches && chat, wanted === "feed" && !wide.matches && feed);
    drawn = wanted;
    body.scrollTop = scrolled.get(wanted) ?? 0;
  }

  /** Shows that one part does not work; the others go on. @param {string} name */
  function failed(name) {
    return (/** @type {Error} */ error) => {
      made.delete(name);
      console.warn(error);
      return empty(
        SHELL.failed,
        error instanceof TypeError ? SHELL.offline : String(error.message ?? ""),
        button(SHELL.tryAgain, () => open(name)),
      );
    };
  }

  /** Feed and chat are beside the map where there is room, else in their tabs. */
  function arrange() {
    if (wide.matches && side.children.length === 0) fill(side, feed, chat);
    if (!wide.matches) fill(side);
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
