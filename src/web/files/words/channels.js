// Texts of the channels that wake a user without a dashboard.

export const CHANNELS = {
  title: "Alarms on your phone",
  none: "Nothing wakes you while no dashboard is open.",
  noneHow: "Add a service on your phone. Alarms come again until you acknowledge them.",
  kind: "Service",
  /** @type {Record<string, string>} */
  kinds: {
    ntfy: "ntfy",
    pushover: "Pushover",
    gotify: "Gotify",
    telegram: "Telegram",
    discord: "Discord",
    webhook: "Webhook (signed JSON)",
    teamChat: "Team chat in the game",
    webPush: "Browser",
  },
  /** @type {Record<string, string>} */
  how: {
    ntfy: "Install ntfy on your phone and subscribe to a topic that is hard to guess. Let it override Do Not Disturb.",
    pushover: "Make an application at pushover.net; an emergency there repeats until you open it.",
    gotify: "Make an application in your Gotify server.",
    telegram: "Make a bot with @BotFather, write to it once, and give the id of that chat.",
    discord: "Server settings, Integrations, Webhooks: copy its URL. A second one keeps raids apart from the rest.",
    webhook: "Signed after the Standard Webhooks specification.",
    teamChat: "A line in the game for your team, on each server that you have paired, while its link is up.",
  },
  name: "Name",
  url: "URL",
  quietUrl: "Another URL for all that is no raid",
  topic: "Topic",
  token: "Token",
  /** @type {Record<string, string>} */
  recipient: { pushover: "User key", telegram: "Chat id" },
  add: "Add",
  test: "Test",
  remove: "Delete",
  sure: "Sure?",
  accepted: "It took the message. Did it wake you?",
  said: "It was said in the game.",
  state: {
    active: "",
    failing: "the last message did not get through",
    disabled: "nothing got through for a day: test it",
    gone: "ended at the other side",
  },
  /** @param {string} when */
  lastAt: (when) => `last message ${when}`,
  never: "not tested yet",
  secretOnce: "The secret of its signatures. Copy it now: it is shown only once.",
  copy: "Copy",
};

/** The form of another service, in which a webhook may write. */
export const TEMPLATE = {
  type: "Form of its messages",
  /** @type {Record<string, string>} */
  types: {
    "": "ours: signed JSON",
    "application/json": "another service's JSON",
    "application/x-www-form-urlencoded": "another service's form fields",
    "text/plain": "plain text",
  },
  headers: "Headers, one a line, as X-Api-Key: value",
  body: "Body",
  placeholders:
    "{title} {text} {type} {kind} {server} {alarm} {grid} {count} {drill} {incident} {url} {ackUrl} are replaced. In JSON, a text is within quotes. None of this is shown again.",
};
