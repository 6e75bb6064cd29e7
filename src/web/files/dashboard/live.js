// The user, the servers and their live states.

import { get, onSignedOut, PAGES, Problem, served } from "../api.js";
import { RelayClient } from "../relay-client.js";
import { canShare, SharedRelay } from "../relay-shared.js";
import { setAhead } from "../ui/time.js";
import { COMMON } from "../words/common.js";
import { fetchWith } from "./first-answers.js";
import { emit, emitSoon } from "./topics.js";

export { emit, on } from "./topics.js";

/** Entries of the feed and lines of chat that are kept for each server, and entries with older ones that were asked for. */
const KEPT = 300;
const MOST = 3000;
/** Entries of a page of older ones, and of one that begins with the newest. */
const PAGE = 200;
const WHOLE_PAGE = 500;
/** Milliseconds between two questions for a map, doubled each time. */
const MAP_PAUSES = { least: 2000, most: 5 * 60_000 };
/** Places of a trail that are kept for each member. */
const TRAIL = 120;
/** A jump of more metres is a respawn, not a walk. */
export const JUMP = 300;

/** @typedef {import("./types.js").Server} Server */
/** @typedef {import("./types.js").Entry} Entry */
/** @typedef {import("./types.js").Line} Line */
/** @typedef {import("../relay-client.js").RelayStatus} RelayStatus */

export const live = {
  config: /** @type {Api["ClientConfig"]} */ (/** @type {unknown} */ (null)),
  me: /** @type {Api["Me"]} */ (/** @type {unknown} */ (null)),
  /** @type {Map<string, Server>} by id, in the order of the service */ servers: new Map(),
  /** @type {Server | null} the server that is shown */ current: null,
  /** @type {{ state: RelayStatus["state"], reason: string, retryAt: number, since: number }} */
  connection: { state: "connecting", reason: "", retryAt: 0, since: 0 },
  /** @type {RelayClient | null} */ relay: null,
};

/** The connection is one for all tabs, where tabs can agree. @type {SharedRelay | null} */
let shared = null;

/** Begins to watch the servers. @param {import("./types.js").FirstAnswers | null} answers those that came with the page; the others are asked for */
export async function connect(answers) {
  onSignedOut(() => emit("signedOut"));
  if (live.config.urls.relay) {
    shared = canShare() ? new SharedRelay(`${PAGES} ${live.me.id}`, () => loadServers().catch(() => {})) : null;
    live.relay = new RelayClient({
      api: location.origin + (document.documentElement.dataset.base ?? ""),
      relay: live.config.urls.relay,
      handlers,
      platform: { fetch: fetchWith(answers), ...(shared && { WebSocket: shared.WebSocket }) },
    });
  }
  if (answers) takeServers(answers.servers);
  else await loadServers();
  await start();
  for (const name of ["online", "pageshow", "focus"]) addEventListener(name, () => live.relay?.wake());
  document.addEventListener("visibilitychange", () => document.hidden || live.relay?.wake());
  // A page in the back-forward cache must not hold a socket.
  addEventListener("pagehide", () => {
    live.relay?.stop();
    shared?.leave();
  });
  addEventListener("pageshow", (event) => event.persisted && start());
}

async function start() {
  await shared?.join(live.relay);
  live.relay?.start();
}

/** Loads the list of servers again: at the start, and when one was paired, shared or lost. */
export async function loadServers() {
  const { servers } = await get("/paired-servers?limit=100");
  setAhead(served.date - served.at);
  takeServers(servers);
}

/** @param {Api["PairedServerView"][]} servers all that there are */
function takeServers(servers) {
  const ids = new Set(servers.map(({ id }) => id));
  for (const id of live.servers.keys()) {
    if (ids.has(id)) continue;
    live.servers.delete(id);
    live.relay?.unwatch(id);
  }
  for (const info of servers) {
    const known = live.servers.get(info.id);
    if (known) known.info = info;
    else
      live.servers.set(info.id, {
        id: info.id,
        info,
        state: null,
        feed: [],
        olderFeed: null,
        past: "",
        feedRoom: KEPT,
        chat: [],
        trails: new Map(),
        map: null,
        mapPause: MAP_PAUSES.least,
        isMapAsked: false,
        heardAt: 0,
      });
    live.relay?.watch(info.id);
  }
  if (!live.servers.has(live.current?.id ?? "")) show(localStorage.getItem("server") ?? "");
  emit("servers");
}

/** Shows another server. @param {string} id an unknown one: the first server */
export function show(id) {
  const server = live.servers.get(id) ?? live.servers.values().next().value ?? null;
  if (server === live.current) return;
  live.current = server;
  if (server) {
    localStorage.setItem("server", server.id);
    loadPast(server);
  }
  emit("current");
}

/** The server that is shown. Fails if there is none: the last one may be gone while its panel is open. */
export function currentServer() {
  if (!live.current) throw new Problem({ status: 0, code: "no_server", detail: COMMON.noServer });
  return live.current;
}

/** Loads once for each server what is not in its state: map, feed and chat. @param {Server} server */
async function loadPast(server) {
  if (server.past !== "" && server.past !== "failed") return;
  server.past = "loading";
  const loads = [
    loadMap(server),
    get(`/intel/${server.id}/timeline?limit=100`).then(({ entries, next }) => {
      server.olderFeed = next ?? null;
      remember(server, "feed", entries);
    }),
    get(`/paired-servers/${server.id}/chat?limit=100`).then(({ lines }) => remember(server, "chat", lines)),
  ];
  const results = await Promise.allSettled(loads);
  server.past = results.some(({ status }) => status === "rejected") ? "failed" : "loaded";
  if (server !== live.current) return;
  emitSoon("feed");
  emitSoon("chat");
}

/**
 * Loads older entries of the feed. Their places are those of the service: what it calls `next` is asked for.
 * @param {Server} server
 */
export async function loadOlder(server) {
  const place = server.olderFeed
    ? `limit=${PAGE}&before=${encodeURIComponent(server.olderFeed)}`
    : `limit=${WHOLE_PAGE}`;
  const { entries, next } = await get(`/intel/${server.id}/timeline?${place}`);
  server.feedRoom = Math.min(MOST, Math.max(server.feedRoom, server.feed.length) + entries.length);
  server.olderFeed = server.feedRoom === MOST ? null : (next ?? null);
  remember(server, "feed", entries);
}

/** @param {Server} server */
async function loadMap(server) {
  server.map = await get(`/paired-servers/${server.id}/map`).catch((problem) => {
    if (problem.status === 404 || problem.status === 503) return null;
    throw problem;
  });
  if (server === live.current) emit("map");
}

/** Asks for the map again: there was none yet, as after the pairing, or the world is another one. @param {Server} server */
function keepMap(server) {
  const { connection, wipedAt } = server.state?.server ?? {};
  const isOld = server.map
    ? server.map.wipedAt && wipedAt && server.map.wipedAt !== wipedAt
    : connection === "connected";
  if (!isOld || server.past !== "loaded" || server.isMapAsked) return;
  server.isMapAsked = true;
  server.mapPause = Math.min(MAP_PAUSES.most, 2 * server.mapPause);
  loadMap(server)
    .catch(() => {})
    .finally(() => setTimeout(() => (server.isMapAsked = false), server.mapPause));
}

/**
 * Puts entries into a list of a server, newest first, each once.
 * @template {"feed" | "chat"} List
 * @param {Server} server @param {List} list @param {Server[List][number][]} entries
 */
function remember(server, list, entries) {
  const known = new Map([...server[list], ...entries].map((entry) => [keyOf(entry), entry]));
  const all = [...known.values()].sort((a, b) => (a.ts < b.ts ? 1 : -1));
  const room = list === "feed" ? server.feedRoom : KEPT;
  if (list === "feed" && all.length > room && room < MOST) server.olderFeed = "";
  server[list] = /** @type {any} */ (all.slice(0, room));
  if (server === live.current) emitSoon(list);
}

/** @param {Entry | Line} entry */
const keyOf = (entry) => entry.id ?? entry.ts + ("title" in entry ? entry.title : "");

/** Every incident of every server. @returns {import("../raid.js").Incident[]} */
export function incidents() {
  return [...live.servers.values()].flatMap((server) =>
    Object.entries(server.state?.raids ?? {}).map(([id, raid]) => ({
      serverId: server.id,
      serverName: nameOf(server),
      id,
      raid,
    })),
  );
}

/** @param {Server} server */
export function nameOf(server) {
  return server.state?.server?.name || server.info.name;
}

const handlers = {
  /** @param {RelayStatus} status */
  status({ state, reason = "", retryAt = 0 }) {
    const since = state === "live" ? 0 : live.connection.since || Date.now();
    live.connection = { state, reason, retryAt, since };
    if (state === "live") {
      if (live.relay) setAhead(live.relay.serviceTime() - Date.now());
      if (live.current?.past === "failed") loadPast(live.current);
    }
    if (state === "signed_out") {
      // Another tab may be signed in again, and needs the lock.
      shared?.leave();
      emit("signedOut");
    }
    emit("connection");
  },
  /** @param {string} id @param {Relay["StateDocument"]} state @param {Set<string>} changed */
  state(id, state, changed) {
    const server = live.servers.get(id);
    if (!server) return;
    server.state = state;
    server.heardAt = Date.now();
    if (changed.has("team")) trace(server);
    // Not with the next frame: a hidden page has none, and an alarm must ring there too.
    if (changed.has("raids")) emit("raids");
    if (changed.has("server")) emitSoon("servers");
    if (server !== live.current) return;
    for (const topic of changed) if (topic !== "raids") emitSoon(topic);
    if (changed.has("raids")) emitSoon("places");
    keepMap(server);
  },
  /** @param {string} id @param {Relay["WorldEvent"]} event @param {boolean} missed */
  event(id, event, missed) {
    const server = live.servers.get(id);
    if (!server) return;
    remember(server, "feed", [{ ...event, missed, isNew: true }]);
    if (event.kind === "raid") emit("raids");
  },
  /** @param {string} id @param {Relay["ChatMessage"]} line @param {boolean} missed */
  chat(id, line, missed) {
    const server = live.servers.get(id);
    if (server) remember(server, "chat", [{ ...line, missed }]);
  },
  raid() {
    emit("raids");
  },
  lost() {
    loadServers().catch(() => {});
  },
  /** @param {Relay["ServerMessage"]} message */
  message(message) {
    emit("message", message);
  },
};

/** Adds the places of members to their trails. @param {Server} server */
function trace(server) {
  const at = performance.now();
  for (const [id, { x, y }] of Object.entries(server.state?.team?.members ?? {})) {
    if (x === null || y === null) continue;
    let trail = server.trails.get(id);
    if (!trail) server.trails.set(id, (trail = []));
    const last = trail.at(-1);
    if (last && last.x === x && last.y === y) continue;
    if (last && Math.hypot(last.x - x, last.y - y) > JUMP) trail.length = 0;
    trail.push({ x, y, at });
    if (trail.length > TRAIL) trail.shift();
  }
}
