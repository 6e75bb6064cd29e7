// relay-client.js: keeps the live state of paired game servers, over one WebSocket to the relay of companion.
// No dependency and no DOM: it runs in browsers (2022 and later) and in Node 22 and later. You may copy it.
/*! Licence: MIT or Apache-2.0, at your choice. Copyright (c) the authors of companion. See relay-client.md. */

import { Commands, isNew, mintToken, missedSince, parsed, pauseBefore, platformOf, RelayError } from "./relay-parts.js";
import { applyPatch, Gap } from "./relay-patch.js";

/** A ping is sent this often; silence of this length ends the connection; and after a wake-up this much is enough. */
const [PING_EVERY, SILENCE, SILENCE_AFTER_WAKE] = [20_000, 35_000, 3000];
/** Least pauses: after a try, before a wake-up makes another; between two questions for a snapshot; and for what was missed. */
const [RETRY_AFTER, RESYNC_EVERY, CATCH_UP_AFTER] = [1000, 5000, 30_000];

/** One connection for any number of servers. */
export class RelayClient {
  /** @param {import("./relay-parts.js").RelayOptions} options */
  constructor({ api, relay, handlers, headers = {}, history = true, platform = {} }) {
    this.api = api;
    this.relay = relay.replace(/\/$/, "");
    this.handlers = handlers;
    this.headers = headers;
    this.history = history;
    this.platform = platformOf(platform);
    /** @type {Map<string, import("./relay-parts.js").Watched>} servers by id: their last position and state */
    this.servers = new Map();
    this.commands = new Commands(this.platform);
    this.attempt = this.lastHeard = 0;
    this.socket = this.timer = this.ticker = null;
    this.isOpen = this.isWanted = false;
  }

  /** Connects, and stays connected until `stop`. */
  start() {
    if (this.isWanted) return;
    this.isWanted = true;
    this.attempt = 0;
    this.#connect();
  }

  stop() {
    this.#end("stopped");
  }

  /**
   * Watches a server: its state comes, and then what changes.
   * @param {string} serverId @param {Relay["StateKey"][]} [sections] keys of the state; absent: all
   */
  watch(serverId, sections) {
    if (this.servers.has(serverId)) return;
    const server = { sections, state: null, epoch: null, seq: null, resyncAt: 0, heardAt: null, seen: new Set() };
    this.servers.set(serverId, server);
    this.#subscribe(serverId, server);
  }

  unwatch(/** @type {string} */ serverId) {
    if (this.servers.delete(serverId)) this.#send({ type: "unsubscribe", serverId });
  }

  /** Switches a smart switch; without `value` it is flipped. Resolves when the game shows it. @param {string} serverId @param {string} deviceId @param {boolean} [value] */
  toggle(serverId, deviceId, value) {
    return this.commands.send((requestId) =>
      this.#send({ type: "deviceToggle", serverId, deviceId, value, requestId }),
    );
  }

  /** Takes note of an incident. @param {string} serverId @param {string} incident */
  acknowledge(serverId, incident) {
    return this.commands.send((requestId) => this.#send({ type: "raidAck", serverId, incident, requestId }));
  }

  /**
   * Call it when the page becomes visible, the network is back, or the page returns from the back-forward cache: tries
   * at once instead of waiting, and finds out soon whether a connection from before is dead.
   */
  wake() {
    if (!this.isWanted) return;
    if (!this.socket) {
      if (this.timer === null || this.platform.now() - this.triedAt < RETRY_AFTER) return;
      this.attempt = 0;
      this.#connect();
    } else if (this.isOpen && this.platform.now() - this.lastHeard > SILENCE_AFTER_WAKE) this.#probe();
  }

  /** The time of the service, milliseconds: of its last answer, and what has passed since. */
  serviceTime() {
    return this.platform.now() + (this.ahead ?? 0);
  }

  async #connect() {
    this.#clear();
    this.triedAt = this.platform.now();
    this.#status("connecting");
    const round = (this.round = Symbol("round"));
    const minted = await mintToken(this.platform, this.api, this.headers);
    if (this.round !== round || !this.isWanted) return;
    if (minted.date) this.ahead = minted.date - this.platform.now();
    if (minted.isSignedOut) return this.#end("signed_out", minted.reason);
    if (!minted.token) return this.#retry(minted.reason, minted.pause);
    const socket = new this.platform.WebSocket(`${this.relay}/v1`, [`bearer.${minted.token}`]);
    this.socket = socket;
    this.isOpen = false;
    this.lastHeard = this.platform.now();
    this.#tick();
    socket.onopen = () => {
      if (this.socket !== socket) return;
      this.isOpen = true;
      this.lastHeard = this.platform.now();
      for (const [id, server] of this.servers) this.#subscribe(id, server);
      if (this.servers.size === 0) this.#live();
    };
    socket.onmessage = (/** @type {MessageEvent} */ { data }) => this.socket === socket && this.#receive(data);
    socket.onclose = (/** @type {CloseEvent} */ { code, reason }) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (code >= 4500 && code < 4600) this.#end("signed_out", reason || "the sign-in has ended");
      else if (this.isWanted) this.#retry(reason || "the connection was lost");
    };
  }

  #receive(/** @type {string} */ data) {
    this.lastHeard = this.platform.now();
    const message = parsed(data);
    const server = "serverId" in message ? this.servers.get(message.serverId ?? "") : undefined;
    if (server) server.heardAt = this.serviceTime();
    switch (message.type) {
      case "snapshot":
        return server && this.#snapshot(message, server);
      case "patch":
        return server && this.#patch(message, server);
      case "event":
        return server && this.#give(server, "event", message.serverId, message.event, false);
      case "chat":
        return server && this.#give(server, "chat", message.serverId, message.chat, false);
      case "raid":
        return server && this.#call("raid", message.serverId, message);
      case "ack":
        return this.commands.answered(message.requestId, null);
      case "error":
        return this.#refused(message);
      case "pong":
        return;
      default:
        this.#call("message", message);
    }
  }

  /** @param {Extract<Relay["ServerMessage"], { type: "snapshot" }>} message @param {import("./relay-parts.js").Watched} server */
  #snapshot(message, server) {
    Object.assign(server, { state: message.state, epoch: message.epoch, seq: message.seq });
    this.#changed(message.serverId, server, new Set(Object.keys(message.state)));
  }

  /** @param {Extract<Relay["ServerMessage"], { type: "patch" }>} message @param {import("./relay-parts.js").Watched} server */
  #patch(message, server) {
    if (server.state === null || server.epoch !== message.epoch || server.seq !== message.base) {
      return this.#resync(message.serverId, server);
    }
    let changed;
    try {
      changed = applyPatch(server.state, message.patch);
    } catch (error) {
      if (!(error instanceof Gap)) throw error;
      return this.#resync(message.serverId, server);
    }
    server.seq = message.seq;
    this.#changed(message.serverId, server, changed);
  }

  /** @param {string} serverId @param {import("./relay-parts.js").Watched} server @param {Set<string>} changed */
  #changed(serverId, server, changed) {
    this.#live();
    this.#call("state", serverId, server.state, changed);
    if (server.isBehind && this.history) this.#catchUp(serverId, server, this.socket);
    server.isBehind = false;
  }

  /** Something is missing: asks for a snapshot. What is known stays until it comes. @param {string} serverId @param {import("./relay-parts.js").Watched} server */
  #resync(serverId, server) {
    const now = this.platform.now();
    server.epoch = null;
    if (now < server.resyncAt) return;
    server.resyncAt = now + RESYNC_EVERY;
    this.#send({ type: "unsubscribe", serverId });
    this.#subscribe(serverId, server);
  }

  /** @param {string} serverId @param {import("./relay-parts.js").Watched} server */
  #subscribe(serverId, server) {
    if (!this.isOpen) return;
    const position = server.epoch === null ? {} : { epoch: server.epoch, seq: server.seq };
    const sections = server.sections ? { sections: server.sections } : {};
    server.isBehind = server.awayAt !== undefined;
    this.#send({ type: "subscribe", serverId, ...position, ...sections });
  }

  /** After a time away: gives the events and lines of chat in between, as soon as all of them came. @param {string} serverId @param {import("./relay-parts.js").Watched} server @param {WebSocket | null} socket */
  async #catchUp(serverId, server, socket) {
    // A later connection asks itself.
    if (this.socket !== socket || server.awayAt === undefined) return;
    const missed = await missedSince(this, serverId, server.awayAt - 2000).catch(() => null);
    if (!missed) this.platform.setTimeout(() => this.#catchUp(serverId, server, socket), CATCH_UP_AFTER);
    else if (this.socket === socket) server.awayAt = undefined;
    const unseen = (missed ?? []).filter(([, { id }]) => !server.seen.has(id));
    for (const [kind, entry] of unseen) this.#give(server, kind, serverId, entry, true);
  }

  /** Gives an event or a line of chat, once. @param {import("./relay-parts.js").Watched} server @param {"event" | "chat"} kind @param {string} serverId @param {{ id?: string }} entry @param {boolean} missed */
  #give(server, kind, serverId, entry, missed) {
    if (isNew(server.seen, entry)) this.#call(kind, serverId, entry, missed);
  }

  /** @param {Relay["Refusal"]} refusal */
  #refused({ code, message, serverId, requestId }) {
    if (requestId) return this.commands.answered(requestId, new RelayError(code, message));
    if (code !== "unknown_server" || !serverId)
      return this.#call("message", { type: "error", code, message, serverId });
    this.servers.delete(serverId);
    this.#call("lost", serverId, code, message);
  }

  /** @param {Relay["ClientMessage"]} message */
  #send(message) {
    if (!this.isOpen || !this.socket) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  #live() {
    this.attempt = 0;
    this.#status("live");
  }

  #tick() {
    const late = this.platform.now() + SILENCE;
    this.ticker = this.platform.setTimeout(() => {
      if (!this.socket) return;
      const now = this.platform.now();
      if (now - this.lastHeard <= SILENCE) this.#send({ type: "ping" });
      // The timers of a hidden page are late: there was no question that the relay could have answered.
      else if (now > late) this.#probe();
      else return this.#retry("the relay fell silent");
      this.#tick();
    }, PING_EVERY);
  }

  /** After a pause: the connection has a short time to show that it is not dead. */
  #probe() {
    const { socket } = this;
    const asked = this.platform.now();
    this.#send({ type: "ping" });
    const isDead = () => this.socket === socket && this.lastHeard < asked;
    this.platform.setTimeout(() => isDead() && this.#retry("no answer after a pause"), SILENCE_AFTER_WAKE);
  }

  #retry(/** @type {string | undefined} */ reason, pause = pauseBefore(this.attempt, this.platform.random)) {
    this.#drop(4000);
    this.#clear();
    this.attempt += 1;
    this.timer = this.platform.setTimeout(() => this.#connect(), pause);
    this.#status("waiting", reason, this.platform.now() + pause);
  }

  /** @param {import("./relay-parts.js").Status} state @param {string} [reason] */
  #end(state, reason) {
    this.isWanted = false;
    this.#drop(1000);
    this.#clear();
    this.#status(state, reason);
  }

  #drop(/** @type {number} */ code) {
    const socket = this.socket;
    this.socket = null;
    this.isOpen = false;
    this.round = null;
    for (const server of this.servers.values()) server.awayAt ??= server.heardAt ?? undefined;
    this.commands.fail("The connection was lost.");
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  #clear() {
    this.platform.clearTimeout(this.timer);
    this.platform.clearTimeout(this.ticker);
    this.timer = this.ticker = null;
  }

  /** @param {import("./relay-parts.js").Status} state @param {string} [reason] @param {number} [retryAt] */
  #status(state, reason, retryAt) {
    if (state === "live" && this.shown === "live") return;
    this.shown = state;
    this.#call("status", { state, reason, retryAt });
  }

  /** @param {keyof import("./relay-parts.js").Handlers} name @param {...any} values */
  #call(name, ...values) {
    /** @type {any} */ (this.handlers[name])?.(...values);
  }
}
