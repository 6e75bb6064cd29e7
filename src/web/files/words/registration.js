// Texts of the registration for the game's pushes, which the service makes.

export const REGISTRATION = {
  title: "Registration for the game's pushes",
  why: "Sign in with the game once, on its own page: then this service receives your pairings and alarms, as a phone would. No password passes through here.",
  renew: "Let the service renew it, and keep a token of your account at the game for that",
  renewWhy:
    "Without this you sign in again every 14 days, your channels and this page remind you in time, and the token is deleted as soon as the registration is made. With it the token is kept, sealed: it reads your history at the game's companion service, and registers and removes devices there; it is no sign-in of Steam. It is deleted when you remove the registration.",
  begin: "Sign in with the game",
  open: "Open the game's sign-in in a new tab",
  copy: "Sign in there. The tab ends at an address that begins with http://localhost: and shows no page. That is right: copy the whole address.",
  banned:
    "If the platform shows an error instead, the account may be banned from its community: then this way is closed to it.",
  paste: "Come back here, and paste it.",
  address: "Address at which the tab ended",
  goOn: "Go on",
  /** @param {string | null} left */
  closes: (left) => (left ? `This way is open for ${left}.` : ""),
  again: "Begin again",
  /** @type {Record<string, string>} */
  steps: {
    sign_in: "Sign-in with the game",
    google_check_in: "A device of yours at Google",
    google_installation: "The game's app on it",
    google_push_address: "Its address for pushes",
    expo_token: "Its address at Expo, through which the game sends",
    game_registration: "The device at the game",
    credential: "The credential is stored",
  },
  states: { pending: "later", waiting: "yours to do", running: "under way", done: "done", failed: "did not work" },
};

/** Texts about a credential. */
export const CREDENTIAL = {
  title: "The game's pushes",
  states: { missing: "Nothing is registered yet.", unproven: "Stored; it has not logged in yet.", proven: "It works." },
  /** @type {Record<string, string>} */
  warnings: {
    expires_soon: "Your registration with the game ends within 3 days. Renew it now, or let the service do it.",
    expires_within_a_day: "Your registration with the game ends within a day. Renew it now.",
    expired: "Your registration with the game has ended. Sign in with the game again.",
  },
  operator: "The operator is repairing this; there is nothing for you to do.",
  /** @param {string} day */
  until: (day) => `It is registered until ${day}.`,
  /** @param {string} day */
  renews: (day) => `The service renews it before ${day}.`,
  begin: "Sign in with the game",
  again: "Sign in with the game again",
  remove: "Remove it",
  /** @param {string} day */
  removes: (day) => `Removed, it receives nothing more here; at the game it ends by itself on ${day}.`,
  disabled: "The operator of this service has not switched on that it registers by itself. A helper program does it.",
};
