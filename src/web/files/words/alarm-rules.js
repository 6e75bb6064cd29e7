// Texts of the rules by which an alarm wakes a user, and of the messages about the last one.

export const RULES = {
  /** @param {string} server */
  title: (server) => `What wakes me on ${server}`,
  enabled: "Send it to me by the channels above",
  kinds: "What is sent",
  kindsWhy: "A raid comes again until you acknowledge it. Everything else comes once, without a sound.",
  kind: {
    raid: "Raids",
    death: "Deaths of the team",
    login: "Team members who come online",
    logout: "Team members who go offline",
    team: "Changes of the team",
    explosion: "Explosions",
    device: "Smart devices",
    shop: "Shops",
    cargo: "Cargo ship",
    heli: "Patrol helicopter",
    chinook: "Chinook",
    crate: "Locked crates",
    oilrig: "Oil rigs",
    vendor: "Travelling vendor",
    wipe: "Wipes",
    gap: "Lost and regained connections",
  },
  order: "Order",
  /** @type {Record<string, string>} */
  orders: { usual: "browsers, then one a minute", own: "at times that I choose" },
  /** @param {number} seconds */
  after: (seconds) => (seconds === 0 ? "at once" : `after ${time(seconds)}`),
  unused: "not used",
  /** @param {string} names */
  notUsed: (names) => `No alarm of this server comes by: ${names}.`,
  noneUsed: "Choose a time for at least one channel, or send nothing.",
  repeat: "Repeat, if I do not acknowledge it,",
  rounds: "Send it at most",
  /** @param {number} count */
  times: (count) => (count === 1 ? "once" : `${count} times`),
  quiet: "Quiet hours",
  from: "From",
  to: "Until",
  zone: "Time zone",
  pierce: "A raid wakes me all the same",
  pierceWhy: "Without it, a raid waits for their end.",
  save: "Save",
  saved: "Saved. It counts from the next message on.",
};

export const DELIVERIES = {
  /** @param {string} server */
  title: (server) => `The last alarm on ${server}`,
  loading: "Loading…",
  none: "No alarm has come yet. A drill shows how one reaches you.",
  noneOfGuest: "No alarm has come yet.",
  drill: "Start a drill",
  /** @param {string} when */
  acknowledged: (when) => `You acknowledged it ${when}.`,
  open: "You have not acknowledged it.",
  noMessagesYet: "No message was sent to you yet. Your rules may send the first one later, or none.",
  noMessages: "No message was sent to you: no channel was there, or your rules send none.",
  teamChat: "Team chat",
  state: {
    queued: "waits",
    accepted: "was taken",
    failed: "failed",
    superseded: "a newer one took its place",
    cancelled: "was not needed any longer",
    suppressed: "your quiet hours held it back",
  },
  /** @param {number} milliseconds */
  after: (milliseconds) => (milliseconds < 950 ? "at once" : `after ${time(Math.round(milliseconds / 1000))}`),
  reason: {
    unavailable: "the other side does not answer",
    throttled: "the other side takes no more messages for now",
    refused: "the token is not taken",
    rejected: "the message is not taken",
    gone: "it ended at the other side",
    not_allowed: "no channel may reach that address",
    unreadable: "the operator is repairing this",
    too_late: "the alarm was over before it could be sent",
    no_link: "no link to the game server is in a team",
    muted: "players want no announcements",
    no_team: "there was no team",
    not_taken: "the game server took no line in time",
  },
  /** @param {string} when */
  next: (when) => `next attempt in ${when}`,
  /** @param {number} number */
  round: (number) => (number === 1 ? "sent again" : `sent again ${number} times`),
};

/** A length of time in words of its own, as `90 s` or `2 min`. @param {number} seconds */
function time(seconds) {
  if (seconds < 60 || seconds % 60) return `${seconds} s`;
  return seconds === 3600 ? "an hour" : `${seconds / 60} min`;
}
