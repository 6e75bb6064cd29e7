// Everything that calls a player: sound, title, favicon, notification. It runs in the handler of a message, not in a
// frame, because a hidden page has no frames.

import { RINGS_FOR } from "./raid.js";

const BLINK = 1000;

/** Sound, which a browser allows after a click or a key only. */
export class Siren {
  constructor() {
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {OscillatorNode | null} while it rings */
    this.oscillator = null;
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
      () => this.changed(),
      () => {},
    );
  }

  mute(isMuted) {
    this.isMuted = isMuted;
    localStorage.setItem("muted", isMuted ? "yes" : "no");
    if (isMuted) this.stop();
    else this.arm();
    this.changed();
  }

  /** Rings until it is stopped or a minute has passed; of several tabs that could, one does. */
  start() {
    if (this.isMuted || this.context?.state !== "running" || this.oscillator) return;
    if (!navigator.locks) return void this.#ring(this.context);
    const { context } = this;
    navigator.locks.request("siren", { ifAvailable: true }, (lock) => lock && this.#ring(context)).catch(() => {});
  }

  stop() {
    this.oscillator?.stop();
    this.oscillator = null;
  }

  /** Two tones in turn. Resolves when they have ended. @param {AudioContext} context @returns {Promise<void>} */
  #ring(context) {
    const oscillator = context.createOscillator();
    const gain = context.createGain();
    oscillator.type = "square";
    for (let second = 0; second < RINGS_FOR / 1000; second++) {
      oscillator.frequency.setValueAtTime(880, context.currentTime + second);
      oscillator.frequency.setValueAtTime(587, context.currentTime + second + 0.5);
    }
    gain.gain.value = 0.12;
    oscillator.connect(gain).connect(context.destination);
    oscillator.start();
    oscillator.stop(context.currentTime + RINGS_FOR / 1000);
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

  /** The title of the page while nothing is open. */
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

/** Shows a notification, where the player allowed it and the page is not seen. A push about `tag` takes its place. */
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

/** Takes notifications away that are about `tag`, also those of pushes. */
export async function withdraw(tag) {
  const shown = (await (await registration())?.getNotifications({ tag })) ?? [];
  for (const notification of shown) notification.close();
}

const registration = () => navigator.serviceWorker?.getRegistration().catch(() => undefined);
