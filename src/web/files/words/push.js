// Texts of alarms by pushes to this browser.

export const PUSH = {
  title: "This device",
  /** The name of a new channel. @param {string} [browser] @param {string} [system] */
  thisBrowser: (browser = "Browser", system = "") => (system ? `${browser} on ${system}` : browser),
  on: "An alarm wakes this device, also while this page is closed.",
  off: "This device is not woken while this page is closed.",
  why: "An alarm then shows a notification, with a button that acknowledges it. It comes again until you do.",
  loudness:
    "A browser cannot pass silence or Do Not Disturb by itself: in the settings of your phone, allow that for the notifications of this page.",
  lost: "Alarms no longer reach this device: the browser has ended its subscription.",
  again: "Wake this device again",
  wake: "Wake this device",
  test: "Test",
  tested: "The push service took the test. Does a notification show?",
  stop: "Stop",
  sure: "Sure?",
  stopped: "This device is not woken any longer.",
  dismissed: "You have not answered the browser's question. Press the button again, and allow notifications.",
  denied:
    "Notifications of this page are blocked. Press the sign beside the address of this page, or open the site settings of the browser, allow notifications, and load this page again.",
  noWorker: "The part of this page that shows alarms does not start. Load the page again, or use another browser.",
  /** @param {string} why */
  noService: (why) =>
    `The push service of this browser does not answer: ${why}. Some browsers have none, or have it switched off. Another browser, or ntfy below, works.`,
  obstacles: {
    insecure: "A browser takes pushes only from addresses that begin with https://. The operator can change that.",
    install:
      "An iPhone or iPad takes pushes only for pages on its Home Screen: press Share, Add to Home Screen, and open the page from there.",
    old: "This iPhone or iPad is too old for pushes to pages: they need version 16.4. ntfy below works.",
    unsupported:
      "This browser takes no pushes, at least not in a private window. Another browser, or ntfy below, works.",
    denied:
      "Notifications of this page are blocked. Press the sign beside the address of this page, or open the site settings of the browser, allow notifications, and load this page again.",
  },
};
