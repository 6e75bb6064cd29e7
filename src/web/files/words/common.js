// Texts that all parts share: times, waiting, what did not work.

export const COMMON = {
  now: "now",
  /** @param {string} length */
  ago: (length) => `${length} ago`,
  /** @param {string} length */
  left: (length) => `${length} left`,
  /** Lengths of time by the number of each unit; 0 of the second one is left out. @param {number} count */
  seconds: (count) => `${count} s`,
  /** @param {number} count */
  minutes: (count) => `${count} min`,
  /** @param {number} count */
  hours: (count) => `${count} h`,
  /** @param {number} count */
  days: (count) => `${count} d`,
  loading: "Loading…",
  noServer: "No server is shown any longer.",
  tryAgain: "Try again",
  /** @param {number} seconds */
  retryIn: (seconds) => `Try again in ${seconds} s.`,
  done: "Done",
  offline: "The service cannot be reached. Is this device online?",
  /** @param {number} status */
  answered: (status) => `The service answered ${status}.`,
  helper: "Helper program",
};
