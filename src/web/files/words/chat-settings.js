// Texts of the settings of the team's chat.

export const CHAT_SETTINGS = {
  title: "Team chat in the game",
  why: "The base answers players who type these commands in the team chat, by the paired player's own name.",
  announce: "Say there without being asked",
  /** @satisfies {Record<keyof Api["Announcements"], string>} */
  kinds: {
    raid: "A smart alarm goes off",
    login: "A member comes online",
    death: "A member dies",
    upkeep: "A tool cupboard runs low, or is decaying",
    device: "A switch was turned outside of the chat",
  },
  /** @param {string} time */
  muted: (time) => `Nothing but alarms is said until ${time}.`,
  unmute: "Say everything again",
  questions: "Who may ask, set timers and take notes",
  devices: "Who may switch devices",
  leader: "Who may ask for another leader",
  /** @type {Record<string, string>} */
  audience: {
    everyone: "every member of the team",
    users: "members who use this service, and guests",
    owner: "only the paired player",
  },
  pass: "Pass leadership on when a member asks",
  prefix: "Sign before a command",
  commands: "Commands that are answered",
  blocked: "Never answer these players (SteamID64, one a line)",
  save: "Save",
  saved: "Saved. It counts at once.",
};
