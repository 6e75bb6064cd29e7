// Content of the overlay: fixed lists, so that it can run for days. No feature of a browser newer than 2022.

import { ago, now } from "../ui/time.js";
import { OVERLAY_WORDS } from "../words/overlay.js";

/** A raid is shown this long, milliseconds; an event so long; and without data nothing is shown after a minute. */
const RAID_SHOWN = 60_000;
const EVENT_SHOWN = 90_000;
const TRUSTED_FOR = 60_000;
const EVENTS = 4;
const MEMBERS = 8;

/**
 * @typedef {object} Shown parts of the state of a server
 * @property {Pick<Relay["ServerHead"], "connection" | "stale">} [server]
 * @property {Relay["TeamDocument"]} [team]
 * @property {Record<string, Pick<Relay["Incident"], "grid" | "alarmName" | "count" | "lastAt">>} [raids]
 */

export class OverlayView {
  /** @param {HTMLElement} root @param {import("./options.js").OverlayOptions} options */
  constructor(root, { show, pos, scale, theme }) {
    root.className = `overlay is-${pos} is-${theme}`;
    root.style.setProperty("--scale", String(scale));
    this.show = new Set(show);
    this.raid = line(root, "raid");
    this.raidName = part(this.raid, "strong");
    this.raidFacts = part(this.raid, "span");
    this.events = Array.from({ length: EVENTS }, () => line(root, "event"));
    this.members = Array.from({ length: MEMBERS }, () => line(root, "member"));
    this.note = line(root, "note");
    /** @type {Shown | null} */
    this.state = null;
    /** @type {Relay["WorldEvent"][]} */
    this.recent = [];
    /** When the link to the game server was last up, and the team was last known then. */
    this.heardAt = this.teamAt = 0;
  }

  /** @param {Shown} state */
  take(state) {
    this.state = state;
    this.heard();
    this.draw();
  }

  /** @param {Relay["WorldEvent"]} event */
  add(event) {
    this.recent.unshift(event);
    this.recent.length = Math.min(this.recent.length, EVENTS);
    this.draw();
  }

  /** The relay answers; what it says is of now only while the game server does, too. */
  heard() {
    const { connection, stale } = this.state?.server ?? {};
    if (connection !== "connected") return;
    this.heardAt = now();
    if (!stale?.team) this.teamAt = this.heardAt;
  }

  /** Says what is wrong with its address or token; null for nothing. @param {string | null} words */
  say(words) {
    set(this.note, words);
  }

  draw() {
    // Rather nothing than something that is not true any longer; a raid has its own time.
    const newest = this.show.has("raid") ? this.#raid() : null;
    this.raid.hidden = !newest;
    if (newest) {
      set(this.raidName, `${OVERLAY_WORDS.raid} ${newest.grid || ""}`);
      set(this.raidFacts, `${newest.alarmName} · ${OVERLAY_WORDS.hits(newest.count)} · ${ago(newest.lastAt)}`);
    }
    for (let at = 0; at < EVENTS; at++) {
      const event = isTrusted(this.heardAt) && this.show.has("events") ? this.recent[at] : null;
      const isNew = event && now() - Date.parse(event.ts) < EVENT_SHOWN;
      set(this.events[at], isNew ? event.title : null);
    }
    const members =
      isTrusted(this.teamAt) && this.show.has("team")
        ? Object.values(this.state?.team?.members ?? {}).filter(({ online }) => online)
        : [];
    for (let at = 0; at < MEMBERS; at++) {
      const member = members[at];
      set(this.members[at], member ? `${member.name} · ${member.alive ? member.grid : OVERLAY_WORDS.dead}` : null);
    }
  }

  #raid() {
    const recent = Object.values(this.state?.raids ?? {}).filter(
      ({ lastAt }) => now() - Date.parse(lastAt) < RAID_SHOWN,
    );
    return recent.sort((a, b) => (a.lastAt < b.lastAt ? 1 : -1))[0] ?? null;
  }
}

/** @param {number} heardAt 0: never */
const isTrusted = (heardAt) => heardAt > 0 && now() - heardAt < TRUSTED_FOR;

/** @param {HTMLElement} root @param {string} kind */
function line(root, kind) {
  const element = document.createElement("p");
  element.className = kind;
  element.hidden = true;
  root.append(element);
  return element;
}

/** @param {HTMLElement} element @param {string} name */
function part(element, name) {
  const child = document.createElement(name);
  element.append(child, " ");
  return child;
}

/** Sets a text and shows its line; null hides it. @param {HTMLElement} element @param {string | null} words */
function set(element, words) {
  if (element.textContent !== (words ?? "")) element.textContent = words ?? "";
  if (element.tagName === "P") element.hidden = words === null;
}
