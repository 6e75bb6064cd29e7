// Texts of the account: plan, sign-ins, tokens, guests, overlays, data.

export const ACCOUNT = {
  plan: "Plan and payment",
  sessions: "Sign-ins",
  tokens: "API tokens",
  devices: "Helper programs",
  noHelper: "No helper program is paired.",
  noHelperWhy: "The set-up above gives you a code for one.",
  byLink: "Link",
  /** @param {string} path @param {boolean} up @param {string | null | undefined} since @param {string | null | undefined} advice */
  path: (path, up, since, advice) =>
    `${path === "link" ? "live link" : "pushes"}: ${up ? "up" : "down"}${since ? ` since ${since}` : ""}${advice ? `. ${advice}` : ""}`,
  guests: "Guests of this server",
  invites: "My invitations",
  tracking: "Tracked players",
  overlay: "Overlay for streams",
  data: "My data",
  server: "This server",
  signOut: "Sign out",
  /** @param {string} name */
  signedInAs: (name) => `Signed in as ${name}`,
  current: "this browser",
  /** @param {string} when */
  since: (when) => `since ${when}`,
  /** @param {string} when */
  seen: (when) => `last used ${when}`,
  never: "never used",
  end: "End",
  endOthers: "End all others",
  endAll: "End all, with helper programs and overlays",
  sure: "Sure?",
  tier: { null: "No plan", SCOUT: "Scout", OPERATOR: "Operator", OVERLORD: "Overlord" },
  status: {
    ACTIVE: "active",
    TRIALING: "on trial",
    PAST_DUE: "the last payment failed",
    CANCELED: "ends",
    INCOMPLETE: "not paid yet",
    UNPAID: "unpaid",
    PAUSED: "paused",
  },
  /** @param {string} when */
  until: (when) => `until ${when}`,
  /** @param {string} when */
  renews: (when) => `renews ${when}`,
  /** @param {number} guests @param {number} shops */
  unlocks: (guests, shops) => `${guests} ${guests === 1 ? "guest" : "guests"} a server, ${shops} watched shops`,
  free: "Nothing is held back without a plan on this service.",
  month: "a month",
  year: "a year",
  portal: "Change, pay or cancel",
  noPayments: "Nothing is sold on this service, and everything works.",
  label: "Label",
  scopes: "May",
  scope: { read: "read everything", devices: "switch devices", chat: "write in the team chat" },
  makeToken: "Make a token",
  tokenOnce: "Copy it now: it is shown only once.",
  copy: "Copy",
  remove: "Delete",
  noTokens: "With a token, a program of yours can use this service as you.",
  inviteLink: "Make an invitation link",
  inviteId: "SteamID64 of the guest",
  invite: "Invite",
  invited: "invited",
  noGuests: "A guest sees all of this server, and switches nothing.",
  linkOnce: "Send this link to one person. It works once.",
  linkPicture: "QR code of this link",
  noInvites: "There is no invitation for you.",
  accept: "Accept",
  leave: "Leave",
  /** @param {string} owner */
  from: (owner) => `from ${owner}`,
  track: "Track",
  playerName: "Name of the player",
  tag: "Tag",
  online: "online",
  offline: "offline",
  /** @param {string} when */
  lastSeen: (when) => `last seen ${when}`,
  notSeen: "not seen yet",
  noTracking: "You see when a player comes to this server, and leaves it.",
  trackingOff: "This service asks no player statistics, so players cannot be tracked.",
  export: "Download my data",
  erase: "Erase my account",
  eraseWhy: "Everything of yours is deleted at once: servers, devices, history. Type your SteamID64 to confirm.",
  drill: "Start a drill",
  unpair: "Unpair this server",
  /** @param {string} when */
  pairedAt: (when) => `paired ${when}`,
  wiki: "How it works",
  docs: "API",
};

/** Sessions of tracked players. */
export const SESSIONS = {
  /** @param {string} player */
  show: (player) => `When ${player} was here`,
  loading: "Loading…",
  /** @param {number} days */
  none: (days) => `Not seen here in the last ${days} days.`,
  /** @param {string} total @param {number} days */
  total: (total, days) => `${total} in the last ${days} days, by the clock of this device.`,
  /** @param {string} player @param {string} total @param {number} days */
  chartOf: (player, total, days) => `When ${player} was on this server in the last ${days} days: ${total} in all`,
};

export const OVERLAY = {
  title: "Overlay for streams",
  why: "A page for the browser source of your streaming program. It shows live what you choose, and needs no sign-in.",
  show: "Show",
  /** @type {Record<string, string>} */
  parts: { raid: "raids", events: "events", team: "team" },
  position: "Corner",
  positions: { tl: "top left", tr: "top right", bl: "bottom left", br: "bottom right" },
  scale: "Size",
  theme: "Look",
  themes: { outline: "outlined text", plate: "text on a plate" },
  make: "Make the address",
  address:
    "Put this address into a browser source, 1920 × 1080. Who has it sees what it shows, so keep it to yourself.",
  preview: "Preview",
  /** An alarm, as the preview has one. */
  example: "Main base north",
  /** @param {string[]} parts that it shows */
  label: (parts) => `Overlay: ${parts.map((part) => OVERLAY.parts[part]).join(", ")}`,
};
