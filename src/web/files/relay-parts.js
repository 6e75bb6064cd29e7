/*! Parts of relay-client.js; you may copy them. Licence: MIT or Apache-2.0, at your choice. Copyright (c) the authors of
companion. */

/**
 * @typedef {object} RelayOptions
 * @property {string} api URL of the service, without a slash at its end
 * @property {string} relay URL of the relay, without `/v1`
 * @property {Handlers} handlers called with what arrives
 * @property {Record<string, string>} [headers] for the calls to the API, for example `Authorization`
 * @property {boolean} [history] false: events and chat of the time away are not fetched
 * @property {any} [platform] for tests: `fetch`, `WebSocket`, `setTimeout`, `clearTimeout`, `now`, `random`
 */

/** @typedef {"connecting" | "live" | "waiting" | "signed_out" | "stopped"} Status */

/**
 * @typedef {object} Handlers each may be absent
 * @property {(status: { state: Status, reason?: string, retryAt?: number }) => void} [status]
 * @property {(serverId: string, state: any, changed: Set<string>) => void} [state] the whole state, and its keys that
 *   changed; the object stays the same between snapshots and is edited in place
 * @property {(serverId: string, event: any, missed: boolean) => void} [event] `missed`: it happened while away
 * @property {(serverId: string, line: any, missed: boolean) => void} [chat]
 * @property {(serverId: string, raid: any) => void} [raid] the wake-up call of an incident; `state.raids` is the truth
 * @property {(serverId: string, code: string, message: string) => void} [lost] this server is not watched, and asking
 *   again will not help
 * @property {(message: any) => void} [message] everything else
 */

/**
 * @typedef {object} Watched a server: its last position and state
 * @property {Relay["StateKey"][]} [sections]
 * @property {Relay["StateDocument"] | null} state
 * @property {number | null} epoch null: no position
 * @property {number | null} seq
 * @property {number} resyncAt
 * @property {number | null} heardAt
 * @property {number} [awayAt] since when what happened is missing
 * @property {boolean} [isBehind]
 * @property {Set<string>} seen
 */

/** Functions of the surroundings that the client uses. @param {any} given for tests */
export function platformOf(given) {
  return {
    /** @param {string} url @param {RequestInit} options */
    fetch: (url, options) => globalThis.fetch(url, options),
    WebSocket: globalThis.WebSocket,
    /** @param {() => void} call @param {number} after */
    setTimeout: (call, after) => globalThis.setTimeout(call, after),
    /** @param {any} timer */
    clearTimeout: (timer) => globalThis.clearTimeout(timer),
    now: () => Date.now(),
    random: Math.random,
    ...given,
  };
}

/** Pauses between attempts: the first one, and the longest, milliseconds. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/**
 * The pause before an attempt, milliseconds: 1 s, doubled each time, 30 s at most, of which a random half.
 * @param {number} attempt 0 for the first one
 * @param {() => number} random 0..1
 */
export function pauseBefore(attempt, random = Math.random) {
  return Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** Math.min(attempt, 10)) * (0.5 + random() / 2);
}

/** A refusal of the relay, or no answer to a command. */
export class RelayError extends Error {
  /** @param {string} code of the relay, or `no_answer`, `offline` @param {string} message in words */
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/**
 * Asks for a token: a browser does not say why an upgrade was refused, so this call comes first, and its
 * status does.
 * @param {any} platform @param {string} api @param {Record<string, string>} headers
 * @returns {Promise<{ token?: string, isSignedOut?: boolean, reason?: string, pause?: number, date?: number }>}
 *   `pause` is what the service asks for; `date` its time, milliseconds
 */
export async function mintToken(platform, api, headers) {
  try {
    const answer = await platform.fetch(`${api}/relay/token`, { method: "POST", headers, credentials: "same-origin" });
    const date = Date.parse(answer.headers.get("date") ?? "") || undefined;
    // A 403 without a code of the service is of something in between, and may pass.
    if (answer.status === 401 || (answer.status === 403 && (await codeOf(answer)))) {
      return { isSignedOut: true, reason: "the sign-in has ended", date };
    }
    if (answer.ok) {
      /** @type {Api["RelayToken"]} */
      const { token } = await answer.json();
      return { token, date };
    }
    const pause = Number(answer.headers.get("retry-after")) * 1000 || undefined;
    return { reason: `the service answered ${answer.status}`, pause, date };
  } catch {
    return { reason: "the service cannot be reached" };
  }
}

/** The code of a refusal, if the service itself refused. @param {Response} answer */
async function codeOf(answer) {
  return (await answer.json().catch(() => null))?.code;
}

/** Entries of a page of what was missed, and most pages of a list. */
const PAGE = 200;
const MOST_PAGES = 10;
/** Ids of events and lines of chat that are remembered, so that none is given twice: all that one time away can have. */
const REMEMBERED = 2 * PAGE * MOST_PAGES;

/** True if this event or line was not given yet. @param {Set<string>} seen @param {{ id?: string }} entry */
export function isNew(seen, { id }) {
  if (!id) return true;
  if (seen.has(id)) return false;
  seen.add(id);
  if (seen.size > REMEMBERED) seen.delete(seen.values().next().value ?? "");
  return true;
}

/** A message of the relay; one that says nothing for what is no JSON. @param {string} data @returns {Relay["ServerMessage"]} */
export function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return { type: "pong" };
  }
}

/** An answer to a command comes within this time, or there was none. */
const COMMAND_DEADLINE = 8000;

/** Commands that wait for their answers. */
export class Commands {
  /** @param {any} platform */
  constructor(platform) {
    this.platform = platform;
    this.waiting = new Map();
    this.next = 1;
    /** Several clients may share a connection. */
    this.prefix = platform.random().toString(36).slice(2, 10);
  }

  /**
   * Resolves when the command is answered.
   * @param {(requestId: string) => boolean} send false: there is no connection
   * @returns {Promise<void>}
   */
  send(send) {
    return new Promise((resolve, reject) => {
      const requestId = `${this.prefix} ${this.next++}`;
      if (!send(requestId)) return reject(new RelayError("offline", "There is no connection."));
      const late = () => this.answered(requestId, new RelayError("no_answer", "There was no answer."));
      this.waiting.set(requestId, { resolve, reject, timer: this.platform.setTimeout(late, COMMAND_DEADLINE) });
    });
  }

  /** @param {string} requestId @param {RelayError | null} error */
  answered(requestId, error) {
    const command = this.waiting.get(requestId);
    if (!command) return;
    this.waiting.delete(requestId);
    this.platform.clearTimeout(command.timer);
    if (error) command.reject(error);
    else command.resolve();
  }

  /** None of them will be answered. @param {string} reason */
  fail(reason) {
    for (const id of [...this.waiting.keys()]) this.answered(id, new RelayError("offline", reason));
  }
}

/** @typedef {{ platform: any, api: string, headers: Record<string, string> }} Caller a client, for the calls to the API */

/**
 * The events and lines of chat since a time, each list oldest first, as pairs of the handler's name and the entry. Fails if
 * one does not come now; a list that the service refuses is empty.
 * @param {Caller} client @param {string} serverId @param {number} since milliseconds
 * @returns {Promise<["event" | "chat", any][]>}
 */
export async function missedSince(client, serverId, since) {
  const query = `limit=${PAGE}&since=${encodeURIComponent(new Date(since).toISOString())}`;
  const events = await wholeList(client, `/intel/${serverId}/timeline?${query}`, "entries");
  const lines = await wholeList(client, `/paired-servers/${serverId}/chat?${query}`, "lines");
  /** @param {"event" | "chat"} kind @param {object[]} entries @returns {["event" | "chat", any][]} */
  const pairs = (kind, entries) => entries.map((entry) => [kind, entry]);
  return [...pairs("event", events), ...pairs("chat", lines)];
}

/**
 * The newest entries of a list, oldest first.
 * @param {Caller} client @param {string} path @param {"entries" | "lines"} list
 */
async function wholeList({ platform, api, headers }, path, list) {
  /** @type {(Api["WorldEvent"] | Api["ChatLineSchema"])[]} */
  const entries = [];
  let before = "";
  for (let page = 0; page < MOST_PAGES; page++) {
    const answer = await platform.fetch(api + path + before, { headers, credentials: "same-origin" });
    if (!answer.ok) {
      const isRefused = answer.status < 500 && answer.status !== 429 && (await codeOf(answer));
      if (isRefused) break;
      throw new Error(`the service answered ${answer.status}`);
    }
    /** @type {Pick<Api["Timeline"], "next" | "entries"> & Pick<Api["ChatView"], "next" | "lines">} */
    const body = await answer.json();
    entries.push(...body[list]);
    if (!body.next) break;
    before = `&before=${encodeURIComponent(body.next)}`;
  }
  return entries.sort((a, b) => (a.ts < b.ts ? -1 : 1));
}
