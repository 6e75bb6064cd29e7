// Everything that calls a player: sound, title, favicon, notification. It runs in the handler of a message, not in a
// frame, because a hidden page has no frames.

import { RINGS_FOR, RINGS_UNTIL } from "./raid.js";
import { now } from "./ui/time.js";

const BLINK = 1000;

/** Sound, which a browser allows after a click or a key only. */
export class Siren {
  constructor() {
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {OscillatorNode | null} while it rings */
    this.oscillator = null;
    /** @type {Map<string, number>} incidents for which it rings, and until when a click may begin that */
    this.calls = new Map();
    this.isMuted = localStorage.getItem("muted") === "yes";
    this.changed = () => {};
    const arm = () => this.arm();
    for (const name of ["pointerdown", "keydown"]) addEventListener(name, arm, { capture: true });
  }

  /** `armed`, `blocked` (a click is needed first) or `off`. */
  get state() {
    if (this.isMuted) return "off";
    return this.context?.state === "running" ? "armed" : "blocked";
  }

  /** Call it in a handler of a click or a key. */
  arm() {
    if (this.isMuted || this.context?.state === "running") return;
    this.context ??= new AudioContext();
    this.context.resume().then(
      () => {
        this.changed();
        this.#startLate();
      },
      () => {},
    );
  }

  /** @param {boolean} isMuted */
  mute(isMuted) {
    this.isMuted = isMuted;
    localStorage.setItem("muted", isMuted ? "yes" : "no");
    if (isMuted) this.#silence();
    else this.arm();
    this.changed();
    this.#startLate();
  }

  /** Rings for these incidents; where a click is needed first, from then on. @param {import("./raid.js").Incident[]} incidents */
  call(incidents) {
    for (const { id, raid } of incidents) this.calls.set(id, Date.parse(raid.lastAt) + RINGS_UNTIL);
    this.#start();
  }

  /** Stops when none of the incidents for which it rings is open. @param {string[]} open ids */
  keep(open) {
    if (this.calls.size === 0) return;
    for (const id of this.calls.keys()) if (!open.includes(id)) this.calls.delete(id);
    if (this.calls.size === 0) this.stop();
  }

  /** Silent until the next call. */
  stop() {
    this.calls.clear();
    this.#silence();
  }

  #silence() {
    this.oscillator?.stop();
    this.oscillator = null;
  }

  #startLate() {
    if ([...this.calls.values()].some((until) => now() < until)) this.#start();
  }

  /** Rings until it is stopped or a minute has passed since the last call; of several tabs that could, one does. */
  #start() {
    const { context } = this;
    if (this.isMuted || context?.state !== "running") return;
    if (this.oscillator) return this.#tones(context, this.oscillator);
    const ring = () => (this.calls.size > 0 ? this.#ring(context) : undefined);
    if (!navigator.locks) return void ring();
    navigator.locks.request("siren", { ifAvailable: true }, (lock) => lock && ring()).catch(() => {});
  }

  /** Two tones in turn, for a minute from now. @param {AudioContext} context @param {OscillatorNode} oscillator */
  #tones({ currentTime }, oscillator) {
    oscillator.frequency.cancelScheduledValues(currentTime);
    for (let second = 0; second < RINGS_FOR / 1000; second++) {
      oscillator.frequency.setValueAtTime(880, currentTime + second);
      oscillator.frequency.setValueAtTime(587, currentTime + second + 0.5);
    }
    oscillator.stop(currentTime + RINGS_FOR / 1000);
  }

  /** Resolves when it has ended. @param {AudioContext} context @returns {Promise<void>} */
  #ring(context) {
    const oscillator = context.createOscillator();
    const gain = context.createGain();
    oscillator.type = "square";
    gain.gain.value = 0.12;
    oscillator.connect(gain).connect(context.destination);
    oscillator.start();
    this.#tones(context, oscillator);
    this.oscillator = oscillator;
    return new Promise((resolve) => {
      oscillator.onended = () => {
        if (this.oscillator === oscillator) this.oscillator = null;
        resolve();
      };
    });
  }
}

/** Title and favicon while something is open. */
export class TabSignal {
  constructor() {
    this.title = document.title;
    const link = /** @type {HTMLLinkElement | null} */ (document.querySelector("link[rel=icon]"));
    this.link = link;
    this.calm = link?.href ?? "";
    this.raid = link?.dataset.raid ?? "";
    /** @type {string | null} */
    this.alert = null;
    setInterval(() => this.#blink(), BLINK);
  }

  /** The title of the page while nothing is open. @param {string} title */
  rename(title) {
    this.title = title;
    if (!this.alert) document.title = title;
  }

  /** @param {string | null} alert a few words, or null for none */
  show(alert) {
    if (alert === this.alert) return;
    this.alert = alert;
    document.title = alert ?? this.title;
    if (this.link) this.link.href = alert ? this.raid : this.calm;
  }

  #blink() {
    if (this.alert) document.title = document.title === this.alert ? this.title : this.alert;
  }
}

/** Shows a notification, where the player allowed it and the page is not seen. A push about `tag` takes its place. @param {string} title @param {string} body @param {string} tag */
export async function notify(title, body, tag) {
  if (!("Notification" in window) || Notification.permission !== "granted" || !document.hidden) return;
  const options = { body, tag, requireInteraction: true, data: { ackUrl: "", navigate: location.href } };
  // Some phones allow notifications of service workers only.
  const worker = await registration();
  if (worker?.active) return worker.showNotification(title, options);
  try {
    const shown = new Notification(title, options);
    shown.onclick = () => {
      window.focus();
      shown.close();
    };
  } catch {
    // There is no worker on such a phone.
  }
}

/** Takes notifications away that are about `tag`, also those of pushes. @param {string} tag */
export async function withdraw(tag) {
  const shown = (await (await registration())?.getNotifications({ tag })) ?? [];
  for (const notification of shown) notification.close();
}

const registration = () => navigator.serviceWorker?.getRegistration().catch(() => undefined);
