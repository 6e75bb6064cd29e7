// Texts of the team and its chat.

export const TEAM = {
  title: "Team",
  leader: "leader",
  you: "you",
  /** @param {number} online @param {number} all */
  count: (online, all) => `${online} of ${all} online`,
  /** @param {string} name */
  follow: (name) => `Follow ${name} on the map`,
  /** @param {{ online: boolean, alive: boolean, grid: string }} member @param {string | null} since */
  state: ({ online, alive, grid }, since) => {
    if (!alive) return `dead${since ? ` since ${since.replace(" ago", "")}` : ""}${grid ? ` · ${grid}` : ""}`;
    return `${online ? "online" : "offline, asleep"}${grid ? ` · ${grid}` : ""}`;
  },
  none: "Here is your team: who is online, alive, and where.",
  noneWhy: "It comes with the first answer of the game server.",
};

export const TIMERS = {
  title: "Timers",
  /** @param {number} number */
  nameless: (number) => `Timer ${number}`,
  /** @param {number} number @param {string} when */
  facts: (number, when) => `!timer off ${number} · ends ${when}`,
  over: "over",
};

export const CHAT = {
  title: "Team chat",
  say: "Say something",
  send: "Send",
  none: "Here is what your team says.",
  noneWhy: "Nothing was said since the service watches.",
  guest: "Only the owner of this server can write here.",
};
