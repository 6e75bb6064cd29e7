// Texts that all parts share: times, waiting, what did not work.

export const COMMON = {
  now: "now",
  ago: (length) => `${length} ago`,
  left: (length) => `${length} left`,
  /** Lengths of time by the number of each unit; 0 of the second one is left out. */
  seconds: (count) => `${count} s`,
  minutes: (count) => `${count} min`,
  hours: (count) => `${count} h`,
  days: (count) => `${count} d`,
  loading: "Loading…",
  noServer: "No server is shown any longer.",
  tryAgain: "Try again",
  retryIn: (seconds) => `Try again in ${seconds} s.`,
  done: "Done",
  offline: "The service cannot be reached. Is this device online?",
  answered: (status) => `The service answered ${status}.`,
  helper: "Helper program",
};
