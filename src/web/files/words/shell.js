// Texts of the frame: sign-in, top bar, tabs, connection.

export const SHELL = {
  product: "companion",
  signIn: "Sign in",
  signInWhy: "Sign in with the account you play with.",
  about:
    "Your base is watched while you sleep: raids, the team, the map, switches and shops of your game servers, live.",
  cancelled: "You did not sign in. Nothing was changed.",
  invited: "You are invited to watch a game server. Sign in to see who invites you.",
  signedOut: "Your sign-in has ended. What you see is from before.",
  offline: "The service cannot be reached. Is this device online?",
  again: "It is tried again every 10 s.",
  tryAgain: "Try again",
  failed: "This part of the page does not work right now.",
  server: "Server",
  /** @type {Record<string, string>} */
  tabs: { map: "Map", team: "Team", devices: "Devices", feed: "Feed", shops: "Shops", more: "More" },
  /** @param {number} players @param {number | null} most @param {number | null} queue */
  players: (players, most, queue) => `${players}/${most}${queue ? ` +${queue}` : ""} players`,
  /** @param {number} hour */
  hour: (hour) =>
    `${String(Math.floor(hour)).padStart(2, "0")}:${String(Math.floor((hour % 1) * 60)).padStart(2, "0")}`,
  sound: { off: "Sound is off", armed: "Sound is on", blocked: "Press to turn the sound on" },
  woken: "You would be woken",
  /** @param {number} count */
  stepsLeft: (count) => `Set-up: ${count} left`,
  /** @param {number} seconds */
  retry: (seconds) => (seconds > 0 ? `Reconnecting in ${seconds} s.` : "Reconnecting now."),
  /** @param {string | null} left */
  nextTry: (left) => `Next try in ${left}.`,
  now: "Now",
  newVersion: "There is a new version of this page.",
  reload: "Load it",
  noRelay:
    "The operator has not said where the relay is (RELAY_URL), so nothing is live. There is nothing for you to do.",
  parts: "Parts of the dashboard",
  panel: "Details",
  notices: "Raids and notices",
  /** @param {string} age */
  stale: (age) => `stale: this is ${age} old`,
  staleUnknown: "stale: there was no answer yet",
  connection: "Connection",
  /** @param {string} age */
  wiped: (age) => `wiped ${age}`,
  copied: "Copied",
  notCopied: "The browser does not let this page copy. Select the text instead.",
  expand: "Make this larger or smaller",
};

/** The state of everything between the game and this page, as its first word says. */
export const STATES = {
  live: "live",
  connecting: "reconnecting",
  waiting: "offline",
  stopped: "offline",
  signed_out: "offline",
  gone: "offline",
  unknown: "reconnecting",
  stale: "stale",
  /** @param {string} word @param {string | null} left */
  again: (word, left) => `${word}, again in ${left}`,
};

/** The state of the link to the game server. @type {Record<string, string>} */
export const LINKS = {
  connecting: "The service is connecting to the game server.",
  connected: "",
  unreachable: "The game server does not answer.",
  rejected: "The game server refuses your pairing. Press Pair in the game again.",
  no_credentials: "There is no push credential, so the service cannot follow a new pairing.",
  paused: "The link is paused until someone watches.",
  waiting: "This game server takes few connections at a time. Others have their turn, and yours comes by itself.",
};
