// The top bar: which server, how it is, whether sound would ring.

import { attribute, clean, fill, h, icon, text } from "../ui/dom.js";
import { ago, duration, everySecond } from "../ui/time.js";
import { COMMON } from "../words/common.js";
import { SHELL, STATES } from "../words/shell.js";
import { live, nameOf, on, show } from "./live.js";

/** @param {{ siren: import("../attention.js").Siren }} parts */
export function topBar({ siren }) {
  const root = document.documentElement.dataset.root ?? "";
  const select = h("select", { "aria-label": SHELL.server, onchange: () => show(select.value) });
  const players = h("span", {});
  const hour = h("span", {});
  const wiped = h("span", {});
  const dot = h("span", { class: "dot" });
  const words = h("span", {});
  const status = h("div", { class: "pill status", role: "status", "aria-label": SHELL.connection }, dot, words);
  // Each press arms the siren before its click.
  let before = "";
  const note = () => (before = siren.state);
  const sound = h("button", {
    type: "button",
    class: "plain",
    onpointerdown: note,
    onkeydown: note,
    onclick: () => {
      siren.mute((before || siren.state) === "armed");
      before = "";
    },
  });
  const soundWords = h("span", { class: "wide-only" });
  const element = h(
    "header",
    { class: "bar" },
    h(
      "div",
      { class: "brand" },
      h("img", { src: `${root}/icons/icon.svg`, alt: "", width: "24", height: "24" }),
      h("span", {}, SHELL.product),
    ),
    h("div", { class: "server" }, select),
    status,
    h(
      "div",
      { class: "facts" },
      h("span", { class: "pill" }, icon("team"), players),
      h("span", { class: "pill" }, icon("clock"), hour),
      h("span", { class: "pill" }, wiped),
    ),
    h("div", { class: "space" }),
    sound,
  );

  function servers() {
    const options = [...live.servers.values()].map((server) => {
      const count = openCount(server);
      return h(
        "option",
        { value: server.id, selected: server === live.current },
        `${clean(nameOf(server))}${count ? ` (${count} ▲)` : ""}`,
      );
    });
    const now = options.map((option) => option.textContent).join("\n");
    if (select.dataset.now !== now) {
      select.dataset.now = now;
      fill(select, options);
    }
    if (live.current) select.value = live.current.id;
    select.hidden = live.servers.size === 0;
  }

  function facts() {
    const head = live.current?.state?.server;
    const parent = /** @type {HTMLElement} */ (players.closest(".facts"));
    parent.hidden = !head || head.players === null;
    if (!head) return;
    text(players, head.players === null ? "" : SHELL.players(head.players, head.maxPlayers, head.queuedPlayers));
    text(hour, head.hour === null ? "" : SHELL.hour(head.hour));
    text(wiped, head.wipedAt ? SHELL.wiped(ago(head.wipedAt)) : "");
  }

  function connection() {
    const { word, kind } = stateOf(live.current);
    text(words, word);
    attribute(status, "class", `pill status is-${kind}`);
  }

  function soundState() {
    const { state } = siren;
    fill(sound, icon(state === "armed" ? "volume" : "mute"), soundWords);
    text(soundWords, state === "armed" ? "" : SHELL.sound[state]);
    attribute(sound, "aria-label", SHELL.sound[state]);
    attribute(sound, "title", SHELL.sound[state]);
    sound.classList.toggle("is-stale", state !== "armed");
  }

  siren.changed = soundState;
  soundState();
  connection();
  on("servers current raids", servers);
  on("current server servers connection team mapMarkers devices", connection);
  on("current server", facts);
  everySecond(() => {
    connection();
    facts();
    soundState();
  });
  /** Puts an element before the button of the sound. @param {HTMLElement} other */
  const add = (other) => sound.before(other);
  return { element, add };
}

/** Incidents of a server that have not ended. @param {import("./types.js").Server} server */
function openCount(server) {
  if (!server.state) return server.info.openIncidents;
  return Object.values(server.state.raids ?? {}).filter((raid) => raid.endedAt === null).length;
}

/**
 * The state of all that is between the game and this page, in a word and a few more.
 * @param {import("./types.js").Server | null} server
 * @returns {{ word: string, kind: "live" | "stale" | "gone" }}
 */
function stateOf(server) {
  const { state, since, retryAt } = live.connection;
  if (!live.config.urls.relay) return { word: STATES.gone, kind: "gone" };
  if (state !== "live") {
    const word = STATES[state] ?? STATES.gone;
    const left = retryAt > Date.now() ? COMMON.seconds(Math.ceil((retryAt - Date.now()) / 1000)) : "";
    return {
      word: left ? STATES.again(word, left) : word,
      kind: since && Date.now() - since > 3000 ? "gone" : "stale",
    };
  }
  const head = server?.state?.server;
  if (!server) return { word: STATES.live, kind: "live" };
  if (!head) return { word: STATES.unknown, kind: "stale" };
  if (head.connection !== "connected") {
    const left = head.nextAttemptAt ? Date.parse(head.nextAttemptAt) - Date.now() : 0;
    return {
      word: left > 0 ? STATES.again(STATES.gone, duration(left)) : STATES.gone,
      kind: "gone",
    };
  }
  const stale = Object.values(head.stale ?? {})
    .map(({ asOf }) => asOf)
    .sort()[0];
  if (head.stale && Object.keys(head.stale).length > 0)
    return { word: stale ? `${STATES.stale} ${ago(stale)}` : STATES.stale, kind: "stale" };
  return { word: STATES.live, kind: "live" };
}
