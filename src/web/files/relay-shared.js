// One connection to the relay for all tabs of a browser: the tab that has the lock holds it, the others speak and hear
// through it. Each tab has a client of its own (`relay-client.js`), to which this is a WebSocket like any other.

/** Without a word of the holder in this time, a tab opens a connection of its own. Milliseconds. */
const ANSWER_WITHIN = 1500;
/** A tab asks this often whether the holder is alive; at the second question without an answer, it is not. */
const BEAT_EVERY = 5000;

/** True where tabs can agree: on pages of https and of this machine. */
export const canShare = () => Boolean(globalThis.navigator?.locks && globalThis.BroadcastChannel);

/** @typedef {{ from: string, to?: string, kind: string, data?: string, code?: number, reason?: string }} Word of a tab to the others */

export class SharedRelay {
  /**
   * @param {string} name of those who may share: the user, and the version of the page
   * @param {() => void} onUnknown another tab watches a server that this tab's client does not
   * @param {any} [platform] for tests: `locks`, `BroadcastChannel`, `WebSocket`, `setTimeout`, `clearTimeout`
   */
  constructor(name, onUnknown, platform = {}) {
    this.platform = {
      locks: globalThis.navigator?.locks,
      BroadcastChannel: globalThis.BroadcastChannel,
      WebSocket: globalThis.WebSocket,
      /** @param {() => void} call @param {number} after */
      setTimeout: (call, after) => globalThis.setTimeout(call, after),
      /** @param {any} timer */
      clearTimeout: (timer) => globalThis.clearTimeout(timer),
      ...platform,
    };
    this.name = `relay ${name}`;
    this.onUnknown = onUnknown;
    this.id = crypto.randomUUID();
    /** @type {any} the client of this tab */
    this.client = null;
    /** @type {any} the connection, in the tab that holds it */
    this.held = null;
    /** Tabs that hear through this one. */
    this.others = new Set();
    /** @type {OtherSocket | null} the socket of a tab that does not hold the connection */
    this.socket = null;
    this.isHolder = false;
    /** @type {any} gives the lock back */
    this.release = null;
    const shared = this;
    /** The `WebSocket` of this tab's client. */
    this.WebSocket = function Socket(/** @type {string} */ url, /** @type {string[]} */ protocols) {
      return shared.isHolder ? shared.#hold(url, protocols) : new OtherSocket(shared, url, protocols);
    };
  }

  /** Takes part, until `leave`. Resolves when it is known whether this tab holds the connection. @param {any} client */
  async join(client) {
    const { locks } = this.platform;
    this.client = client;
    this.channel = new this.platform.BroadcastChannel(this.name);
    this.channel.onmessage = (/** @type {MessageEvent<Word>} */ { data }) => this.#heard(data);
    const waiting = new AbortController();
    this.waiting = waiting;
    await new Promise((known) => {
      /** @param {Lock | null} lock */
      const first = (lock) => {
        if (lock) return this.#holds(known);
        known(undefined);
        return locks.request(this.name, { signal: waiting.signal }, () => this.#holds());
      };
      locks.request(this.name, { ifAvailable: true }, first).catch(known);
    });
  }

  /** This tab has the lock, as long as the promise is open. @param {(known?: any) => void} [known] */
  #holds(known) {
    if (this.waiting?.signal.aborted) return undefined;
    this.isHolder = true;
    // The others ask again, and find this one.
    this.say({ kind: "closed" });
    this.socket?.lost();
    known?.();
    return new Promise((release) => (this.release = release));
  }

  /** The page is left, or its sign-in has ended: another tab takes the connection. */
  leave() {
    if (this.isHolder) this.say({ kind: "closed" });
    this.isHolder = false;
    this.waiting?.abort();
    this.release?.();
    this.channel?.close();
    this.channel = null;
    this.others.clear();
  }

  /** @param {object} message */
  say(message) {
    this.channel?.postMessage({ from: this.id, ...message });
  }

  /** Opens the connection; what comes is passed on to the others. @param {string} url @param {string[]} protocols */
  #hold(url, protocols) {
    if (this.held) this.say({ kind: "closed" });
    this.others.clear();
    const held = new this.platform.WebSocket(url, protocols);
    this.held = held;
    held.addEventListener("open", () => this.held === held && this.say({ kind: "ready" }));
    held.addEventListener("message", (/** @type {MessageEvent} */ { data }) => {
      if (this.held === held && this.others.size > 0) this.say({ kind: "data", data });
    });
    held.addEventListener("close", (/** @type {CloseEvent} */ { code, reason }) => {
      if (this.held !== held) return;
      this.held = null;
      this.others.clear();
      this.say({ kind: "closed", code, reason });
    });
    return held;
  }

  /** @param {Word} word */
  #heard({ from, to, kind, data = "", code, reason }) {
    if (to !== undefined && to !== this.id) return;
    if (this.isHolder) return this.#asked(from, kind, data);
    if (kind === "ready") this.client.wake();
    else if (kind === "data") this.socket?.received(data);
    else if (kind === "opened") this.socket?.opened();
    else if (kind === "alive") this.socket?.alive();
    else if (kind === "closed" && !this.socket?.own) this.socket?.lost(code, reason);
  }

  /** A word of another tab to the holder. @param {string} from @param {string} kind @param {string} data */
  #asked(from, kind, data) {
    const isOpen = this.held?.readyState === 1;
    if (kind === "open") {
      if (isOpen) this.others.add(from);
      this.say({ to: from, kind: isOpen ? "opened" : "closed" });
      // The timers of a hidden page are slow, and another tab wants the connection now.
      if (!isOpen) this.client.wake();
    } else if (kind === "beat" && this.others.has(from)) this.say({ to: from, kind: "alive" });
    else if (kind === "bye") this.others.delete(from);
    else if (kind === "send" && isOpen) this.#send(from, data);
  }

  /** @param {string} from @param {string} data */
  #send(from, data) {
    /** @type {Relay["ClientMessage"]} */
    const message = JSON.parse(data);
    if (message.type === "ping") return this.say({ to: from, kind: "data", data: '{"type":"pong"}' });
    // This tab watches every server that any tab does; it knows the state.
    if (message.type === "unsubscribe") return;
    if (message.type !== "subscribe") return this.held.send(data);
    const { serverId } = message;
    const server = this.client.servers.get(serverId);
    if (!server) return this.onUnknown();
    if (!server.state || server.epoch === null) return;
    const { epoch, seq, state } = server;
    /** @type {Relay["ServerMessage"]} */
    const snapshot = { type: "snapshot", serverId, epoch, seq, state };
    this.say({ to: from, kind: "data", data: JSON.stringify(snapshot) });
  }
}

/** A socket through the tab that holds the connection; a connection of its own where none answers. */
class OtherSocket {
  /** @param {SharedRelay} shared @param {string} url @param {string[]} protocols */
  constructor(shared, url, protocols) {
    this.shared = shared;
    /** @type {any} */
    this.onopen = null;
    /** @type {any} */
    this.onmessage = null;
    /** @type {any} */
    this.onclose = null;
    /** @type {any} a connection of its own */
    this.own = null;
    this.isOpen = this.isAsking = false;
    shared.socket = this;
    shared.say({ kind: "open" });
    this.timer = shared.platform.setTimeout(() => this.#openOwn(url, protocols), ANSWER_WITHIN);
  }

  /** @param {string} url @param {string[]} protocols */
  #openOwn(url, protocols) {
    this.own = new this.shared.platform.WebSocket(url, protocols);
    this.own.onopen = () => this.onopen?.();
    this.own.onmessage = (/** @type {MessageEvent} */ event) => this.onmessage?.(event);
    this.own.onclose = (/** @type {CloseEvent} */ event) => this.onclose?.(event);
  }

  opened() {
    if (this.isOpen || this.own) return;
    this.shared.platform.clearTimeout(this.timer);
    this.isOpen = true;
    this.#beat();
    this.onopen?.();
  }

  /** @param {string} data */
  received(data) {
    if (this.isOpen) this.onmessage?.({ data });
  }

  alive() {
    this.isAsking = false;
  }

  #beat() {
    this.timer = this.shared.platform.setTimeout(() => {
      if (this.isAsking) return this.lost();
      this.isAsking = true;
      this.shared.say({ kind: "beat" });
      this.#beat();
    }, BEAT_EVERY);
  }

  lost(code = 1006, reason = "") {
    if (this.own) this.own.onclose = null;
    this.own?.close(1000);
    this.#end();
    this.onclose?.({ code, reason });
  }

  /** @param {string} data */
  send(data) {
    if (this.own) this.own.send(data);
    else this.shared.say({ kind: "send", data });
  }

  /** @param {number} code */
  close(code) {
    if (this.own) this.own.close(code);
    else this.shared.say({ kind: "bye" });
    this.#end();
  }

  #end() {
    this.shared.platform.clearTimeout(this.timer);
    this.isOpen = false;
    if (this.shared.socket === this) this.shared.socket = null;
  }
}
