// Texts for those who have just arrived.

export const ARRIVALS = {
  /** @type {Record<string, string>} */
  billing: {
    done: "Thank you. Your plan is active as soon as the payment is confirmed, which takes some seconds.",
    cancelled: "You did not buy anything. Nothing was changed.",
    portal: "You are back from the page of your plan.",
  },
  plan: "See your plan",
  channels: "See what wakes you",
  /** @param {string | null | undefined} advice */
  lostChannel: (advice) => `: no alarm is sent by it. ${advice ?? ""}`.trimEnd(),
  helper: "A helper program",
  overlay: "An overlay",
  /** @param {string} network */
  paired: (network) => ` was paired with your account, in the network ${network}. If that was not you, remove it.`,
  /** @param {string} date */
  pairedOn: (date) => ` was paired with your account on ${date}. If that was not you, remove it.`,
  access: "See what has access",
  invites: "invites you to watch",
  accept: "Accept",
  close: "Close",
};
